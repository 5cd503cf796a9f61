//! Launches and their refusals. What the kernels do is the suite's.

use crate::{CacheLayout, CacheSizes, DType, DeviceCache, DeviceRows, DeviceTable, Error, Op};

#[test]
fn nothing_to_do_launches_nothing() {
    let sizes = CacheSizes::new(DType::F16, 4, 16, 2, 64).unwrap();
    let rows = [DeviceRows {
        address: 0,
        token_stride: 0,
        head_stride: 0,
    }; 2];
    let strides = CacheLayout::Nhd.strides(16, 2, 64);
    let cache = [DeviceCache {
        address: 0,
        strides,
    }; 2];
    let table = DeviceTable {
        address: 0,
        row_stride: 0,
    };
    assert_eq!(sizes.reshape_and_cache(0, rows, cache, 0), Ok(None));
    assert_eq!(sizes.copy_blocks((0, 0), strides, (3, 0)), Ok(None));
    assert_eq!(sizes.copy_blocks((3, 0), strides, (0, 0)), Ok(None));
    assert_eq!(
        sizes.gather_cache((0, 9), cache, (table, 0), rows),
        Ok(None)
    );
    assert_eq!(
        sizes.gather_cache((9, 0), cache, (table, 0), rows),
        Ok(None)
    );
}

#[test]
fn launches_refuse_addresses_strides_and_sizes_that_the_kernels_cannot_take() {
    let sizes = CacheSizes::new(DType::F16, 4, 16, 2, 64).unwrap();
    let op = Op::ReshapeAndCache;
    let strides = CacheLayout::Nhd.strides(16, 2, 64);
    let rows = |address, head_stride| {
        [DeviceRows {
            address,
            token_stride: 128,
            head_stride,
        }; 2]
    };
    let cache = |address| [DeviceCache { address, strides }; 2];
    let refused = |rows, cache, slots| sizes.reshape_and_cache(3, rows, cache, slots).unwrap_err();
    let (argument, alignment) = ("k_cache", 16);
    let expected = Error::BaseNotAligned {
        op,
        argument,
        address: 264,
        alignment,
    };
    assert_eq!(refused(rows(256, 64), cache(264), 256), expected);
    let argument = "slot_mapping";
    assert_eq!(
        refused(rows(256, 64), cache(256), 0),
        Error::NullPointer { op, argument }
    );
    let error = refused(rows(256, 60), cache(256), 256);
    assert!(
        error
            .to_string()
            .starts_with("reshape_and_cache: k.head_stride = 60 elements")
    );

    let error = CacheSizes::new(DType::F16, 1 << 28, 16, 2, 64).unwrap_err();
    assert_eq!(
        error.to_string(),
        "config: num_blocks * block_size = 4294967296, must be between 0 and 2147483647"
    );
    let error = CacheSizes::new(DType::F16, 4, 16, 2, 60).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("cache.row_stride = 60 elements (120 bytes)"),
        "{error}"
    );
    assert!(CacheSizes::new(DType::F32, 0, 1, usize::MAX / 2, 4).is_err());
}

#[test]
fn writes_to_the_same_memory_as_keys_and_as_values_are_refused() {
    let sizes = CacheSizes::new(DType::F16, 4, 16, 2, 64).unwrap();
    let rows = [DeviceRows {
        address: 256,
        token_stride: 128,
        head_stride: 64,
    }; 2];
    let half = 16 * 2 * 64;
    let strides = CacheLayout::Nhd.strides(16, 2, 64);
    let fused = crate::CacheStrides {
        block: 2 * half,
        ..strides
    };
    let write = |strides, v_cache: usize| {
        let cache = |address| DeviceCache { address, strides };
        let caches = [cache(0x10000), cache(0x10000 + 2 * v_cache as u64)];
        sizes.reshape_and_cache(3, rows, caches, 256)
    };
    // Side by side, and as halves of one pool.
    assert!(write(strides, 4 * half).is_ok());
    assert!(write(fused, half).is_ok());
    for (strides, v_cache) in [(strides, 0), (strides, half), (fused, half - 8), (fused, 0)] {
        let (op, argument, other) = (Op::ReshapeAndCache, "v_cache".into(), "k_cache".into());
        let (address, other_address) = (0x10000 + 2 * v_cache as u64, 0x10000);
        let error = write(strides, v_cache).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "reshape_and_cache: v_cache at address {address:#x} shares rows with k_cache at \
                 0x10000, must be apart from it"
            )
        );
        let refusal = Error::TensorsOverlap {
            op,
            argument,
            address,
            other,
            other_address,
        };
        assert_eq!(error, refusal);
    }
}

#[test]
fn starts_are_sums_of_lengths() {
    assert_eq!(CacheSizes::starts(&[]), Ok(vec![0]));
    let most = i32::MAX;
    let sums = vec![0, 3, 3, 3 + i64::from(most), 3 + 2 * i64::from(most)];
    assert_eq!(CacheSizes::starts(&[3, 0, most, most]), Ok(sums));
    let (op, index, value) = (Op::GatherCache, 1, -1);
    let expected = Error::NegativeSeqLen { op, index, value };
    assert_eq!(CacheSizes::starts(&[3, -1]), Err(expected));
}
