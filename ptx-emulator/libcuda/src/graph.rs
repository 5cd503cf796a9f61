//! Graphs from captures: a list of works, run in order.

use std::ffi::{c_char, c_uint};
use std::sync::Arc;

use crate::boundary::{Handle, Out, entry_points, say};
use crate::error::Code;
use crate::state::{Kind, State, current, state};
use crate::stream::resolve;
use crate::work::Work;

/// A captured graph.
pub struct Graph {
    nodes: Vec<(Handle, Work)>,
}

/// A graph that can be launched.
pub struct Exec {
    /// Handle of the context it was made in.
    pub context: Handle,
    works: Vec<Work>,
}

impl Graph {
    /// Adds a graph and gives its handle.
    pub fn create(state: &mut State, works: Vec<Work>) -> Handle {
        let node = |work| (state.new_handle(Kind::GraphNode), work);
        let nodes = works.into_iter().map(node).collect();
        let handle = state.new_handle(Kind::Graph);
        state.graphs.insert(handle, Arc::new(Graph { nodes }));
        handle
    }
}

fn instantiate(exec: Out<Handle>, graph: Handle) -> Result<(), Code> {
    let context = current()?;
    exec.required()?;
    let mut state = state()?;
    let graph = state.graphs.get(graph)?;
    let works = graph.nodes.iter().map(|(_, work)| work.clone()).collect();
    let handle = state.new_handle(Kind::GraphExec);
    state.execs.insert(
        handle,
        Arc::new(Exec {
            context: context.handle,
            works,
        }),
    );
    exec.write(handle)
}

entry_points! {
    /// Makes a graph ready to launch.
    11000 fn cuGraphInstantiate_v2(
        exec: Out<Handle>, graph: Handle, error_node: Out<Handle>, log: Out<c_char>, len: usize,
    ) {
        error_node.write_if_asked(0);
        if log.address() != 0 {
            log.cast::<u8>().text("", len)?;
        }
        instantiate(exec, graph)
    }

    /// Makes a graph ready to launch.
    12000 fn cuGraphInstantiateWithFlags(exec: Out<Handle>, graph: Handle, flags: u64) {
        // Free on launch, upload, launch on the device, node priorities.
        if flags & 4 != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        if flags > 15 {
            return Err(Code::INVALID_VALUE);
        }
        instantiate(exec, graph)
    }

    /// Runs a graph in a stream.
    10000 fn cuGraphLaunch(exec: Handle, stream: Handle) {
        let stream = resolve(&*current()?, stream)?;
        let exec = state()?.execs.get(exec)?;
        if stream.capture_number()?.is_some() {
            say("cuGraphLaunch: capturing a graph's launch is not supported");
            stream.invalidate_capture();
            return Err(Code::NOT_SUPPORTED);
        }
        stream.run(&exec.works)
    }

    /// Uploads a graph, which needs no upload.
    11010 fn cuGraphUpload(exec: Handle, stream: Handle) {
        resolve(&*current()?, stream)?;
        state()?.execs.get(exec)?;
        Ok(())
    }

    /// Destroys a graph.
    10000 fn cuGraphDestroy(graph: Handle) {
        state()?.graphs.remove(graph)?;
        Ok(())
    }

    /// Destroys a graph that was made ready to launch.
    10000 fn cuGraphExecDestroy(exec: Handle) {
        state()?.execs.remove(exec)?;
        Ok(())
    }

    /// The nodes of a graph in order, and their number.
    10000 fn cuGraphGetNodes(graph: Handle, nodes: Out<Handle>, count: Out<usize>) {
        let graph = state()?.graphs.get(graph)?;
        if nodes.address() != 0 {
            let room = count.read()?;
            for index in 0..room {
                let node = graph.nodes.get(index).map_or(0, |(handle, _)| *handle);
                nodes.at(index).write(node)?;
            }
        }
        count.write(graph.nodes.len())
    }

    /// The type of a node.
    10000 fn cuGraphNodeGetType(node: Handle, node_type: Out<c_uint>) {
        let state = state()?;
        let mut nodes = state.graphs.iter().flat_map(|graph| &graph.nodes);
        let found = nodes.find(|(handle, _)| *handle == node).ok_or(Code::INVALID_VALUE)?;
        node_type.write(found.1.node_type())
    }
}
