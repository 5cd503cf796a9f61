//! What only a CUDA device can show of the operations: other contexts, captured graphs, raw addresses,
//! and buffers that do not fit.

use cust::stream::Stream;
use paged_attention::cuda::{
    CudaBackend, CudaCacheMut, CudaRows, CudaRowsMut, CudaSlots, CudaTable,
};
use paged_attention::{
    CacheLaunch, CacheLayout, CacheSizes, CacheStrides, DeviceCache, DeviceRows, DeviceTable,
    Error, Op,
};

use super::case::CacheCase;
use super::runner::{cache_strides, row_strides, validate};
use super::runner_cuda::{Buffers, run};
use super::world::{Call, Place, Table, World};
use crate::backend::DTYPES;
use crate::backend::cuda::{cuda, put, stream};
use crate::cuda::graph::Graph;
use crate::cuda::{other_context, within};

/// Caches of 6 blocks and rows for 5 tokens, K's and V's, on the host and on the device.
pub(super) fn set_up() -> (World, CacheSizes, Buffers<u16>, [Place; 2], [Place; 2]) {
    cuda().enter();
    let mut world = World::new(&CacheCase::new(DTYPES[1], 6, 4));
    let (caches, rows) = (world.caches(false), world.rows(5));
    let (sizes, buffers) = (world.case.sizes(), Buffers::upload(&world));
    (world, sizes, buffers, caches, rows)
}

/// Waits for a stream, and compares every byte with `expected`.
#[track_caller]
pub(super) fn holds(
    stream: &Stream,
    buffers: &Buffers<u16>,
    world: &mut World,
    expected: &[Vec<u8>],
) {
    stream.synchronize().unwrap();
    buffers.download(world);
    world.same(expected).unwrap();
}

#[test]
fn a_captured_write_serves_other_slots_and_fewer() {
    let backend = &cuda().backend;
    let (mut world, sizes, buffers, caches, rows) = set_up();
    let (from, mut to) = (buffers.slices(&rows), buffers.slices(&caches));
    let mut slots = backend.slots(&sizes, 5).unwrap();
    slots.set(&[-1; 5]).unwrap();
    backend.prepare_cache().unwrap();
    let stream = stream();
    let graph = Graph::capture(&stream, || {
        let written = backend.reshape_and_cache(
            &stream,
            &sizes,
            buffers.rows(&from, &rows),
            buffers.caches_mut(&mut to, &caches),
            &slots,
        );
        written.unwrap();
    });
    for mapping in [&[3, 20, -1, 7, 0][..], &[23, 1], &[]] {
        slots.set(mapping).unwrap();
        let call = Call::Write {
            rows: &rows,
            caches: &caches,
            slots: mapping,
        };
        let expected = world.after(&call);
        graph.launch(&stream);
        buffers.download(&mut world);
        world.same(&expected).unwrap();
    }
}

#[test]
fn raw_launches_give_the_bytes_of_the_safe_interface() {
    let backend = &cuda().backend;
    let (mut world, sizes, buffers, caches, rows) = set_up();
    let case = world.case.clone();
    let address = |place: &Place| buffers.slice(place).as_device_ptr().as_raw();
    let device_cache = |place: &Place| DeviceCache {
        address: address(place),
        strides: cache_strides(&case, place),
    };
    let device_rows = rows.each_ref().map(|place| {
        let (_, token_stride, head_stride) = row_strides(&case, place);
        DeviceRows {
            address: address(place),
            token_stride,
            head_stride,
        }
    });
    let raw = caches.each_ref().map(device_cache);
    let stream = stream();
    let mut run = |launch: Result<Option<CacheLaunch>, Error>, call: &Call<'_>| {
        validate(&case, call).unwrap();
        let expected = world.after(call);
        let launch = launch.unwrap().expect("a launch");
        // SAFETY: the stream and all buffers are live until it has been waited for; the addresses
        // reach as far as the case says, and the integers have been checked.
        unsafe { backend.launch_cache(stream.as_inner(), &launch) }.unwrap();
        holds(&stream, &buffers, &mut world, &expected);
    };
    let slots = [3, -1, 7];
    let mapping = put(&slots);
    run(
        sizes.reshape_and_cache(3, device_rows, raw, mapping.as_device_ptr().as_raw()),
        &Call::Write {
            rows: &rows,
            caches: &caches,
            slots: &slots,
        },
    );
    let pairs = [[0, 4], [1, 5]];
    let list = put(pairs.as_flattened());
    let table = put(&raw.map(|cache| cache.address));
    let (table, list) = (
        table.as_device_ptr().as_raw(),
        list.as_device_ptr().as_raw(),
    );
    run(
        sizes.copy_blocks((2, table), raw[0].strides, (2, list)),
        &Call::Copy {
            caches: &caches,
            pairs: &pairs,
        },
    );
    let table = Table {
        entries: vec![4, 5],
        num_seqs: 1,
        width: 2,
        stride: 2,
    };
    let (entries, starts) = (put(&table.entries), put(&CacheSizes::starts(&[5]).unwrap()));
    let on_device = DeviceTable {
        address: entries.as_device_ptr().as_raw(),
        row_stride: 2,
    };
    let starts = (on_device, starts.as_device_ptr().as_raw());
    run(
        sizes.gather_cache((1, 5), raw, starts, device_rows),
        &Call::Gather {
            caches: &caches,
            table: &table,
            lens: &[5],
            rows: &rows,
        },
    );
}

/// An argument in place of the right one.
enum Change<'a> {
    Sizes(CacheSizes),
    K(CudaRows<'a>),
    V(CudaRows<'a>),
    KCache(CudaCacheMut<'a>),
    VCache(CudaCacheMut<'a>),
    Slots(CudaSlots),
}

/// How a call with one wrong argument is refused; no byte has changed.
#[track_caller]
fn refused_write(change: Change<'_>) -> String {
    let backend = &cuda().backend;
    let (mut world, mut sizes, buffers, caches, rows) = set_up();
    let before = world.buffers.clone();
    let (from, mut to) = (buffers.slices(&rows), buffers.slices(&caches));
    let stream = stream();
    let mut slots = backend.slots(&sizes, 4).unwrap();
    slots.set(&[0, 1, 2, 3]).unwrap();
    let mut from = buffers.rows(&from, &rows);
    let mut to = buffers.caches_mut(&mut to, &caches);
    match change {
        Change::Sizes(changed) => sizes = changed,
        Change::K(rows) => from[0] = rows,
        Change::V(rows) => from[1] = rows,
        Change::KCache(cache) => to[0] = cache,
        Change::VCache(cache) => to[1] = cache,
        Change::Slots(changed) => slots = changed,
    }
    let error = backend.reshape_and_cache(&stream, &sizes, from, to, &slots);
    let error = error.expect_err("must be refused");
    holds(&stream, &buffers, &mut world, &before);
    error.to_string()
}

#[test]
fn shapes_that_do_not_fit_are_refused_with_the_argument() {
    cuda().enter();
    let [half, float] = [DTYPES[1], DTYPES[0]];
    let sizes =
        |dtype, num_blocks, d| Change::Sizes(CacheSizes::new(dtype, num_blocks, 4, 2, d).unwrap());
    assert_eq!(
        refused_write(sizes(half, 6, 128)),
        "reshape_and_cache: k_cache has head_dim 64, must have 128"
    );
    assert_eq!(
        refused_write(sizes(half, 7, 64)),
        "reshape_and_cache: slot_mapping has num_blocks 6, must have 7"
    );
    assert_eq!(
        refused_write(sizes(float, 6, 64)),
        "reshape_and_cache: k_cache has elements of 2 bytes, must have elements of 4"
    );
    let short = put(&[0u16; 511]);
    assert_eq!(
        refused_write(Change::V(CudaRows::contiguous(&*short, 5, 2, 64))),
        "reshape_and_cache: v holds 511 elements, must hold at least 640 for num_tokens 5, \
         num_kv_heads 2, head_dim 64, token_stride 128, head_stride 64"
    );
    assert_eq!(
        refused_write(Change::V(CudaRows::contiguous(&*short, 3, 2, 64))),
        "reshape_and_cache: v has num_tokens 3, must have 5"
    );
    let mut buffer = put(&[0u16; 4096]);
    let strides = CacheStrides {
        token: 132,
        ..CacheLayout::Nhd.strides(4, 2, 64)
    };
    let skewed = CudaCacheMut::with_strides(&mut *buffer, 6, 4, 2, 64, strides);
    let text = refused_write(Change::VCache(skewed));
    assert!(
        text.starts_with("reshape_and_cache: v_cache.token_stride = 132 elements"),
        "{text}"
    );
    let mut odd = buffer.index(1..);
    let odd = CudaCacheMut::dense(&mut odd, CacheLayout::Nhd, 6, 4, 2, 64);
    let text = refused_write(Change::KCache(odd));
    assert!(
        text.starts_with("reshape_and_cache: k_cache starts at address")
            && text.ends_with("must be a multiple of 16 bytes"),
        "{text}"
    );
}

#[test]
fn integers_that_do_not_fit_are_refused_and_what_was_set_stays() {
    cuda().enter();
    let backend = &cuda().backend;
    let sizes = CacheSizes::new(DTYPES[1], 6, 4, 2, 64).unwrap();
    let mut slots = backend.slots(&sizes, 2).unwrap();
    assert!(slots.is_empty());
    slots.set(&[5, -1]).unwrap();
    assert_eq!(
        slots.set(&[0, 1, 2]).unwrap_err().to_string(),
        "reshape_and_cache: slot_mapping holds 2 elements, must hold at least 3 for slots 3"
    );
    assert_eq!(
        slots.set(&[24]).unwrap_err().to_string(),
        "reshape_and_cache: slot_mapping[0] = 24, must be < 6 blocks × block_size 4"
    );
    assert_eq!(slots.len(), 2);

    let mut pairs = backend.pairs(&sizes, 1).unwrap();
    pairs.set(&[[0, 5]]).unwrap();
    assert_eq!(
        pairs.set(&[[0, 6]]).unwrap_err().to_string(),
        "copy_blocks: the destination of pairs[0] = 6, must be >= 0 and < num_blocks 6"
    );
    assert_eq!(
        pairs.set(&[[0, 1], [2, 3]]).unwrap_err().to_string(),
        "copy_blocks: pairs holds 1 elements, must hold at least 2 for pairs 2"
    );
    assert_eq!(pairs.len(), 1);

    let mut lengths = backend.lengths(3).unwrap();
    lengths.set(&[7, 0, 9]).unwrap();
    assert_eq!(
        lengths.set(&[7, -1]).unwrap_err().to_string(),
        "gather_cache: seq_lens[1] = -1, must be at least 0"
    );
    assert_eq!(
        lengths.set(&[1; 4]).unwrap_err().to_string(),
        "gather_cache: seq_lens holds 3 elements, must hold at least 4 for num_seqs 4"
    );
    assert_eq!((lengths.num_seqs(), lengths.num_tokens()), (3, 16));
}

#[test]
fn room_for_more_than_a_launch_takes_is_refused_before_it_is_looked_for() {
    cuda().enter();
    let backend = &cuda().backend;
    let sizes = CacheSizes::new(DTYPES[1], 6, 4, 2, 64).unwrap();
    for capacity in [1 << 31, usize::MAX / 16 + 1, usize::MAX] {
        let refused = |error: Option<Error>, op, argument| {
            let (value, min, max) = (capacity as u64, 0, i32::MAX as u64);
            let refusal = Error::OutOfRange {
                op,
                argument,
                value,
                min,
                max,
            };
            assert_eq!(error, Some(refusal));
        };
        let slots = backend.slots(&sizes, capacity);
        refused(slots.err(), Op::ReshapeAndCache, "capacity");
        let pairs = backend.pairs(&sizes, capacity);
        refused(pairs.err(), Op::CopyBlocks, "capacity");
        let lengths = backend.lengths(capacity);
        refused(lengths.err(), Op::GatherCache, "max_seqs");
    }
}

/// Slices of one buffer may overlap, which Rust's borrows do not see.
#[test]
fn the_same_memory_as_keys_and_as_values_is_refused_where_it_is_written_and_fine_where_it_is_read()
{
    let backend = &cuda().backend;
    let (mut world, sizes, buffers, caches, rows) = set_up();
    let address = |place: &Place| buffers.slice(place).as_device_ptr().as_raw();
    let refusal = |op, [argument, other]: [&str; 2], place| Error::TensorsOverlap {
        op,
        argument: argument.into(),
        address: address(place),
        other: other.into(),
        other_address: address(place),
    };
    let same = [caches[0].clone(), caches[0].clone()];
    let mut slices = buffers.slices(&same);
    let mut views = buffers.caches_mut(&mut slices, &same);
    let table = backend.cache_table(&views).unwrap();
    let mut pairs = backend.pairs(&sizes, 1).unwrap();
    pairs.set(&[[0, 5]]).unwrap();
    let stream = stream();
    let copied = backend.copy_blocks(&stream, &sizes, &mut views, &table, &pairs);
    let names = ["caches[1]", "caches[0]"];
    assert_eq!(copied, Err(refusal(Op::CopyBlocks, names, &caches[0])));

    let mut slots = backend.slots(&sizes, 1).unwrap();
    slots.set(&[7]).unwrap();
    let from = buffers.slices(&rows);
    let from = buffers.rows(&from, &rows);
    let written = backend.reshape_and_cache(&stream, &sizes, from, views, &slots);
    let names = ["v_cache", "k_cache"];
    assert_eq!(
        written,
        Err(refusal(Op::ReshapeAndCache, names, &caches[0]))
    );

    let blocks = Table {
        entries: vec![3],
        num_seqs: 1,
        width: 1,
        stride: 1,
    };
    let entries = put(&blocks.entries);
    let mut lengths = backend.lengths(1).unwrap();
    lengths.set(&[3]).unwrap();
    let gather = |to: &[Place; 2]| {
        let (from, mut to) = (buffers.slices(&same), buffers.slices(to));
        backend.gather_cache(
            &stream,
            &sizes,
            buffers.caches(&from, &same),
            (&CudaTable::new(&*entries, 1, 1), &lengths),
            to.each_mut()
                .map(|rows| CudaRowsMut::contiguous(rows, 3, 2, 64)),
        )
    };
    let expected = refusal(Op::GatherCache, ["v", "k"], &rows[1]);
    assert_eq!(gather(&[rows[1].clone(), rows[1].clone()]), Err(expected));
    let before = world.buffers.clone();
    holds(&stream, &buffers, &mut world, &before);

    gather(&rows).unwrap();
    let call = Call::Gather {
        caches: &same,
        table: &blocks,
        lens: &[3],
        rows: &rows,
    };
    let expected = world.after(&call);
    holds(&stream, &buffers, &mut world, &expected);
}

#[test]
fn caches_that_are_not_the_tables_are_refused() {
    let backend = &cuda().backend;
    let (mut world, sizes, buffers, caches, _) = set_up();
    let before = world.buffers.clone();
    let mut slices = buffers.slices(&caches);
    let mut views = buffers.caches_mut(&mut slices, &caches);
    let table = backend.cache_table(&views).unwrap();
    let mut pairs = backend.pairs(&sizes, 1).unwrap();
    pairs.set(&[[0, 5]]).unwrap();
    let stream = stream();
    let mut refused = |views: &mut [CudaCacheMut<'_>]| {
        let copied = backend.copy_blocks(&stream, &sizes, views, &table, &pairs);
        holds(&stream, &buffers, &mut world, &before);
        copied.unwrap_err()
    };
    assert_eq!(
        refused(&mut views[..1]).to_string(),
        "copy_blocks: caches has length 1, must have 2"
    );
    views.swap(0, 1);
    let address = |i: usize| buffers.slice(&caches[i]).as_device_ptr().as_raw();
    let error = refused(&mut views);
    let (op, property) = (Op::CopyBlocks, "address");
    assert_eq!(
        error,
        Error::CacheMismatch {
            op,
            index: 0,
            property,
            found: address(1),
            expected: address(0)
        }
    );
    assert_eq!(
        error.to_string(),
        format!(
            "copy_blocks: caches[0] has address {}, must have {}",
            address(1),
            address(0)
        )
    );
    // Another layout, thus other strides.
    views.swap(0, 1);
    let mut slice = buffers.slice(&caches[1]);
    views[1] = CudaCacheMut::dense(&mut slice, CacheLayout::Hnd, 6, 4, 2, 64);
    assert_eq!(
        refused(&mut views).to_string(),
        "copy_blocks: caches[1] has token_stride 64, must have 128"
    );
}

/// The table is on the device alone: its shape is known, its entries are not looked at.
#[test]
fn gathers_that_do_not_fit_are_refused() {
    let backend = &cuda().backend;
    let (mut world, sizes, buffers, caches, rows) = set_up();
    let before = world.buffers.clone();
    let (from, mut to) = (buffers.slices(&caches), buffers.slices(&rows));
    let table = put(&[0, 1, 2, 3]);
    let stream = stream();
    let mut lengths = backend.lengths(2).unwrap();
    let mut refused = |lens: &[i32], columns, (rows, token_stride)| {
        lengths.set(lens).unwrap();
        let gathered = backend.gather_cache(
            &stream,
            &sizes,
            buffers.caches(&from, &caches),
            (&CudaTable::new(&*table, 2, columns), &lengths),
            to.each_mut()
                .map(|rows_of| CudaRowsMut::with_strides(rows_of, rows, 2, 64, token_stride, 64)),
        );
        holds(&stream, &buffers, &mut world, &before);
        gathered.unwrap_err().to_string()
    };
    assert_eq!(
        refused(&[2, 3], 2, (4, 128)),
        "gather_cache: k has num_tokens 4, must have 5"
    );
    assert_eq!(
        refused(&[5], 2, (5, 128)),
        "gather_cache: block_table has num_seqs 2, must have 1"
    );
    assert_eq!(
        refused(&[0, 5], 1, (5, 128)),
        "gather_cache: seq_lens[1] = 5, must be at most 4 (block table of 1 columns × block_size 4)"
    );
    assert_eq!(
        refused(&[2, 3], 3, (5, 128)),
        "gather_cache: block_table holds 4 elements, must hold at least 6 for num_seqs 2, \
         max_blocks_per_seq 3, row_stride 3"
    );
    assert_eq!(
        refused(&[2, 3], 2, (5, 64)),
        "gather_cache: out.token_stride = 64 and out.head_stride = 64 make rows overlap, must keep 5 \
         × 2 rows of 64 elements apart"
    );
}

#[test]
fn streams_buffers_and_integers_of_another_context_are_refused() {
    let context = other_context();
    let foreign = |argument: &str| {
        format!(
            "reshape_and_cache: {argument} belongs to another CUDA context, must belong to the back \
             end's"
        )
    };
    let their_rows = within(&context, || put(&[0u16; 640]));
    let rows = CudaRows::contiguous(&*their_rows, 5, 2, 64);
    assert_eq!(refused_write(Change::K(rows)), foreign("k"));
    let mut their_cache = within(&context, || put(&[0u16; 6 * 512]));
    let cache = CudaCacheMut::dense(&mut *their_cache, CacheLayout::Nhd, 6, 4, 2, 64);
    assert_eq!(refused_write(Change::VCache(cache)), foreign("v_cache"));
    let theirs = within(&context, || {
        // SAFETY: the context is live, and outlives the back end.
        unsafe { CudaBackend::from_raw_context(crate::cuda::handle()) }.unwrap()
    });
    let sizes = CacheSizes::new(DTYPES[1], 6, 4, 2, 64).unwrap();
    let mut slots = theirs.slots(&sizes, 4).unwrap();
    slots.set(&[0, 1]).unwrap();
    assert_eq!(refused_write(Change::Slots(slots)), foreign("slot_mapping"));
    // A back end of the other context has nothing to do with this thread's context.
    let (mut world, _, _, caches, rows) = set_up();
    let call = Call::Write {
        rows: &rows,
        caches: &caches,
        slots: &[9, 0],
    };
    let expected = world.after(&call);
    within(&context, || run::<u16>(&theirs, &mut world, &call)).unwrap();
    world.same(&expected).unwrap();
    drop(theirs);
    within(&context, || drop((their_rows, their_cache)));
}
