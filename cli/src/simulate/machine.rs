//! A model on a GPU, as far as time and memory go.

/// Sizes and speeds. Peak numbers: real kernels reach less, under every policy alike.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Bytes of the weights, 16-bit.
    pub weights: f64,
    /// Bytes of K and V that one token takes, all layers together.
    pub token_bytes: f64,
    /// Bytes of memory left for K and V.
    pub cache: f64,
    /// Bytes per second.
    pub bandwidth: f64,
    /// Floating-point operations per second.
    pub flops: f64,
    /// Most sequences in a batch.
    pub max_batch: usize,
    /// Factor on the time that reading K and V takes through a block table.
    pub paging: f64,
}

impl Machine {
    /// Tokens that the cache memory holds.
    pub fn capacity(&self) -> usize {
        (self.cache / self.token_bytes) as usize
    }

    /// Seconds of a step that passes `rows` tokens through the weights and reads the keys and
    /// values of `context` tokens.
    pub fn step(&self, rows: usize, context: usize, paged: bool) -> f64 {
        // Two operations per 16-bit weight and token; weights are read once, whichever takes longer.
        let compute = self.weights * rows as f64 / self.flops;
        let linear = f64::max(self.weights / self.bandwidth, compute);
        let factor = if paged { self.paging } else { 1.0 };
        linear + context as f64 * self.token_bytes / self.bandwidth * factor
    }

    /// Seconds per token of a sequence that has the GPU to itself and hardly any context.
    pub fn least_latency(&self) -> f64 {
        self.weights / self.bandwidth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_reads_the_weights_once_and_the_context_once() {
        let machine = Machine {
            weights: 20e9,
            token_bytes: 1e6,
            cache: 10.5e6,
            bandwidth: 1e12,
            flops: 1e14,
            max_batch: 8,
            paging: 1.5,
        };
        assert_eq!(machine.capacity(), 10);
        // 20 ms for the weights, of which 100 rows hide their 20 ms of arithmetic.
        assert_eq!(machine.step(1, 0, false), 0.02);
        assert_eq!(machine.step(100, 0, true), 0.02);
        assert_eq!(machine.step(200, 0, true), 0.04);
        // 4 GB of context take 4 ms, or half more through a table.
        assert!((machine.step(1, 4000, false) - 0.024).abs() < 1e-12);
        assert!((machine.step(1, 4000, true) - 0.026).abs() < 1e-12);
    }
}
