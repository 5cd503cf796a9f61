//! What a GPU allows, from its figures: no measurement on one.

use paged_attention::DeviceLimits;
use paged_attention::kernels::geometry::{THREADS, WARPS};

use super::assembled::Registers;

/// Latency of a read that leaves the chip, under load.
const LATENCY_SECONDS: f64 = 700e-9;
/// Warp instructions that a multiprocessor issues per clock.
const ISSUE_PER_CLOCK: f64 = 4.0;
/// Shared memory that the device keeps per CTA.
const RESERVED_SHARED: u32 = 1024;

/// Figures of a GPU.
pub struct Machine {
    pub name: &'static str,
    /// Bytes per second: what a copy reaches on H200, the data sheet's elsewhere.
    pub bandwidth: f64,
    /// Clocks per second under load.
    pub clock: f64,
    pub limits: DeviceLimits,
    /// Whether it runs code for sm_90, else for sm_80.
    hopper: bool,
}

/// The GPUs that bounds are printed for.
pub const MACHINES: [Machine; 3] = [
    Machine {
        name: "A100",
        bandwidth: 2.0e12,
        clock: 1.41e9,
        limits: DeviceLimits::a100(),
        hopper: false,
    },
    Machine {
        name: "H100",
        bandwidth: 3.35e12,
        clock: 1.75e9,
        limits: DeviceLimits::h100(),
        hopper: true,
    },
    Machine {
        name: "H200",
        bandwidth: 4.3e12,
        clock: 1.75e9,
        limits: DeviceLimits::h100(),
        hopper: true,
    },
];

/// What a kernel does per byte of K and V that its CTAs need, counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerByte {
    /// Bytes of sectors, read or written.
    pub traffic: f64,
    /// Warp instructions.
    pub instructions: f64,
    /// Passes over the banks of shared memory.
    pub wavefronts: f64,
}

/// Bytes of K and V per second that each part of a GPU allows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    pub memory: f64,
    pub issue: f64,
    pub shared: f64,
    /// Bytes in flight over the latency.
    pub in_flight: f64,
}

impl Bounds {
    /// The lowest.
    pub fn least(&self) -> f64 {
        let Self {
            memory,
            issue,
            shared,
            in_flight,
        } = *self;
        memory.min(issue).min(shared).min(in_flight)
    }
}

impl Machine {
    /// CTAs that one multiprocessor holds.
    pub fn resident(&self, registers: Registers, shared_bytes: u32) -> u32 {
        let per_thread = if self.hopper {
            registers.sm_90
        } else {
            registers.sm_80
        };
        // Registers are dealt out to a warp in pieces of 256.
        let registers = (per_thread * 32).next_multiple_of(256) * WARPS;
        let limits = &self.limits;
        (limits.registers_per_sm / registers)
            .min(limits.shared_bytes_per_sm / (shared_bytes + RESERVED_SHARED))
            .min(limits.max_threads_per_sm / THREADS)
            .min(limits.max_blocks_per_sm)
    }

    /// The bounds of a kernel that keeps `in_flight` bytes on their way to every multiprocessor.
    pub fn bounds(&self, per_byte: &PerByte, in_flight: f64) -> Bounds {
        let clocks = f64::from(self.limits.sm_count) * self.clock;
        Bounds {
            memory: self.bandwidth / per_byte.traffic,
            issue: clocks * ISSUE_PER_CLOCK / per_byte.instructions,
            shared: clocks / per_byte.wavefronts,
            in_flight: in_flight * f64::from(self.limits.sm_count) / LATENCY_SECONDS,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occupancy_counts_registers_by_warp_and_shared_memory_with_the_reserve() {
        let [a100, h100, _] = &MACHINES;
        let registers = |n| Registers { sm_80: n, sm_90: n };
        // 165 registers round up to 168: 21,504 for 4 warps, three times in 65,536.
        assert_eq!(h100.resident(registers(165), 0), 3);
        assert_eq!(h100.resident(registers(168), 0), 3);
        assert_eq!(h100.resident(registers(169), 0), 2);
        // 164 KB hold two CTAs of 68 KB, 228 KB three.
        assert_eq!(a100.resident(registers(32), 68 * 1024), 2);
        assert_eq!(h100.resident(registers(32), 68 * 1024), 3);
        assert_eq!(h100.resident(registers(16), 0), 16, "2048 threads");
    }

    #[test]
    fn bounds_are_those_of_the_budget() {
        let h200 = &MACHINES[2];
        let per_byte = PerByte {
            traffic: 1.0,
            instructions: 0.2149,
            wavefronts: 1.0 / 128.0,
        };
        let bounds = h200.bounds(&per_byte, 23_000.0);
        assert_eq!(bounds.memory, 4.3e12);
        // 4 instructions a clock for 18.6 bytes.
        assert!((bounds.issue / 4.3e12 - 1.0).abs() < 1e-3, "{bounds:?}");
        assert!((bounds.in_flight / 4.3e12 - 1.0).abs() < 0.01, "{bounds:?}");
        assert_eq!(bounds.least(), bounds.issue.min(bounds.memory));
    }
}
