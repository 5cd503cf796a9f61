//! How contexts are cut into splits.

use crate::DeviceLimits;
use crate::kernels::geometry::{
    LaneMap, MAX_SPLIT_TOKENS, MAX_SPLITS, THREADS, UNIT_TOKENS, WARPS, decode_shared_bytes,
};
use crate::kernels::variants::{DecodeKind, DecodeVariant};

/// How contexts are cut into splits that run side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum SplitPolicy {
    /// Enough splits to fill the device, none so short that its merge costs more than it gains.
    /// Looks at the batch size and the capacity, so the last bits of a sequence's output may
    /// change with them.
    #[default]
    Auto,
    /// Splits of this many tokens, a positive multiple of 16 up to 8192; 512 is recommended. The
    /// output bits of a sequence depend on its own query, keys and values alone.
    Tokens(u32),
}

/// Tokens below which a split costs more to merge than it gains.
const MIN_AUTO_TOKENS: u64 = 256;
/// Automatic splits are multiples of this: one unit for every warp of the CTA.
const AUTO_UNIT: u64 = (UNIT_TOKENS * WARPS) as u64;
/// Share of the last wave that must be busy.
const WAVE_EFFICIENCY: f64 = 0.85;

/// Registers per thread to reckon with: steps to which ptxas' figures (`cargo xtask ptxas`) are
/// rounded up. An error here costs a share of a wave, not a result.
const fn registers_per_thread(variant: &DecodeVariant) -> u32 {
    let columns = LaneMap::new(variant.head_dim, variant.dtype.bytes()).columns();
    match variant.kind {
        DecodeKind::CudaCore if variant.heads_per_tile == 1 => 80,
        DecodeKind::CudaCore if columns <= 4 => 168,
        DecodeKind::CudaCore => 255,
        DecodeKind::TensorCore if variant.head_dim <= 32 => 96,
        DecodeKind::TensorCore if variant.head_dim <= 80 => 128,
        DecodeKind::TensorCore if variant.head_dim <= 128 => 168,
        DecodeKind::TensorCore => 255,
    }
}

/// CTAs of `variant` that the device holds at a time, at least 1.
pub(crate) fn slots(limits: &DeviceLimits, variant: &DecodeVariant) -> u64 {
    // The device reserves 1 KB of shared memory per CTA.
    let shared = limits.shared_bytes_per_sm / (decode_shared_bytes(variant) + 1024);
    let registers = limits.registers_per_sm / (registers_per_thread(variant) * THREADS);
    let resident = limits
        .max_blocks_per_sm
        .min(limits.max_threads_per_sm / THREADS)
        .min(shared)
        .min(registers);
    u64::from(limits.sm_count) * u64::from(resident.max(1))
}

/// Tokens of the longest splits that keep [`WAVE_EFFICIENCY`]; if none do, of those that come
/// nearest. `ctas` are launched per split, and the device holds `slots` at a time.
pub(crate) fn auto_tokens(ctas: u64, max_seq_len: u64, slots: u64) -> u32 {
    let longest = u64::from(MAX_SPLIT_TOKENS);
    // Never more splits than `merge` takes, as far as the longest split allows.
    let shortest = max_seq_len
        .div_ceil(MAX_SPLITS.into())
        .next_multiple_of(AUTO_UNIT);
    let shortest = shortest.clamp(MIN_AUTO_TOKENS, longest);
    let fewest = max_seq_len.div_ceil(longest).max(1);
    let most = max_seq_len.div_ceil(shortest).max(fewest);

    let tokens = |splits: u64| {
        max_seq_len
            .div_ceil(splits)
            .next_multiple_of(AUTO_UNIT)
            .clamp(shortest, longest)
    };
    let mut best = (-1.0, longest);
    for splits in fewest..=most {
        let tokens = tokens(splits);
        // So many that the product overflows are refused by the plan.
        let all = ctas.saturating_mul(max_seq_len.div_ceil(tokens).max(1));
        let efficiency = efficiency(all, slots);
        if efficiency > best.0 {
            best = (efficiency, tokens);
        }
        if efficiency >= WAVE_EFFICIENCY {
            break;
        }
    }
    best.1 as u32
}

/// Share of the slots that are busy over all waves of `ctas`.
fn efficiency(ctas: u64, slots: u64) -> f64 {
    let waves = ctas as f64 / slots as f64;
    waves / waves.ceil().max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::variants::find_decode;
    use crate::{AttentionConfig, DType, Plan};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn auto_tokens_stay_within_bounds(
            ctas in 0..=1u64 << 47, len in 0..=i32::MAX as u64, slots in 1..=1u64 << 40,
        ) {
            let tokens = auto_tokens(ctas, len, slots);
            prop_assert!(tokens.is_multiple_of(UNIT_TOKENS));
            prop_assert!((MIN_AUTO_TOKENS as u32..=MAX_SPLIT_TOKENS).contains(&tokens));
            let splits = len.div_ceil(tokens.into());
            let refused = len > u64::from(MAX_SPLITS) * u64::from(MAX_SPLIT_TOKENS);
            prop_assert_eq!(splits > MAX_SPLITS.into(), refused);
        }
    }

    /// 2^63 CTAs in two splits are 2^64, which a wrapped product would take for none.
    #[test]
    fn more_ctas_than_can_be_counted_fill_the_device_with_the_fewest_splits() {
        let len = 2 * u64::from(MAX_SPLIT_TOKENS);
        assert_eq!(auto_tokens(1 << 63, len, 1), MAX_SPLIT_TOKENS);
    }

    /// A batch of one needs splits to fill the device, and long contexts give enough of them.
    #[test]
    fn auto_fills_the_device() {
        for limits in [DeviceLimits::a100(), DeviceLimits::h100()] {
            for (seqs, q, kv, len) in [
                (1, 32, 32, 16_384),
                (1, 32, 8, 131_072),
                (8, 64, 8, 8192),
                (64, 32, 8, 4096),
            ] {
                let config = AttentionConfig::new(DType::F16, q, kv, 128, 16);
                let plan = Plan::new(&config, seqs, len, SplitPolicy::Auto, &limits).unwrap();
                let ctas = plan.decode_grid().iter().map(|&n| u64::from(n)).product();
                let efficiency = efficiency(ctas, slots(&limits, plan.decode_variant()));
                assert!(
                    efficiency >= WAVE_EFFICIENCY,
                    "{seqs} x {len}: {efficiency}"
                );
            }
        }
    }

    /// Where the batch fills the device already, and where contexts are short, nothing is split.
    #[test]
    fn auto_does_not_split_without_need() {
        let config = AttentionConfig::new(DType::F16, 32, 32, 128, 16);
        let h100 = DeviceLimits::h100();
        let splits = |seqs, len| {
            Plan::new(&config, seqs, len, SplitPolicy::Auto, &h100)
                .unwrap()
                .num_splits()
        };
        assert_eq!(splits(512, 4096), 1);
        assert_eq!(splits(1, 256), 1);
        assert_eq!(splits(1, 0), 1);
    }

    #[test]
    fn a_device_holds_what_shared_memory_and_registers_allow() {
        let v = find_decode(DType::F16, 128, 8).unwrap();
        let limits = |shared, registers| DeviceLimits::gpu(10, 2048, 32, shared, registers);
        let cta = decode_shared_bytes(v) + 1024;
        assert_eq!(slots(&limits(3 * cta, u32::MAX), v), 30);
        assert_eq!(slots(&limits(3 * cta - 1, u32::MAX), v), 20);
        assert_eq!(
            slots(&limits(u32::MAX, u32::MAX), v),
            160,
            "2048 threads are 16 CTAs"
        );
        let registers = registers_per_thread(v) * THREADS;
        assert_eq!(slots(&limits(u32::MAX, 2 * registers), v), 20);
        assert_eq!(slots(&limits(0, 0), v), 10, "at least one each");
        assert_eq!(slots(&DeviceLimits::cpu(6), v), 6);
    }
}
