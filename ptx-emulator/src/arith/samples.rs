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

/// Triples of patterns of a format: all pairs of special values with a third, then random ones of
/// which many lie close together in exponent, so that sums cancel.
pub fn floats(format: super::soft::Format) -> Vec<[u64; 3]> {
    let sign = 1u64 << (format.bits - 1);
    let one = (format.bias as u64) << (format.precision - 1);
    let least_normal = 1u64 << (format.precision - 1);
    let infinity = (2 * format.bias as u64 + 1) << (format.precision - 1);
    let positive = [
        0,
        1,
        2,
        least_normal - 1,
        least_normal,
        least_normal + 1,
        one - 1,
        one,
        one + 1,
        one + least_normal,
        one + least_normal / 2,
        infinity - 1,
        infinity,
        infinity + 1,
        sign - 1,
    ];
    let special: Vec<u64> = positive.iter().flat_map(|x| [*x, *x | sign]).collect();
    let mut triples = Vec::new();
    for (i, a) in special.iter().enumerate() {
        for (j, b) in special.iter().enumerate() {
            triples.push([*a, *b, special[(7 * i + 11 * j) % special.len()]]);
        }
    }
    let mut random = Random::new(u64::from(format.precision));
    let mask = u64::MAX >> (64 - format.bits);
    for _ in 0..400 {
        let [a, b, c] = [0; 3].map(|_: u8| random.next() & mask);
        triples.push([a, b, c]);
        // Near 1, and a c near −a·b or midway between neighbours.
        let near = |x: u64| one.wrapping_add(x & (4 * least_normal - 1)) - 2 * least_normal;
        let (a, b) = (near(a), near(b));
        triples.push([a, b, near(c) | sign]);
        triples.push([a, a ^ sign ^ (c & 3), one]);
        // Far below the last place of the other operand.
        triples.push([a, b, c & (8 * least_normal - 1)]);
        triples.push([
            a & !(least_normal / 2 - 1),
            b & !(least_normal / 4 - 1),
            c & (sign | 1),
        ]);
    }
    triples
}
