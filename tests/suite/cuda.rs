//! What only a CUDA device can show: its workspace, contexts, streams, graphs, and what the machine
//! is too old for. The claims that every back end makes run on it too.

use std::collections::BTreeSet;

use cust::context::ContextHandle;
use cust::context::legacy::{Context as OtherContext, ContextFlags, ContextStack};
use cust::device::Device;
use paged_attention::cuda::{CudaBackend, CudaDecode};
use paged_attention::kernels::variants::{DECODE, MERGE};
use paged_attention::{DType, DeviceTensors, Error, Op, Plan, RowsViewMut, SplitPolicy};

use crate::backend::cuda::{Cuda, Tensors, cuda, decode, get, put, stream};
use crate::backend::{Backend, DTYPES, Output};
use crate::batch::Batch;
use crate::case::{Case, Pool};
use crate::compare::{assert_close, bits_eq, close_to_exact};

pub mod artefacts;
pub mod graph;

/// Three splits, the last sequence uses the last of them.
fn case() -> Case {
    Case::new(DType::F32, 64, &[5, 40]).split(16)
}

/// Whether every element is still what [`Tensors::upload`] put there.
fn untouched(tensors: &Tensors<f32>) -> bool {
    get(&tensors.out)
        .iter()
        .all(|&bits| f32::from_bits(bits).is_nan())
        && get(&tensors.lse).iter().all(|lse| lse.is_nan())
}

#[test]
fn every_entry_of_the_default_set_is_right() {
    every_entry_is_right(cuda());
}

#[cfg(feature = "cuda-both-sets")]
#[test]
fn every_entry_of_the_rust_cuda_set_is_right() {
    every_entry_is_right(crate::backend::cuda::cuda_with(
        crate::backend::Set::RustCuda,
    ));
}

fn every_entry_is_right(cuda: &'static Cuda) {
    // As in `entries`: head groups that reach each head tile.
    let mut run = BTreeSet::new();
    for variant in DECODE {
        if !run.insert((variant.dtype.name(), variant.head_dim)) {
            continue;
        }
        let mut entries = BTreeSet::new();
        for (q, kv) in [(2, 2), (11, 1), (24, 1), (40, 1)] {
            let case = Case::new(variant.dtype, variant.head_dim as usize, &[5, 35, 0]);
            let batch = Batch::new(&case.heads(q, kv).split(16));
            let output = cuda
                .decode(&batch)
                .unwrap_or_else(|e| panic!("{e}\n{}", batch.case));
            close_to_exact(cuda, &batch, &output).unwrap_or_else(|e| panic!("{e}"));
            entries.insert(batch.plan.decode_variant().entry);
            entries.insert(batch.plan.merge_variant().entry);
        }
        let same = |dtype, d| dtype == variant.dtype && d == variant.head_dim;
        let decodes = DECODE
            .iter()
            .filter(|v| same(v.dtype, v.head_dim))
            .map(|v| v.entry);
        let merges = MERGE
            .iter()
            .filter(|v| same(v.dtype, v.head_dim))
            .map(|v| v.entry);
        assert_eq!(entries, decodes.chain(merges).collect());
    }
}

/// The exact size, with a canary behind, is what every other test gives.
#[test]
fn a_workspace_one_byte_short_is_refused() {
    cuda().enter();
    let batch = Batch::new(&case());
    let bytes = batch.plan.workspace_bytes();
    assert_eq!(bytes, 2 * 2 * 3 * (64 + 2) * 4);
    let mut tensors = Tensors::<f32>::upload(&batch);
    let mut short = put(&vec![0u8; bytes - 1]);
    let stream = stream();
    let launched = tensors.launch_with(&cuda().backend, &stream, &batch, (&mut *short).into());
    let text = format!(
        "decode: the workspace holds {} bytes, must hold at least {bytes}",
        bytes - 1
    );
    assert_eq!(launched.unwrap_err().to_string(), text);
    stream.synchronize().unwrap();
    assert!(untouched(&tensors), "written although refused");
}

/// More than the second and third dimension of a grid hold.
#[test]
fn more_than_65535_sequences_are_fine() {
    let mut lens = vec![0; 65_537];
    (lens[0], lens[65_535], lens[65_536]) = (3, 2, 40);
    let case = Case::new(DType::F32, 32, &lens).heads(1, 1);
    assert_close(cuda(), &case);
}

#[test]
fn buffers_that_are_too_short_or_of_other_elements_are_refused() {
    cuda().enter();
    let backend = &cuda().backend;
    let batch = Batch::new(&case());
    let stream = stream();
    let refused = |change: &dyn Fn(&mut Tensors<f32>), text: &str| {
        let mut tensors = Tensors::<f32>::upload(&batch);
        change(&mut tensors);
        let error = tensors.launch(backend, &stream, &batch).unwrap_err();
        assert_eq!(error.to_string(), text);
        stream.synchronize().unwrap();
        assert!(untouched(&tensors), "written although refused: {text}");
    };
    refused(
        &|t| t.q = put(&vec![0; 255]),
        "decode: q holds 255 elements, must hold at least 256 for num_seqs 2, num_heads 2, head_dim \
         64, token_stride 128, head_stride 64",
    );
    let elements = batch.pools[1].len();
    refused(
        &|t| t.pools[1] = put(&vec![0; elements - 1]),
        &format!(
            "decode: v_cache holds {} elements, must hold at least {elements} for num_blocks {}, \
             block_size 16, num_kv_heads 1, head_dim 64, block_stride 1024, token_stride 64, \
             head_stride 64",
            elements - 1,
            batch.num_blocks
        ),
    );
    refused(
        &|t| t.lens = put(&[5]),
        "decode: seq_lens holds 1 elements, must hold at least 2 for num_seqs 2",
    );
    // 16-bit tensors for a plan of f32.
    let half = Batch::new(&Case {
        dtype: DType::F16,
        ..case()
    });
    let mut tensors = Tensors::<half::f16>::upload(&half);
    let error = tensors.launch(backend, &stream, &batch).unwrap_err();
    let text = "decode: q has elements of 2 bytes, must have elements of 4";
    assert_eq!(error.to_string(), text);
}

#[test]
fn addresses_that_are_null_or_misaligned_are_refused() {
    let batch = Batch::new(&case());
    cuda().enter();
    let on_device = Tensors::<f32>::upload(&batch);
    let valid = raw(&on_device, &batch);
    let stream = stream();
    let refuse = |changed: DeviceTensors| {
        // SAFETY: refused before anything is launched, which the next line checks.
        let launched = unsafe {
            cuda()
                .backend
                .decode_raw(stream.as_inner(), &batch.plan, &changed)
        };
        let error = launched.unwrap_err();
        stream.synchronize().unwrap();
        assert!(untouched(&on_device), "written although refused: {error}");
        error
    };
    let mut changed = valid;
    changed.seq_lens = 0;
    let (op, argument) = (Op::Decode, "seq_lens");
    assert_eq!(refuse(changed), Error::NullPointer { op, argument });
    let mut changed = valid;
    changed.k_cache.address += 8;
    assert_eq!(
        refuse(changed),
        Error::BaseNotAligned {
            op,
            argument: "k_cache",
            address: valid.k_cache.address + 8,
            alignment: 16
        }
    );
}

/// The addresses of tensors, as an engine with its own buffers has them.
fn raw(tensors: &Tensors<f32>, batch: &Batch) -> DeviceTensors {
    use paged_attention::{DeviceCache, DeviceRows, DeviceTable};
    let rows = |address, (token_stride, head_stride)| DeviceRows {
        address,
        token_stride,
        head_stride,
    };
    let cache = |place: crate::batch::Place| DeviceCache {
        address: tensors.pools[place.pool].as_device_ptr().as_raw() + 4 * place.offset as u64,
        strides: place.strides,
    };
    DeviceTensors {
        q: rows(tensors.q.as_device_ptr().as_raw(), batch.q_strides),
        k_cache: cache(batch.k),
        v_cache: cache(batch.v),
        block_table: DeviceTable {
            address: tensors.table.as_device_ptr().as_raw(),
            row_stride: batch.table_stride,
        },
        seq_lens: tensors.lens.as_device_ptr().as_raw(),
        out: rows(tensors.out.as_device_ptr().as_raw(), batch.out_strides),
        lse: Some(tensors.lse.as_device_ptr().as_raw()),
        workspace: tensors.workspace.as_device_ptr().as_raw(),
    }
}

#[test]
fn raw_addresses_give_the_bits_of_the_safe_interface() {
    let batch = Batch::new(&Case {
        pool: Pool::Fused,
        ..case()
    });
    let expected = cuda().decode(&batch).unwrap();
    let tensors = Tensors::<f32>::upload(&batch);
    let stream = stream();
    // SAFETY: the stream and the tensors are live until it has been waited for, reach as far as the
    // plan says, and table and lengths are a valid batch's.
    unsafe {
        let addresses = raw(&tensors, &batch);
        cuda()
            .backend
            .decode_raw(stream.as_inner(), &batch.plan, &addresses)
    }
    .unwrap();
    stream.synchronize().unwrap();
    bits_eq("raw addresses", &output(&tensors, &batch), &expected).unwrap();
}

/// Results of dense rows.
fn output(tensors: &Tensors<f32>, batch: &Batch) -> Output {
    let mut output = Output {
        out: vec![0.0; batch.out_len],
        lse: vec![0.0; batch.num_seqs() * batch.case.num_q_heads],
    };
    tensors.read(batch, &mut output.out, &mut output.lse);
    output
}

#[test]
fn host_tensors_give_the_bits_of_device_tensors() {
    let batch = Batch::new(&case());
    let expected = cuda().decode(&batch).unwrap();
    let typed = batch.typed::<f32>();
    let mut found = Output {
        out: vec![f32::NAN; batch.out_len],
        lse: vec![f32::NAN; 4],
    };
    let rows = RowsViewMut::contiguous(&mut found.out, 2, 2, 64);
    let (backend, lse) = (&cuda().backend, Some(&mut found.lse[..]));
    backend
        .decode_host(&batch.plan, &typed.inputs(), rows, lse)
        .unwrap();
    bits_eq("host tensors", &found, &expected).unwrap();
}

#[test]
fn uploaded_tensors_give_the_same_bits_in_every_round_and_for_every_back_end_of_the_context() {
    let batch = Batch::new(&case());
    let expected = cuda().decode(&batch).unwrap();
    let typed = batch.typed::<f32>();
    let other = CudaBackend::open(0).unwrap();
    let calls = [&cuda().backend, &other].map(|backend| {
        backend
            .upload(&batch.plan, &typed.inputs())
            .unwrap_or_else(|error| panic!("{error}"))
    });
    let (out, lse) = calls[0].results::<f32>().unwrap();
    assert!(out.iter().chain(&lse).all(|x| x.is_nan()), "before a run");
    for rounds in [0, 1, 3] {
        let times = CudaDecode::time(&[&calls[0], &calls[1]], rounds).unwrap();
        let shape: Vec<usize> = times.iter().map(Vec::len).collect();
        assert_eq!(shape, vec![2; rounds]);
    }
    for call in &calls {
        let (out, lse) = call.results::<f32>().unwrap();
        bits_eq("uploaded", &Output { out, lse }, &expected).unwrap();
    }
    let error = calls[0].results::<half::f16>().unwrap_err();
    let text = "decode: the tensors hold f16, must hold the configuration's f32";
    assert_eq!(error.to_string(), text);
}

#[test]
fn uploading_refuses_lengths_past_the_plan() {
    let batch = Batch::new(&case());
    let typed = batch.typed::<f32>();
    let (config, seqs) = (batch.config(), batch.num_seqs());
    let limits = cuda().backend.limits();
    let plan = Plan::new(config, seqs, 1, SplitPolicy::Auto, &limits).unwrap();
    let error = cuda().backend.upload(&plan, &typed.inputs()).err();
    let (index, value) = (0, 5);
    let expected = Error::SeqLenPastCapacity {
        op: Op::Decode,
        index,
        value,
        max_seq_len: 1,
    };
    assert_eq!(error, Some(expected));
}

#[test]
fn every_copy_is_timed() {
    for rounds in [0, 3] {
        let times = cuda().backend.time_copy(1 << 16, rounds).unwrap();
        assert_eq!(times.len(), rounds);
    }
}

#[test]
fn support_is_known_beforehand() {
    let backend = &cuda().backend;
    for dtype in DTYPES {
        for (head_dim, q, kv) in [(64, 8, 2), (40, 8, 2), (72, 8, 8), (512, 1, 1), (64, 8, 3)] {
            let mut config = Case::new(dtype, 64, &[]).config();
            (config.head_dim, config.num_q_heads, config.num_kv_heads) = (head_dim, q, kv);
            assert_eq!(
                backend.supports(&config),
                paged_attention::supports(&config)
            );
        }
    }
}

/// A context of its own on the first device; nothing is current afterwards.
pub fn other_context() -> OtherContext {
    let device = Device::get_device(0).unwrap();
    let context = OtherContext::create_and_push(ContextFlags::SCHED_AUTO, device).unwrap();
    ContextStack::pop().unwrap();
    context
}

/// Runs `work` with a context current, and with none afterwards.
pub fn within<R>(context: &impl ContextHandle, work: impl FnOnce() -> R) -> R {
    ContextStack::push(context).unwrap();
    let result = work();
    ContextStack::pop().unwrap();
    result
}

/// Exchanges a buffer of two batches.
type Exchange = fn(&mut Tensors<f32>, &mut Tensors<f32>);

#[test]
fn streams_and_buffers_of_another_context_are_refused() {
    cuda().enter();
    let batch = Batch::new(&case());
    let other = other_context();
    let refused = |tensors: &mut Tensors<f32>, stream: &_, argument: &str| {
        let error = tensors.launch(&cuda().backend, stream, &batch).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "decode: {argument} belongs to another CUDA context, must belong to the back end's"
            )
        );
    };
    let own = stream();
    let foreign = within(&other, stream);
    let mut tensors = Tensors::<f32>::upload(&batch);
    refused(&mut tensors, &foreign, "the stream");
    let exchanges: [(&str, Exchange); 7] = [
        ("q", |a, b| std::mem::swap(&mut a.q, &mut b.q)),
        ("k_cache", |a, b| {
            std::mem::swap(&mut a.pools[0], &mut b.pools[0])
        }),
        ("v_cache", |a, b| {
            std::mem::swap(&mut a.pools[1], &mut b.pools[1])
        }),
        ("block_table", |a, b| {
            std::mem::swap(&mut a.table, &mut b.table)
        }),
        ("seq_lens", |a, b| std::mem::swap(&mut a.lens, &mut b.lens)),
        ("out", |a, b| std::mem::swap(&mut a.out, &mut b.out)),
        ("workspace", |a, b| {
            std::mem::swap(&mut a.workspace, &mut b.workspace)
        }),
    ];
    let mut theirs = within(&other, || Tensors::<f32>::upload(&batch));
    for (argument, exchange) in exchanges {
        exchange(&mut tensors, &mut theirs);
        refused(&mut tensors, &own, argument);
        exchange(&mut tensors, &mut theirs);
    }
    own.synchronize().unwrap();
    assert!(untouched(&tensors), "written although refused");
    within(&other, || drop((theirs, foreign)));
    tensors.launch(&cuda().backend, &own, &batch).unwrap();
    own.synchronize().unwrap();
    close_to_exact(cuda(), &batch, &output(&tensors, &batch)).unwrap();
}

#[test]
fn two_contexts_compute_side_by_side_and_end_one_by_one() {
    let batch = Batch::new(&case());
    let expected = cuda().decode(&batch).unwrap();
    let contexts = [other_context(), other_context()];
    let check = |backend: &CudaBackend| {
        let output = decode(backend, &batch).unwrap();
        bits_eq("another context", &output, &expected).unwrap();
    };
    std::thread::scope(|scope| {
        for context in &contexts {
            let context = context.get_unowned();
            let check = &check;
            scope.spawn(move || {
                within(&context, || {
                    // SAFETY: the context outlives the back end, which ends with this closure.
                    let backend = unsafe { CudaBackend::from_raw_context(handle()) }.unwrap();
                    (0..3).for_each(|_| check(&backend));
                })
            });
        }
    });
    let [first, second] = contexts;
    drop(first);
    within(&second, || {
        // SAFETY: as above.
        let backend = unsafe { CudaBackend::from_raw_context(handle()) }.unwrap();
        check(&backend);
    });
    drop(second);
    bits_eq("afterwards", &cuda().decode(&batch).unwrap(), &expected).unwrap();
}

/// The current context.
pub fn handle() -> cust::sys::CUcontext {
    let mut context = std::ptr::null_mut();
    // SAFETY: the driver is initialised, and the result is written to a live pointer.
    let result = unsafe { cust::sys::cuCtxGetCurrent(&mut context) };
    assert_eq!(result as u32, 0);
    context
}

#[test]
fn threads_share_a_back_end() {
    let batch = Batch::new(&case());
    let expected = cuda().decode(&batch).unwrap();
    let backend = CudaBackend::open(0).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                cuda().enter();
                let output = decode(&backend, &batch).unwrap();
                bits_eq("another thread", &output, &expected).unwrap();
            });
        }
    });
}

#[test]
fn a_back_end_leaves_the_current_context_as_it_was() {
    cuda().enter();
    let before = handle();
    let batch = Batch::new(&case());
    let other = other_context();
    within(&other, || {
        let current = handle();
        // SAFETY: the context is live, and outlives the back end.
        let backend = unsafe { CudaBackend::from_raw_context(current) }.unwrap();
        decode(&backend, &batch).unwrap();
        drop(backend);
        assert_eq!(handle(), current);
        // The primary context's back end, from within another context.
        let refused = decode(&cuda().backend, &batch).unwrap_err();
        assert!(matches!(refused, Error::ForeignContext { .. }), "{refused}");
        cuda().backend.prepare(&batch.plan).unwrap();
        assert_eq!(handle(), current);
    });
    assert_eq!(handle(), before);
}

#[test]
fn results_are_the_same_bits_every_time() {
    let case = Case::new(DType::F16, 128, &[100, 7, 64])
        .heads(16, 2)
        .split(32);
    let batch = Batch::new(&case);
    let first = cuda().decode(&batch).unwrap();
    close_to_exact(cuda(), &batch, &first).unwrap();
    for _ in 0..3 {
        bits_eq("again", &cuda().decode(&batch).unwrap(), &first).unwrap();
    }
}
