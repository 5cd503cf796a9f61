//! Calls inside a captured CUDA graph, replayed with other lengths and tables.

use std::ptr::null_mut;

use cust::memory::CopyDestination;
use cust::stream::Stream;
use cust::sys;

use super::{cuda, output, stream};
use crate::backend::cuda::{Tensors, get};
use crate::batch::Batch;
use crate::case::Case;
use crate::compare::close_to_exact;
use paged_attention::DType;

/// A graph that can be launched.
pub struct Graph(sys::CUgraph, sys::CUgraphExec);

impl Graph {
    /// What `work` gives to a stream.
    pub fn capture(stream: &Stream, work: impl FnOnce()) -> Self {
        let mut graph = Self(null_mut(), null_mut());
        // Global mode would forbid the other tests, on other threads, to allocate meanwhile.
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is live; handles are written to live pointers.
        unsafe {
            check(sys::cuStreamBeginCapture_v2(stream.as_inner(), mode));
            work();
            check(sys::cuStreamEndCapture(stream.as_inner(), &mut graph.0));
            let (node, log) = (null_mut(), null_mut());
            check(sys::cuGraphInstantiate_v2(
                &mut graph.1,
                graph.0,
                node,
                log,
                0,
            ));
        }
        graph
    }

    pub fn launch(&self, stream: &Stream) {
        // SAFETY: graph and stream are live, and so is what the graph's launches use.
        check(unsafe { sys::cuGraphLaunch(self.1, stream.as_inner()) });
        stream.synchronize().unwrap();
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made in `capture`, and not used any more.
        unsafe {
            let _ = sys::cuGraphExecDestroy(self.1);
            let _ = sys::cuGraphDestroy(self.0);
        }
    }
}

#[track_caller]
fn check(result: sys::CUresult) {
    assert_eq!(result as u32, 0, "{result:?}");
}

/// Nothing is allocated, copied or waited for in a call: the driver would end the capture.
#[test]
fn a_captured_call_serves_other_lengths_and_tables_up_to_the_capacity() {
    cuda().enter();
    // Capacity for 70 tokens in splits of 16; other tables name other blocks of the same pool.
    let case = Case {
        spare_capacity: 30,
        spare_columns: 3,
        ..Case::new(DType::F32, 64, &[5, 40]).split(16)
    };
    let first = Batch::new(&case);
    let other = Case {
        lens: vec![70, 0],
        spare_capacity: 0,
        spare_columns: 1,
        spare_blocks: first.num_blocks - 5,
        seed: 2,
        block_seed: 9,
        ..case.clone()
    };
    let second = Batch::new(&other);
    assert_eq!(first.table_stride, second.table_stride);
    assert_eq!(first.plan, second.plan);

    let stream = stream();
    let mut tensors = Tensors::<f32>::upload(&first);
    cuda().backend.prepare(&first.plan).unwrap();
    let graph = Graph::capture(&stream, || {
        tensors.launch(&cuda().backend, &stream, &first).unwrap();
    });
    let unwritten = get(&tensors.out)
        .iter()
        .all(|&x| f32::from_bits(x).is_nan());
    assert!(unwritten, "run although captured");
    graph.launch(&stream);
    close_to_exact(cuda(), &first, &output(&tensors, &first)).unwrap();

    let next = Tensors::<f32>::upload(&second);
    tensors.q.copy_from(&next.q).unwrap();
    tensors.pools[0].copy_from(&next.pools[0]).unwrap();
    tensors.pools[1].copy_from(&next.pools[1]).unwrap();
    tensors.table.copy_from(&next.table).unwrap();
    tensors.lens.copy_from(&next.lens).unwrap();
    graph.launch(&stream);
    close_to_exact(cuda(), &second, &output(&tensors, &second)).unwrap();
}
