//! Pairs and lengths on a CUDA device, which are set again: what captured calls find in them, and whose
//! context they are of.

use paged_attention::cuda::{CudaBackend, CudaTable};

use super::device::{holds, set_up};
use super::runner_cuda::Buffers;
use super::world::{Call, Table, World};
use crate::backend::cuda::{cuda, put, stream};
use crate::cuda::graph::Graph;
use crate::cuda::{other_context, within};

/// Replays a graph; the result is as after a call.
#[track_caller]
fn replay(graph: &Graph, world: &mut World, buffers: &Buffers<u16>, call: &Call<'_>) {
    let expected = world.after(call);
    graph.launch(&stream());
    buffers.download(world);
    world.same(&expected).unwrap();
}

#[test]
fn a_captured_copy_serves_other_pairs_and_no_other_number() {
    let backend = &cuda().backend;
    let (mut world, sizes, buffers, caches, _) = set_up();
    let mut slices = buffers.slices(&caches);
    let mut views = buffers.caches_mut(&mut slices, &caches);
    let table = backend.cache_table(&views).unwrap();
    let mut pairs = backend.pairs(&sizes, 3).unwrap();
    // What runs at once binds nothing.
    let stream = stream();
    pairs.set(&[[0, 1], [2, 3], [4, 5]]).unwrap();
    backend
        .copy_blocks(&stream, &sizes, &mut views, &table, &pairs)
        .unwrap();
    stream.synchronize().unwrap();
    buffers.download(&mut world);
    pairs.set(&[[0, 4], [1, 5]]).unwrap();
    let graph = Graph::capture(&stream, || {
        let copied = backend.copy_blocks(&stream, &sizes, &mut views, &table, &pairs);
        copied.unwrap();
    });
    let caches = &caches;
    for list in [[[0, 4], [1, 5]], [[4, 1], [3, 2]], [[5, 0], [5, 3]]] {
        let call = Call::Copy {
            caches,
            pairs: &list,
        };
        pairs.set(&list).unwrap();
        replay(&graph, &mut world, &buffers, &call);
        for other in [&[][..], &[[3, 5]], &[[0, 1], [2, 3], [4, 5]]] {
            assert_eq!(
                pairs.set(other).unwrap_err().to_string(),
                format!("copy_blocks: pairs has length {}, must have 2", other.len())
            );
        }
        assert_eq!(pairs.len(), 2);
        replay(&graph, &mut world, &buffers, &call);
    }
}

/// Two sequences in a table of one column.
fn table() -> Table {
    Table {
        entries: vec![4, 2],
        num_seqs: 2,
        width: 1,
        stride: 1,
    }
}

#[test]
fn a_captured_gather_serves_fewer_and_shorter_sequences_and_no_others() {
    let backend = &cuda().backend;
    let (mut world, sizes, buffers, caches, rows) = set_up();
    let (from, mut to) = (buffers.slices(&caches), buffers.slices(&rows));
    let table = table();
    let entries = put(&table.entries);
    let mut lengths = backend.lengths(3).unwrap();
    lengths.set(&[2, 3]).unwrap();
    backend.prepare_cache().unwrap();
    let stream = stream();
    let graph = Graph::capture(&stream, || {
        let gathered = backend.gather_cache(
            &stream,
            &sizes,
            buffers.caches(&from, &caches),
            (&CudaTable::new(&*entries, 2, 1), &lengths),
            buffers.rows_mut(&mut to, &rows),
        );
        gathered.unwrap();
    });
    // Of [2, 3], 5 would stand behind the starts of [3], and before those of [1].
    for lens in [&[2, 3][..], &[3], &[3, 2], &[1], &[0, 3], &[]] {
        lengths.set(lens).unwrap();
        let call = Call::Gather {
            caches: &caches,
            table: &table,
            lens,
            rows: &rows,
        };
        replay(&graph, &mut world, &buffers, &call);
        for (more, found) in [
            (&[1, 1, 1][..], "num_seqs = 3, must be between 0 and 2"),
            (&[3, 3], "num_tokens = 6, must be between 0 and 5"),
            (&[4], "max_seq_len = 4, must be between 0 and 3"),
        ] {
            let error = lengths.set(more).unwrap_err();
            assert_eq!(error.to_string(), format!("gather_cache: {found}"));
        }
        assert_eq!(lengths.num_seqs(), lens.len());
        replay(&graph, &mut world, &buffers, &call);
    }
}

#[test]
fn pairs_addresses_and_lengths_of_another_context_are_refused() {
    cuda().enter();
    let backend = &cuda().backend;
    let context = other_context();
    let theirs = within(&context, || {
        // SAFETY: the context is live, and outlives the back end.
        unsafe { CudaBackend::from_raw_context(crate::cuda::handle()) }.unwrap()
    });
    let (mut world, sizes, buffers, caches, rows) = set_up();
    let before = world.buffers.clone();
    let mut slices = buffers.slices(&caches);
    let mut views = buffers.caches_mut(&mut slices, &caches);
    let [pairs, foreign_pairs] = [backend, &theirs].map(|backend| {
        let mut pairs = backend.pairs(&sizes, 1).unwrap();
        pairs.set(&[[0, 5]]).unwrap();
        pairs
    });
    let tables = [backend, &theirs].map(|backend| backend.cache_table(&views).unwrap());
    let stream = stream();
    let refusal = |argument: &str| {
        format!("{argument} belongs to another CUDA context, must belong to the back end's")
    };
    for (table, pairs, argument) in [
        (&tables[0], &foreign_pairs, "copy_blocks: pairs"),
        (&tables[1], &pairs, "copy_blocks: caches"),
    ] {
        let copied = backend.copy_blocks(&stream, &sizes, &mut views, table, pairs);
        assert_eq!(copied.unwrap_err().to_string(), refusal(argument));
    }
    let (from, mut to) = (buffers.slices(&caches), buffers.slices(&rows));
    let entries = put(&table().entries);
    let mut lengths = theirs.lengths(2).unwrap();
    lengths.set(&[2, 3]).unwrap();
    let gathered = backend.gather_cache(
        &stream,
        &sizes,
        buffers.caches(&from, &caches),
        (&CudaTable::new(&*entries, 2, 1), &lengths),
        buffers.rows_mut(&mut to, &rows),
    );
    let error = gathered.unwrap_err().to_string();
    assert_eq!(error, refusal("gather_cache: seq_lens"));
    holds(&stream, &buffers, &mut world, &before);
    // What belongs to the context ends before it.
    drop((tables, foreign_pairs, lengths, theirs));
}
