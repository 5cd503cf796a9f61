use crate::api::*;
use crate::{expect, ok};

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`, so that the tests do not forbid each other's calls.
const THREAD_LOCAL: u32 = 1;

#[test]
fn a_captured_launch_runs_when_its_graph_does() {
    let rig = Rig::new();
    let (x, stream) = (upload(&[1, 1]), stream());
    let twice = rig.function("twice");
    ok!(cuStreamBeginCapture_v2(stream, THREAD_LOCAL));
    let mut status = 0;
    ok!(cuStreamIsCapturing(stream, &mut status));
    assert_eq!(status, 1);
    ok!(rig.launch("twice", 32, stream, &mut [x, 2]));
    ok!(rig.launch("twice", 32, stream, &mut [x, 1]));
    let (mut graph, mut exec, mut nodes, mut count) = (0, 0, [0; 2], 2);
    ok!(cuStreamEndCapture(stream, &mut graph));
    assert_eq!(download(x, 2), [1, 1]);
    ok!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
    assert_eq!(count, 2);
    ok!(cuGraphNodeGetType(nodes[1], &mut status));
    assert_eq!(status, 0);
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    ok!(cuGraphDestroy(graph));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuGraphLaunch(exec, stream));
    ok!(cuStreamSynchronize(stream));
    assert_eq!(download(x, 2), [16, 4]);
    ok!(cuGraphExecDestroy(exec));
    assert_eq!(twice, rig.function("twice"));
}

/// Captures, makes the call, and expects it to end the capture.
#[track_caller]
fn assert_invalidates(call: impl FnOnce(Handle) -> u32, name: &str) {
    let _rig = Rig::new();
    let stream = stream();
    ok!(cuStreamBeginCapture_v2(stream, THREAD_LOCAL));
    assert_eq!(error_name(call(stream)), name);
    let mut graph = 1;
    expect!(ERROR_STREAM_CAPTURE_INVALIDATED: cuStreamEndCapture(stream, &mut graph));
    assert_eq!(graph, 0);
    ok!(cuStreamSynchronize(stream));
}

#[test]
fn allocating_synchronising_and_loading_end_a_capture() {
    let unsupported = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
    let (mut x, mut module) = (0, 0);
    // SAFETY: live locals and numbers.
    unsafe {
        assert_invalidates(|_| cuMemAlloc_v2(&mut x, 4), unsupported);
        assert_invalidates(|_| cuMemFree_v2(0), unsupported);
        assert_invalidates(|stream| cuStreamSynchronize(stream), unsupported);
        assert_invalidates(|_| cuCtxSynchronize(), unsupported);
        assert_invalidates(
            |_| cuModuleLoadData(&mut module, PTX.as_ptr().cast()),
            unsupported,
        );
    }
}

#[test]
fn waiting_for_an_event_from_before_ends_a_capture() {
    assert_invalidates(
        |stream| {
            let mut event = 0;
            ok!(cuEventCreate(&mut event, 0));
            ok!(cuEventRecord(event, 2));
            // SAFETY: numbers.
            unsafe { cuStreamWaitEvent(stream, event, 0) }
        },
        "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
    );
}

#[test]
fn the_default_stream_conflicts_with_capture_in_a_blocking_stream() {
    let rig = Rig::new();
    let (x, mut stream, mut graph) = (upload(&[1]), 0, 0);
    let _ = rig.function("twice");
    ok!(cuStreamCreate(&mut stream, 0));
    ok!(cuStreamBeginCapture_v2(stream, THREAD_LOCAL));
    expect!(ERROR_STREAM_CAPTURE_IMPLICIT: rig.launch("twice", 1, 0, &mut [x, 1]));
    expect!(ERROR_STREAM_CAPTURE_INVALIDATED: cuStreamEndCapture(stream, &mut graph));
    expect!(ERROR_STREAM_CAPTURE_UNSUPPORTED: cuStreamBeginCapture_v2(0, THREAD_LOCAL));
    expect!(ERROR_ILLEGAL_STATE: cuStreamEndCapture(stream, &mut graph));
}
