//! How cache memory is given to sequences.

use paged_attention::pool::{BlockPool, PoolError, SequenceBlocks};

use super::buddy::{Buddy, Region};
use super::trace::Request;

/// Free blocks that admission leaves for the growth of running sequences, 1 in so many.
const WATERMARK: usize = 100;

/// A policy. The contiguous ones reserve, when a request is admitted, all that it may ever need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Blocks of so many tokens, as needed; the latest sequence yields when there are none.
    Paged(usize),
    /// The longest context there is.
    Maximum,
    /// The prompt and the next power of two of the output.
    PowerOfTwo,
    /// Prompt and output, known beforehand.
    Final,
}

impl Policy {
    /// Name in tables and charts.
    pub fn name(self) -> String {
        match self {
            Policy::Paged(block_size) => format!("paged, blocks of {block_size}"),
            Policy::Maximum => "contiguous, maximum".into(),
            Policy::PowerOfTwo => "contiguous, power of two".into(),
            Policy::Final => "contiguous, final length".into(),
        }
    }

    /// Whether K and V are read through a block table.
    pub fn is_paged(self) -> bool {
        matches!(self, Policy::Paged(_))
    }

    /// Slots that a contiguous policy reserves.
    fn reservation(self, request: &Request, max_len: usize) -> usize {
        match self {
            Policy::Maximum => max_len,
            Policy::PowerOfTwo => {
                (request.prompt + request.output.next_power_of_two()).min(max_len)
            }
            Policy::Paged(_) | Policy::Final => request.total(),
        }
    }
}

/// The cache memory under a policy.
pub enum Memory {
    Paged(BlockPool),
    Contiguous {
        policy: Policy,
        max_len: usize,
        buddy: Buddy,
    },
}

/// One sequence's part of it.
pub enum Share {
    Paged(SequenceBlocks),
    Contiguous { region: Region, reserved: usize },
}

/// Slots of a share by what they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Slots {
    /// Keys and values of tokens.
    pub tokens: f64,
    /// Nothing yet; tokens to come.
    pub reserved: f64,
    /// Nothing, ever: reserved beyond the sequence's end, or the rest of its last block.
    pub internal: f64,
}

impl Memory {
    /// `capacity` free slots.
    pub fn new(policy: Policy, capacity: usize, max_len: usize) -> Result<Self, PoolError> {
        Ok(match policy {
            Policy::Paged(block_size) => {
                Memory::Paged(BlockPool::new(capacity / block_size, block_size)?)
            }
            _ => Memory::Contiguous {
                policy,
                max_len,
                buddy: Buddy::new(capacity),
            },
        })
    }

    /// Room for a request of which `tokens` tokens are computed at once; `None` if it has to wait.
    pub fn admit(&mut self, request: &Request, tokens: usize, alone: bool) -> Option<Share> {
        match self {
            Memory::Paged(pool) => {
                let kept = if alone {
                    0
                } else {
                    pool.num_blocks() / WATERMARK
                };
                if tokens.div_ceil(pool.block_size()) + kept > pool.num_available() {
                    return None;
                }
                let mut blocks = SequenceBlocks::new(pool);
                blocks.append(tokens).ok()?;
                Some(Share::Paged(blocks))
            }
            Memory::Contiguous {
                policy,
                max_len,
                buddy,
            } => {
                let reserved = policy.reservation(request, *max_len);
                let region = buddy.allocate(reserved)?;
                Some(Share::Contiguous { region, reserved })
            }
        }
    }

    /// Takes a share back.
    pub fn free(&mut self, share: Share) {
        if let (Memory::Contiguous { buddy, .. }, Share::Contiguous { region, .. }) = (self, share)
        {
            buddy.free(region);
        }
    }
}

impl Share {
    /// Room for one more token; false if there is none.
    pub fn grow(&mut self) -> bool {
        match self {
            Share::Paged(blocks) => blocks.append(1).is_ok(),
            Share::Contiguous { .. } => true,
        }
    }

    /// What the slots hold when the sequence has `tokens` tokens and will have `total`.
    pub fn slots(&self, tokens: usize, total: usize) -> Slots {
        let (reserved, internal) = match self {
            Share::Paged(blocks) => {
                let size = blocks.pool().block_size();
                let slots = blocks.blocks().len() * size;
                let to_come = slots.min(total).saturating_sub(tokens);
                (to_come, slots - tokens - to_come)
            }
            // What the region has beyond the reservation is lost to the allocator: external.
            Share::Contiguous { reserved, .. } => (total - tokens, reserved - total),
        };
        Slots {
            tokens: tokens as f64,
            reserved: reserved as f64,
            internal: internal as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request = Request {
        arrival: 0.0,
        prompt: 100,
        output: 25,
    };

    #[test]
    fn contiguous_policies_reserve_what_they_say() {
        // The paper's example: 25 tokens of output reserve 32.
        for (policy, reserved, region) in [
            (Policy::Maximum, 2048, 2048),
            (Policy::PowerOfTwo, 132, 256),
            (Policy::Final, 125, 128),
        ] {
            let mut memory = Memory::new(policy, 4096, 2048).unwrap();
            let share = memory.admit(&REQUEST, 100, true).unwrap();
            let Share::Contiguous {
                region: found,
                reserved: slots,
            } = &share
            else {
                panic!("a contiguous share")
            };
            assert_eq!(
                (*slots, found.size()),
                (reserved, region),
                "{}",
                policy.name()
            );
            let slots = share.slots(110, 125);
            let expected = Slots {
                tokens: 110.0,
                reserved: 15.0,
                internal: reserved as f64 - 125.0,
            };
            assert_eq!(slots, expected);
            memory.free(share);
            assert!(matches!(&memory, Memory::Contiguous { .. }));
        }
    }

    #[test]
    fn a_paged_share_wastes_less_than_a_block() {
        let mut memory = Memory::new(Policy::Paged(16), 160, 2048).unwrap();
        let mut share = memory.admit(&REQUEST, 100, true).unwrap();
        let found = share.slots(100, 125);
        assert_eq!(
            found,
            Slots {
                tokens: 100.0,
                reserved: 12.0,
                internal: 0.0
            }
        );
        for _ in 100..125 {
            assert!(share.grow());
        }
        assert_eq!(share.slots(125, 125).internal, 3.0);
        assert!(
            memory.admit(&REQUEST, 100, true).is_none(),
            "2 blocks are left"
        );
        memory.free(share);
        assert!(memory.admit(&REQUEST, 160, true).is_some());
    }
}
