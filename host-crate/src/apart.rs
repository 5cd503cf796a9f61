//! Whether the rows of two tensors share memory.

use crate::{Error, Op};

/// Where the rows of a tensor lie, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    address: u64,
    /// (stride, count), from the largest stride down; dimensions with one row are left out.
    dims: Vec<(i128, i128)>,
    /// Bytes per row.
    row: i128,
    empty: bool,
}

impl Extent {
    /// Rows of `row` elements at `address`; `dims` are (stride, count), strides in elements.
    pub(crate) fn new(
        address: u64,
        dims: &[(usize, usize)],
        row: usize,
        element_bytes: usize,
    ) -> Self {
        let bytes = |elements: usize| elements as i128 * element_bytes as i128;
        let several = dims.iter().filter(|&&(_, count)| count > 1);
        let mut several: Vec<_> = several
            .map(|&(stride, count)| (bytes(stride), count as i128))
            .collect();
        several.sort_unstable_by(|a, b| b.cmp(a));
        Self {
            address,
            dims: several,
            row: bytes(row),
            empty: row == 0 || dims.iter().any(|&(_, count)| count == 0),
        }
    }

    /// Address of the first row.
    #[cfg(feature = "cuda")]
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Bytes from the first row's start to the last one's end.
    #[cfg(feature = "cuda")]
    pub(crate) fn bytes(&self) -> i128 {
        end(&self.dims, self.row)
    }

    /// Whether no byte belongs to a row of both. Certain where the strides that both have, from the
    /// largest down, step over all that the smaller ones reach; other tensors count as apart only if
    /// one ends before the other starts.
    fn is_apart(&self, other: &Self) -> bool {
        // Addresses wrap: a cache's first block may lie outside memory where only later ones are used.
        let delta = other.address.wrapping_sub(self.address) as i64;
        let (a, b) = ((&*self.dims, self.row), (&*other.dims, other.row));
        self.empty || other.empty || apart(delta.into(), a, b)
    }
}

fn end(dims: &[(i128, i128)], row: i128) -> i128 {
    dims.iter()
        .fold(row, |sum, &(stride, count)| sum + (count - 1) * stride)
}

/// (stride, count) of each dimension, and bytes per row.
type Rows<'a> = (&'a [(i128, i128)], i128);

/// `b` starts `delta` bytes after `a`.
fn apart(delta: i128, a: Rows<'_>, b: Rows<'_>) -> bool {
    if delta >= end(a.0, a.1) || -delta >= end(b.0, b.1) {
        return true;
    }
    let ([(stride, n), a_dims @ ..], [(other, m), b_dims @ ..]) = (a.0, b.0) else {
        return false;
    };
    let (a, b) = ((a_dims, a.1), (b_dims, b.1));
    if stride != other || end(a.0, a.1) > *stride || end(b.0, b.1) > *stride {
        return false;
    }
    // Step i of `a` and step i + k of `b` are delta + k · stride bytes apart: less than a stride for
    // two values of k, if there are such steps.
    let near = delta.rem_euclid(*stride);
    let k = -delta.div_euclid(*stride);
    let apart_at = |k: i128, delta| !(-n < k && k < *m) || apart(delta, a, b);
    apart_at(k, near) && apart_at(k - 1, near - stride)
}

/// Refuses two tensors of a call that share rows.
pub(crate) fn check_apart(
    op: Op,
    (argument, rows): (impl ToString, &Extent),
    (other, other_rows): (impl ToString, &Extent),
) -> Result<(), Error> {
    if rows.is_apart(other_rows) {
        return Ok(());
    }
    Err(Error::TensorsOverlap {
        op,
        argument: argument.to_string(),
        address: rows.address,
        other: other.to_string(),
        other_address: other_rows.address,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const ROW: usize = 2;

    /// Every element of every row, in bytes: elements have one.
    fn elements(address: u64, dims: &[(usize, usize)]) -> HashSet<u64> {
        let mut starts = vec![address];
        for &(stride, count) in dims {
            let steps = |start| (0..count).map(move |i| start + (i * stride) as u64);
            starts = starts.into_iter().flat_map(steps).collect();
        }
        let row = |start| (0..ROW as u64).map(move |i| start + i);
        starts.into_iter().flat_map(row).collect()
    }

    fn found(a: u64, b: u64, dims: [&[(usize, usize)]; 2]) -> bool {
        Extent::new(a, dims[0], ROW, 1).is_apart(&Extent::new(b, dims[1], ROW, 1))
    }

    fn truth(a: u64, b: u64, dims: [&[(usize, usize)]; 2]) -> bool {
        elements(a, dims[0]).is_disjoint(&elements(b, dims[1]))
    }

    /// Strides that step over what the smaller ones reach, and gaps.
    fn nested() -> impl Strategy<Value = Vec<(usize, usize)>> {
        proptest::collection::vec(
            (prop_oneof![1 => Just(0usize), 9 => 1usize..5], 0usize..8),
            0..4,
        )
        .prop_map(|sizes| {
            let mut end = ROW;
            let dim = |(count, gap)| {
                let stride = end + gap;
                end += usize::saturating_sub(count, 1) * stride;
                (stride, count)
            };
            sizes.into_iter().map(dim).collect()
        })
    }

    proptest! {
        #[test]
        fn tensors_of_the_same_strides_are_apart_exactly_if_no_element_is_shared(
            dims in nested(), a in 0u64..150, b in 0u64..150,
        ) {
            prop_assert_eq!(found(a, b, [&dims; 2]), truth(a, b, [&dims; 2]));
        }

        #[test]
        fn tensors_of_any_strides_that_share_an_element_are_not_apart(
            first in proptest::collection::vec((0usize..12, 0usize..4), 0..4),
            second in proptest::collection::vec((0usize..12, 0usize..4), 0..4),
            a in 0u64..40, b in 0u64..40,
        ) {
            let dims = [&first[..], &second];
            prop_assert!(!found(a, b, dims) || truth(a, b, dims));
        }
    }

    #[test]
    fn halves_of_one_pool_are_apart_in_every_order_and_mixed() {
        // 5 blocks of 4 tokens, 3 heads of 2 elements.
        let dims = |block, token, head| [(block, 5), (token, 4), (head, 3)];
        let (nhd, hnd) = (dims(48, 6, 2), dims(48, 2, 8));
        for (half, dims) in [
            (24, [&nhd; 2]),
            (24, [&nhd, &hnd]),
            (120, [&dims(24, 6, 2); 2]),
            (6, [&dims(48, 12, 2); 2]),
            (2, [&dims(48, 12, 4); 2]),
        ] {
            let dims = dims.map(|dims| &dims[..]);
            assert!(found(1000, 1000 + half, dims), "{half}");
            assert!(found(1000 + half, 1000, dims), "{half}");
            assert!(!found(1000, 1000 + half - 1, dims), "{half}");
            assert!(!found(1000, 1000, dims), "{half}");
        }
    }
}
