//! Contiguous regions by the buddy method, as the paper assumes of its baselines.

use std::collections::BTreeSet;

/// A range of token slots: sizes are powers of two, and a freed region joins its neighbour.
pub struct Buddy {
    /// Starts of free regions of 2^i slots.
    free: Vec<BTreeSet<usize>>,
}

/// A region of 2^order slots.
#[derive(Debug, PartialEq)]
pub struct Region {
    start: usize,
    order: usize,
}

impl Region {
    /// Slots.
    #[cfg(test)]
    pub fn size(&self) -> usize {
        1 << self.order
    }
}

impl Buddy {
    /// `capacity` free slots.
    pub fn new(capacity: usize) -> Self {
        let mut free = vec![BTreeSet::new(); usize::BITS as usize];
        let mut start = 0;
        // Largest first, so that every region starts at a multiple of its size.
        for order in (0..usize::BITS as usize).rev() {
            if capacity & (1 << order) != 0 {
                free[order].insert(start);
                start += 1 << order;
            }
        }
        Self { free }
    }

    /// A region of at least `slots` slots, if one is free.
    pub fn allocate(&mut self, slots: usize) -> Option<Region> {
        let order = slots.max(1).next_power_of_two().trailing_zeros() as usize;
        let found = (order..self.free.len()).find(|&i| !self.free[i].is_empty())?;
        let start = self.free[found].pop_first()?;
        for half in order..found {
            self.free[half].insert(start + (1 << half));
        }
        Some(Region { start, order })
    }

    /// Takes a region back.
    pub fn free(&mut self, region: Region) {
        let Region {
            mut start,
            mut order,
        } = region;
        while self.free[order].remove(&(start ^ (1 << order))) {
            start &= !(1 << order);
            order += 1;
        }
        self.free[order].insert(start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_powers_of_two_and_do_not_overlap() {
        let mut buddy = Buddy::new(16 + 4);
        let sizes = [3, 8, 4, 2, 1];
        let regions: Vec<_> = sizes.iter().map(|&n| buddy.allocate(n).unwrap()).collect();
        let mut used = [false; 20];
        for (region, &size) in regions.iter().zip(&sizes) {
            assert_eq!(region.size(), size.next_power_of_two());
            for slot in &mut used[region.start..region.start + region.size()] {
                assert!(!std::mem::replace(slot, true));
            }
        }
        assert_eq!(used.iter().filter(|&&slot| slot).count(), 19);
        assert_eq!(buddy.allocate(2), None, "1 slot is left");
    }

    #[test]
    fn freed_neighbours_join() {
        let mut buddy = Buddy::new(16);
        let regions: Vec<_> = (0..16).map(|_| buddy.allocate(1).unwrap()).collect();
        assert_eq!(buddy.allocate(1), None);
        for region in regions {
            buddy.free(region);
        }
        assert_eq!(buddy.allocate(16).unwrap().size(), 16);
    }

    #[test]
    fn free_slots_that_are_scattered_hold_no_large_region() {
        let mut buddy = Buddy::new(4);
        let mut regions: Vec<_> = (0..4).map(|_| buddy.allocate(1).unwrap()).collect();
        buddy.free(regions.remove(2));
        buddy.free(regions.remove(0));
        assert_eq!(buddy.allocate(2), None);
    }
}
