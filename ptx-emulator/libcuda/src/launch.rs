//! Kernel launches.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;

use crate::boundary::{Handle, In, entry_points, say};
use crate::error::Code;
use crate::function::{Function, function};
use crate::limits::{BLOCK, GRID};
use crate::state::{current, state};
use crate::stream::{resolve, submit};
use crate::work::{Launch, Work};

/// `CU_LAUNCH_PARAM_BUFFER_POINTER` and `CU_LAUNCH_PARAM_BUFFER_SIZE`; the list ends with 0.
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;

/// The packed parameters, from an array of pointers to them or from the client's own packing.
fn pack(function: &Function, params: In<usize>, extra: In<usize>) -> Result<Vec<u8>, Code> {
    let info = &function.info;
    let mut packed = vec![0; info.param_bytes as usize];
    if params.is_null() && extra.is_null() {
        return if info.params.is_empty() {
            Ok(packed)
        } else {
            Err(Code::INVALID_VALUE)
        };
    }
    if !params.is_null() && !extra.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    if extra.is_null() {
        for (index, param) in info.params.iter().enumerate() {
            let (offset, size) = (param.offset as usize, param.size as usize);
            let value = In::from_address(params.at(index).read()?);
            value.copy_to(&mut packed[offset..offset + size])?;
        }
        return Ok(packed);
    }
    let (mut buffer, mut size, mut at) = (0, None, 0);
    loop {
        match extra.at(at).read()? {
            0 => break,
            BUFFER_POINTER => buffer = extra.at(at + 1).read()?,
            BUFFER_SIZE => {
                let pointer = In::from_address(extra.at(at + 1).read()?);
                size = Some(pointer.cast::<usize>().read()?);
            }
            _ => return Err(Code::INVALID_VALUE),
        }
        at += 2;
    }
    // The client may round its buffer up.
    if size.is_none_or(|size| size < packed.len()) {
        return Err(Code::INVALID_VALUE);
    }
    In::from_address(buffer).copy_to(&mut packed)?;
    Ok(packed)
}

/// What a device would refuse before running anything.
fn check(function: &Function, launch: &ptx_emulator::Launch) -> Result<(), String> {
    let name = &function.name;
    let extents = [("grid", launch.grid, GRID), ("block", launch.block, BLOCK)];
    for (argument, values, limits) in extents {
        for axis in 0..3 {
            let (value, limit) = (values[axis], limits[axis]);
            if !(1..=limit).contains(&value) {
                return Err(format!(
                    "{name}: {argument}[{axis}] is {value}, must be in 1..={limit}"
                ));
            }
        }
    }
    let threads: u64 = launch
        .block
        .iter()
        .map(|&extent| u64::from(extent))
        .product();
    let most = function.max_threads();
    if threads > most.into() {
        return Err(format!(
            "{name}: the block has {threads} threads, must be at most {most}"
        ));
    }
    let most = function.max_dynamic_shared.load(Relaxed);
    if launch.shared_bytes > most {
        return Err(format!(
            "{name}: {} bytes of dynamic shared memory, must be at most {most}, as \
             CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES says",
            launch.shared_bytes
        ));
    }
    Ok(())
}

fn launch(
    handle: Handle,
    geometry: ptx_emulator::Launch,
    stream: Handle,
    params: In<usize>,
    extra: In<usize>,
) -> Result<(), Code> {
    let current = current()?;
    let function = function(handle)?;
    let stream = resolve(&current, stream)?;
    if stream.context != function.context {
        say(&format!(
            "cuLaunchKernel: {} and the stream are of different contexts",
            function.name
        ));
        return Err(Code::INVALID_HANDLE);
    }
    check(&function, &geometry).map_err(|sentence| {
        say(&format!("cuLaunchKernel: {sentence}"));
        Code::INVALID_VALUE
    })?;
    let params = pack(&function, params, extra)?;
    let context = state()?.contexts.get(function.context)?;
    submit(
        &stream,
        Work::Launch(Launch {
            function,
            context,
            geometry,
            params,
        }),
    )
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: Handle,
    attributes: In<LaunchAttribute>,
    attribute_count: c_uint,
}

/// `CUlaunchAttribute`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchAttribute {
    id: c_uint,
    padding: c_uint,
    value: [c_uint; 16],
}

impl LaunchAttribute {
    /// Whether leaving the attribute out changes nothing here.
    fn has_no_effect(&self) -> bool {
        match self.id {
            // Ignore, access policy window, synchronisation policy, programmatic serialisation,
            // priority, memory synchronisation domain map and domain, shared memory carveout.
            0 | 1 | 3 | 6 | 8 | 9 | 10 | 14 => true,
            // Cooperative.
            2 => self.value[0] == 0,
            // Cluster dimension.
            4 => self.value[..3].iter().all(|&extent| extent <= 1),
            _ => false,
        }
    }
}

entry_points! {
    /// Launches a kernel.
    4000 fn cuLaunchKernel(
        handle: Handle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint, shared_bytes: c_uint,
        stream: Handle, params: In<usize>, extra: In<usize>,
    ) {
        let grid = [grid_x, grid_y, grid_z];
        let block = [block_x, block_y, block_z];
        let geometry = ptx_emulator::Launch { grid, block, shared_bytes };
        launch(handle, geometry, stream, params, extra)
    }

    /// Launches a kernel with attributes, of which those without effect here are accepted.
    11060 fn cuLaunchKernelEx(
        config: In<LaunchConfig>, handle: Handle, params: In<usize>, extra: In<usize>,
    ) {
        let config = config.read()?;
        for index in 0..config.attribute_count as usize {
            let attribute = config.attributes.at(index).read()?;
            if !attribute.has_no_effect() {
                say(&format!("cuLaunchKernelEx: launch attribute {} is not supported", attribute.id));
                return Err(Code::NOT_SUPPORTED);
            }
        }
        let LaunchConfig { grid, block, shared_bytes, stream, .. } = config;
        let geometry = ptx_emulator::Launch { grid, block, shared_bytes };
        launch(handle, geometry, stream, params, extra)
    }

    /// Launches a kernel whose blocks wait for each other: not supported.
    9000 fn cuLaunchCooperativeKernel(
        handle: Handle, _grid_x: c_uint, _grid_y: c_uint, _grid_z: c_uint,
        _block_x: c_uint, _block_y: c_uint, _block_z: c_uint, _shared_bytes: c_uint,
        _stream: Handle, _params: In<c_void>,
    ) {
        current()?;
        function(handle)?;
        Err(Code::NOT_SUPPORTED)
    }
}
