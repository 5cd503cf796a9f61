//! Where the spaces lie in the generic address space.

use crate::code::MemSpace;
use crate::memory::GLOBAL_BASE;

const SHARED: u64 = 0x1000_0000_0000;
const LOCAL: u64 = 0x2000_0000_0000;
const PARAM: u64 = 0x3000_0000_0000;
const SIZE: u64 = 1 << 32;

/// What is added to an address of the space to make it generic; `None` for global memory.
pub(crate) fn base(space: MemSpace) -> Option<u64> {
    match space {
        MemSpace::Shared => Some(SHARED),
        MemSpace::Local => Some(LOCAL),
        MemSpace::Param => Some(PARAM),
        MemSpace::Global | MemSpace::Generic => None,
    }
}

/// The space of a generic address, and the address in it.
#[inline]
pub(crate) fn classify(address: u64) -> (MemSpace, u64) {
    if address >= GLOBAL_BASE {
        return (MemSpace::Global, address);
    }
    for (space, start) in [
        (MemSpace::Shared, SHARED),
        (MemSpace::Local, LOCAL),
        (MemSpace::Param, PARAM),
    ] {
        if address.wrapping_sub(start) < SIZE {
            return (space, address - start);
        }
    }
    (MemSpace::Global, address)
}
