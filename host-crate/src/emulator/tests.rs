use half::{bf16, f16};

use super::*;
use crate::kernels::abi::{DecodeArgs, MergeArgs};
use crate::kernels::variants::{DECODE, MERGE};
use crate::{
    AttentionConfig, BlockTable, CacheLayout, DType, DeviceLimits, RowsView, SplitPolicy, reference,
};

const SEQS: usize = 3;
const BLOCKS: usize = 11;
const COLUMNS: usize = 5;

/// 4 query heads on 2 kv heads, blocks of 8 tokens, lengths 33, 0 and 13, NaN in every unused slot.
struct Case<T> {
    config: AttentionConfig,
    q: Vec<T>,
    k: Vec<T>,
    v: Vec<T>,
    table: Vec<i32>,
    seq_lens: Vec<i32>,
}

impl<T: Element> Case<T> {
    fn new(head_dim: usize) -> Self {
        let config = AttentionConfig::new(T::DTYPE, 4, 2, head_dim, 8);
        // Numbers in [-1, 1) that no two neighbours share.
        let mut state = 1u32;
        let mut next = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            T::from_f32((state >> 8) as f32 / (1 << 23) as f32 - 1.0)
        };
        let table = vec![9, 3, 10, 0, 6, -1, -1, -1, -1, -1, 4, 1, 77, -1, -1];
        let seq_lens = vec![33, 0, 13];
        let slot = 2 * head_dim;
        let mut k = vec![T::from_f32(f32::NAN); BLOCKS * 8 * slot];
        let mut v = k.clone();
        for (s, &len) in seq_lens.iter().enumerate() {
            for t in 0..len as usize {
                let at = (table[s * COLUMNS + t / 8] as usize * 8 + t % 8) * slot;
                k[at..at + slot].fill_with(&mut next);
                v[at..at + slot].fill_with(&mut next);
            }
        }
        let q = (0..SEQS * 4 * head_dim).map(|_| next()).collect();
        Self {
            config,
            q,
            k,
            v,
            table,
            seq_lens,
        }
    }

    fn inputs(&self) -> DecodeInputs<'_, T> {
        let d = self.config.head_dim;
        DecodeInputs {
            q: RowsView::contiguous(&self.q, SEQS, 4, d),
            k_cache: CacheView::dense(&self.k, CacheLayout::Nhd, BLOCKS, 8, 2, d),
            v_cache: CacheView::dense(&self.v, CacheLayout::Nhd, BLOCKS, 8, 2, d),
            block_table: BlockTable::new(&self.table, SEQS, COLUMNS),
            seq_lens: &self.seq_lens,
        }
    }

    fn plan(&self, split_tokens: u32) -> Plan {
        let policy = SplitPolicy::Tokens(split_tokens);
        Plan::new(&self.config, SEQS, 40, policy, &DeviceLimits::h100()).unwrap()
    }

    fn run(&self, emulator: &Emulator, plan: &Plan) -> Result<(Vec<T>, Vec<f32>, Reports), Error> {
        let d = self.config.head_dim;
        let mut out = vec![T::from_f32(f32::NAN); SEQS * 4 * d];
        let mut lse = vec![f32::NAN; SEQS * 4];
        let rows = RowsViewMut::contiguous(&mut out, SEQS, 4, d);
        let options = Options::default();
        let reports = emulator.decode(plan, &self.inputs(), rows, Some(&mut lse), &options)?;
        Ok((out, lse, reports))
    }
}

/// Sums of 33 products and weights that add to 1, rounded to the storage type at the end: far below
/// 2^-8 for bf16, 2^-11 for f16 and 2^-18 for f32 at values within [-1, 1].
#[track_caller]
fn assert_agrees<T: Element>(case: &Case<T>, split_tokens: u32, tolerance: f64) {
    let plan = case.plan(split_tokens);
    let (out, lse, reports) = case.run(Emulator::embedded(), &plan).unwrap();
    let wanted = reference::decode(&case.config, &case.inputs()).unwrap();
    for (i, (out, wanted)) in out.iter().zip(&wanted.out).enumerate() {
        let error = (f64::from(out.to_f32()) - wanted).abs();
        assert!(error <= tolerance, "out {i}: {} for {wanted}", out.to_f32());
    }
    for (i, (&lse, &wanted)) in lse.iter().zip(&wanted.lse).enumerate() {
        let same = wanted == f64::NEG_INFINITY && lse == f32::NEG_INFINITY;
        assert!(
            same || (f64::from(lse) - wanted).abs() <= 1e-5,
            "lse {i}: {lse} for {wanted}"
        );
    }
    assert!(reports.decode.is_some());
    assert_eq!(reports.merge.is_some(), split_tokens < 40);
}

#[test]
fn the_shipped_ptx_agrees_with_the_reference() {
    for split_tokens in [16, 48] {
        assert_agrees(&Case::<f32>::new(32), split_tokens, 2f64.powi(-18));
        assert_agrees(&Case::<f16>::new(128), split_tokens, 2f64.powi(-11));
        assert_agrees(&Case::<bf16>::new(80), split_tokens, 2f64.powi(-8));
    }
}

#[test]
fn an_empty_batch_launches_nothing() {
    let config = AttentionConfig::new(DType::F16, 4, 2, 64, 8);
    let limits = DeviceLimits::h100();
    let plan = Plan::new(&config, 0, 100, SplitPolicy::Auto, &limits).unwrap();
    let inputs = DecodeInputs::<f16> {
        q: RowsView::contiguous(&[], 0, 4, 64),
        k_cache: CacheView::dense(&[], CacheLayout::Nhd, 0, 8, 2, 64),
        v_cache: CacheView::dense(&[], CacheLayout::Nhd, 0, 8, 2, 64),
        block_table: BlockTable::new(&[], 0, 0),
        seq_lens: &[],
    };
    let out = RowsViewMut::contiguous(&mut [], 0, 4, 64);
    let reports = decode(&plan, &inputs, out, Some(&mut [])).unwrap();
    assert_eq!(reports, Reports::default());
}

#[test]
fn strided_output_keeps_its_gaps() {
    let case = Case::<f32>::new(32);
    let plan = case.plan(16);
    let (dense, ..) = case.run(Emulator::embedded(), &plan).unwrap();
    let mut out = vec![7f32; SEQS * 4 * 40];
    let rows = RowsViewMut::with_strides(&mut out, SEQS, 4, 32, 160, 40);
    decode(&plan, &case.inputs(), rows, None).unwrap();
    for (padded, row) in out.chunks(40).zip(dense.chunks(32)) {
        assert_eq!(padded[..32], *row);
        assert_eq!(padded[32..], [7.0; 8]);
    }
}

/// The embedded set with one file's text changed.
fn changed(file: &str, change: impl Fn(&str) -> String) -> Emulator {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let id = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let dir = std::env::temp_dir().join(format!("paged-attention-changed-{}-{}", id.0, id.1));
    std::fs::create_dir_all(&dir).unwrap();
    let set = PtxSet::embedded();
    std::fs::write(dir.join("manifest.json"), set.manifest().to_json()).unwrap();
    for (name, text) in set.files() {
        let text = if name == file {
            change(text)
        } else {
            text.into()
        };
        std::fs::write(dir.join(name), text).unwrap();
    }
    let loaded = PtxSet::load(&dir).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    Emulator::new(loaded)
}

/// Every entry of the file with another body.
fn with_body(entry: &str, parameter_bytes: usize, body: &str) -> String {
    format!(
        ".visible .entry {entry}(.param .align 8 .b8 args[{parameter_bytes}])\n{{\n{body}\nret;\n}}\n"
    )
}

fn f32_d32_with_body(body: &str) -> Emulator {
    let decodes = DECODE
        .iter()
        .filter(|v| v.dtype == DType::F32 && v.head_dim == 32);
    let decodes: String = decodes
        .map(|v| with_body(v.entry, size_of::<DecodeArgs>(), body))
        .collect();
    let merge = with_body(MERGE[0].entry, size_of::<MergeArgs>(), "");
    changed("f32_d32.ptx", |text| {
        let header = &text[..text.find(".address_size").unwrap()];
        format!("{header}.address_size 64\n{decodes}{merge}")
    })
}

#[test]
fn rows_left_unwritten_are_an_error() {
    let case = Case::<f32>::new(32);
    let error = case
        .run(&f32_d32_with_body(""), &case.plan(48))
        .unwrap_err();
    let (op, argument, sequence, head) = (Op::Decode, "out", 0, 0);
    assert_eq!(
        error,
        Error::OutputNotWritten {
            op,
            argument,
            sequence,
            head
        }
    );
    assert_eq!(
        error.to_string(),
        "decode: the kernel left out[0][0] unwritten, must write every row"
    );
}

/// The memory can be tampered with between upload and launch: a table entry past the cache faults and
/// the sentence names the cache.
#[test]
fn a_table_entry_past_the_cache_faults_on_the_device() {
    let case = Case::<f32>::new(32);
    let plan = case.plan(48);
    let uploaded = upload(&plan, &case.inputs(), false).unwrap();
    let entry = uploaded.tensors.block_table.address + 4;
    uploaded
        .memory
        .write(entry, &(BLOCKS as i32).to_le_bytes())
        .unwrap();
    let error = Emulator::embedded()
        .launch(&plan, &uploaded, &Options::default())
        .unwrap_err();
    assert!(
        matches!(
            error,
            Error::Emulated {
                subject: "decode_f32_d32_h8",
                ..
            }
        ),
        "{error:?}"
    );
    assert!(error.to_string().contains("k_cache"), "{error}");
}

/// Reading a slot past the length, a table entry past the live ones or any other unwritten byte is a
/// fault that names the entry and the buffer.
#[test]
fn reads_of_what_is_not_live_are_faults() {
    let case = Case::<f32>::new(32);
    // Table entry 5 is the first of the empty sequence.
    let emulator = f32_d32_with_body(
        ".reg .b64 %p; .reg .b32 %r; ld.param.u64 %p, [args+24]; ld.global.u32 %r, [%p+20];",
    );
    let error = case.run(&emulator, &case.plan(48)).unwrap_err();
    let Error::Emulated {
        subject: "decode_f32_d32_h8",
        source,
    } = &error
    else {
        panic!("{error:?}")
    };
    assert!(matches!(source, ptx_emulator::Error::Fault(_)), "{source}");
    let text = error.to_string();
    assert!(text.starts_with("emulator: decode_f32_d32_h8: "), "{text}");
    assert!(text.contains("block_table"), "{text}");
}

#[test]
fn ptx_that_cannot_be_executed_is_refused_at_load() {
    let case = Case::<f32>::new(32);
    let error = case
        .run(&f32_d32_with_body("bogus.b32 %r;"), &case.plan(48))
        .unwrap_err();
    let Error::EmulatorLoad { file, source } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(file, "f32_d32.ptx");
    assert_eq!(
        error.to_string(),
        format!("emulator: f32_d32.ptx: {source}")
    );
}
