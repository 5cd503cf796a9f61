//! Inputs that the tests of this folder share.

/// SplitMix64: small, and good enough to choose test inputs.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Runs of ones and zeros as often as random bits: carries and borrows travel far.
    pub fn mixed(&mut self) -> u64 {
        let x = self.next();
        match x & 3 {
            0 => (self.next() >> (x >> 8 & 63)).wrapping_neg(),
            1 => self.next() >> (x >> 8 & 63),
            _ => self.next(),
        }
    }
}

/// Pairs of patterns of this width: every pair of special values, then random ones.
pub fn integers(bits: u32) -> Vec<(u64, u64)> {
    let mask = u64::MAX >> (64 - bits);
    let top = 1u64 << (bits - 1);
    let special = [
        0,
        1,
        2,
        3,
        7,
        31,
        32,
        33,
        63,
        64,
        65,
        255,
        top - 1,
        top,
        top + 1,
        mask,
        mask - 1,
        mask >> (bits / 2),
        mask << (bits / 2),
        0x5555_5555_5555_5555,
    ];
    let mut random = Random::new(bits.into());
    let mut pairs = Vec::new();
    for a in special {
        for b in special {
            pairs.push((a & mask, b & mask));
        }
    }
    for _ in 0..600 {
        pairs.push((random.mixed() & mask, random.mixed() & mask));
    }
    pairs
}
