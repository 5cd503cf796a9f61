//! The exact workspace suffices, and nothing less.

use paged_attention::{DType, RowsViewMut, cpu};
use ptx_emulator::{Error, FaultKind, Module};

use crate::backend::{Ptx, sets};
use crate::batch::Batch;
use crate::case::Case;
use crate::device::Device;

/// Three splits, the last sequence uses the last of them.
fn case() -> Case {
    Case::new(DType::F32, 64, &[5, 40]).split(16)
}

/// The exact size: [`crate::backend::Cpu`] always gives it, with a canary behind.
#[test]
fn the_cpu_refuses_a_workspace_that_is_one_element_short() {
    let batch = Batch::new(&case());
    let bytes = batch.plan.workspace_bytes();
    // [sequences, heads, splits, head_dim + 2] f32.
    assert_eq!(bytes, 2 * 2 * 3 * (64 + 2) * 4);
    let typed = batch.typed::<f32>();
    let mut out = vec![0.0f32; batch.out_len];
    let mut workspace = vec![0.0; batch.plan.workspace_len() - 1];
    let rows = RowsViewMut::contiguous(&mut out, 2, 2, 64);
    let error = cpu::decode(&batch.plan, &typed.inputs(), rows, None, &mut workspace).unwrap_err();
    let text = format!(
        "decode: the workspace holds {} bytes, must hold at least {bytes}",
        bytes - 4
    );
    assert_eq!(error.to_string(), text);
    assert_eq!(out, vec![0.0; batch.out_len], "written although refused");
}

sets!(the_kernels_use_the_workspace_to_its_last_byte_and_no_further);

/// Launches decode and merge with `workspace_bytes`.
fn launch(ptx: &Ptx, workspace_bytes: usize) -> Result<(), Error> {
    let batch = Batch::new(&case());
    let device = Device::upload(&batch, workspace_bytes);
    let file = &ptx
        .set()
        .entry(batch.plan.decode_variant().entry)
        .unwrap()
        .file;
    let module = Module::parse(ptx.set().ptx(file).unwrap()).unwrap();
    for launch in batch.plan.launches(&device.tensors).unwrap().iter() {
        device.launch(&module, launch.entry, launch, launch.args)?;
    }
    Ok(())
}

fn the_kernels_use_the_workspace_to_its_last_byte_and_no_further(ptx: &Ptx) {
    let bytes = Batch::new(&case()).plan.workspace_bytes();
    launch(ptx, bytes).unwrap();
    let error = launch(ptx, bytes - 1).unwrap_err();
    let Error::Fault(fault) = error else {
        panic!("{error}")
    };
    let FaultKind::OutOfBounds {
        nearest: Some(nearest),
        ..
    } = &fault.kind
    else {
        panic!("{fault}")
    };
    assert_eq!(nearest.name, "workspace", "{fault}");
}

#[test]
fn a_single_split_needs_no_workspace() {
    let plan = Case {
        lens: vec![16, 3],
        ..case()
    }
    .plan();
    assert_eq!((plan.num_splits(), plan.workspace_bytes()), (1, 0));
}
