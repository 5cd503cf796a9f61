//! How to launch.

/// Geometry of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
}

/// Which faults are looked for. Those not listed here are always on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detectors {
    /// Reads of bytes that nothing has written: global, shared, local.
    pub uninitialised: bool,
    /// Unordered accesses to shared memory, and misuse of `cp.async`.
    pub races: bool,
    /// Barriers that part of the block never reaches because it has exited.
    pub barriers: bool,
    /// Warp instructions executed without all the lanes that they need.
    pub lanes: bool,
    /// Integer division by zero.
    pub division: bool,
}

impl Detectors {
    /// Everything on.
    pub const fn all() -> Self {
        Detectors {
            uninitialised: true,
            races: true,
            barriers: true,
            lanes: true,
            division: true,
        }
    }

    /// Everything off; bounds and alignment are checked all the same.
    pub const fn none() -> Self {
        Detectors {
            uninitialised: false,
            races: false,
            barriers: false,
            lanes: false,
            division: false,
        }
    }
}

impl Default for Detectors {
    fn default() -> Self {
        Self::all()
    }
}

/// Options of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Faults to look for.
    pub detectors: Detectors,
    /// Host threads; `None` for as many as the machine has. Results do not depend on it.
    pub threads: Option<usize>,
    /// Watchdog: warp instructions that one block may execute.
    pub instruction_limit: u64,
    /// Count sectors, bank conflicts and bytes. Instructions are counted in any case.
    pub count_memory: bool,
    /// Report how often each line was executed.
    pub hot_lines: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            detectors: Detectors::all(),
            threads: None,
            instruction_limit: 1 << 32,
            count_memory: true,
            hot_lines: false,
        }
    }
}
