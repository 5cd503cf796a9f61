//! A small generator of our own: the same numbers on every machine and in every release.

/// SplitMix64.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    /// A stream per (seed, index), so that a sequence keeps its numbers in any batch.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(seed);
        let mixed = random.bits();
        Self(mixed ^ stream.wrapping_mul(0xd134_2543_de82_ef95))
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in 0..n.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// Uniform in [−1, 1].
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}
