//! Files that are truncated, contradictory or malicious: each gets one full sentence, and no output
//! file appears.

mod header;

use crate::{Folder, run};

#[derive(Clone)]
struct Tensor {
    name: &'static str,
    dtype: &'static str,
    shape: Vec<u64>,
    bytes: Vec<u8>,
    /// Byte range that the header claims, if not the true one.
    claim: Option<(u64, u64)>,
}

fn tensor(name: &'static str, dtype: &'static str, shape: &[u64], bytes: Vec<u8>) -> Tensor {
    Tensor {
        name,
        dtype,
        shape: shape.to_vec(),
        bytes,
        claim: None,
    }
}

fn integers(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// A batch that decodes: sequences of 5 and 3 tokens in blocks of 4.
fn batch() -> Vec<Tensor> {
    let ones = |count| 1f32.to_le_bytes().repeat(count);
    vec![
        tensor("q", "F32", &[2, 2, 32], ones(128)),
        tensor("k_cache", "F32", &[3, 4, 1, 32], ones(384)),
        tensor("v_cache", "F32", &[3, 4, 1, 32], ones(384)),
        tensor("block_table", "I32", &[2, 2], integers(&[0, 2, 1, -1])),
        tensor("seq_lens", "I32", &[2], integers(&[5, 3])),
    ]
}

/// The batch with one tensor changed.
fn with(name: &str, change: impl FnOnce(&mut Tensor)) -> Vec<Tensor> {
    let mut batch = batch();
    let tensor = batch.iter_mut().find(|tensor| tensor.name == name);
    change(tensor.expect("a tensor of the batch"));
    batch
}

/// The batch with one tensor's integers replaced.
fn with_integers(name: &str, values: &[i32]) -> Vec<Tensor> {
    with(name, |tensor| tensor.bytes = integers(values))
}

fn file(tensors: &[Tensor], metadata: &str) -> Vec<u8> {
    let mut header = format!("{{\"__metadata__\":{{{metadata}}}");
    let mut data = vec![];
    for tensor in tensors {
        let start = data.len() as u64;
        data.extend(&tensor.bytes);
        let (start, end) = tensor.claim.unwrap_or((start, data.len() as u64));
        header += &format!(
            ",\"{}\":{{\"dtype\":\"{}\",\"shape\":{:?},\"data_offsets\":[{start},{end}]}}",
            tensor.name, tensor.dtype, tensor.shape
        );
    }
    raw(&(header + "}"), &data)
}

fn raw(header: &str, data: &[u8]) -> Vec<u8> {
    let length = header.len() as u64;
    [&length.to_le_bytes()[..], header.as_bytes(), data].concat()
}

/// Decodes `bytes` with more options, and returns the message of its failure after the file's name.
#[track_caller]
fn refusal_with(bytes: &[u8], options: &[&str]) -> String {
    let test = std::thread::current()
        .name()
        .unwrap_or("main")
        .replace("::", "-");
    let folder = Folder::new(&test);
    let input = folder.path("in");
    std::fs::write(&input, bytes).unwrap();
    let output = folder.path("out");
    let message = run(&[&["decode", "-i", &input, "-o", &output], options].concat()).failure();
    assert_eq!(folder.names(), ["in"], "a failure leaves no file");
    let prefix = format!("{input}: ");
    message.strip_prefix(&prefix).unwrap_or(&message).to_owned()
}

#[track_caller]
fn refusal(bytes: &[u8]) -> String {
    refusal_with(bytes, &[])
}

#[test]
fn the_batch_itself_decodes() {
    for metadata in ["", "\"layout\":\"NHD\",\"scale\":\"0.5\",\"other\":\"x\""] {
        let folder = Folder::new("valid");
        let (input, output) = (folder.path("in"), folder.path("out"));
        std::fs::write(&input, file(&batch(), metadata)).unwrap();
        run(&["decode", "-i", &input, "-o", &output, "--check"]).success();
        assert_eq!(folder.names(), ["in", "out"]);
    }
}

#[test]
fn refuses_missing_tensors() {
    for name in ["q", "k_cache", "v_cache", "block_table", "seq_lens"] {
        let mut batch = batch();
        batch.retain(|tensor| tensor.name != name);
        assert_eq!(
            refusal(&file(&batch, "")),
            format!(
                "there is no tensor {name}, the file must have q, k_cache, v_cache, block_table, \
                 seq_lens"
            )
        );
    }
}

#[test]
fn refuses_wrong_dtypes() {
    for (name, dtype, expected) in [
        ("q", "I32", "F32, F16 or BF16"),
        ("q", "F8_E4M3", "F32, F16 or BF16"),
        ("q", "F33", "F32, F16 or BF16"),
        ("k_cache", "I32", "F32 as q has"),
        ("k_cache", "F8_E4M3", "F32 as q has"),
        ("v_cache", "U32", "F32 as q has"),
        ("block_table", "F32", "I32 or U32"),
        ("block_table", "I64", "I32 or U32"),
        ("seq_lens", "F32", "I32 or U32"),
    ] {
        assert_eq!(
            refusal(&file(&with(name, |tensor| tensor.dtype = dtype), "")),
            format!("tensor {name} has dtype {dtype}, must have {expected}")
        );
    }
}

#[test]
fn refuses_wrong_ranks() {
    for (name, shape, expected) in [
        (
            "q",
            &[2, 64u64][..],
            "3 dimensions [num_seqs, num_q_heads, head_dim]",
        ),
        (
            "k_cache",
            &[3, 128],
            "4 dimensions [num_blocks, block_size, num_kv_heads, head_dim]",
        ),
        (
            "v_cache",
            &[3, 4, 1, 32, 1],
            "4 dimensions [num_blocks, block_size, num_kv_heads, head_dim]",
        ),
        (
            "block_table",
            &[4],
            "2 dimensions [num_seqs, max_blocks_per_seq]",
        ),
        ("seq_lens", &[2, 1], "1 dimensions [num_seqs]"),
    ] {
        assert_eq!(
            refusal(&file(
                &with(name, |tensor| tensor.shape = shape.to_vec()),
                ""
            )),
            format!("tensor {name} has shape {shape:?}, must have {expected}")
        );
    }
}

#[test]
fn refuses_shapes_that_disagree() {
    for (name, shape, expected) in [
        (
            "v_cache",
            &[4, 3, 1, 32u64][..],
            "decode: v_cache has block_size 3, must have 4",
        ),
        (
            "k_cache",
            &[3, 4, 2, 16],
            "decode: k_cache has head_dim 16, must have 32",
        ),
        ("q", &[1, 4, 32], "decode: q has num_seqs 1, must have 2"),
        (
            "block_table",
            &[1, 4],
            "decode: block_table has num_seqs 1, must have 2",
        ),
        (
            "q",
            &[2, 1, 64],
            "decode: k_cache has head_dim 32, must have 64",
        ),
    ] {
        assert_eq!(
            refusal(&file(
                &with(name, |tensor| tensor.shape = shape.to_vec()),
                ""
            )),
            expected
        );
    }
}

#[test]
fn refuses_lengths_and_table_entries_out_of_range() {
    for (name, values, expected) in [
        (
            "seq_lens",
            &[5, -1] as &[i32],
            "decode: seq_lens[1] = -1, must be at least 0",
        ),
        (
            "seq_lens",
            &[9, 3],
            "decode: seq_lens[0] = 9, must be at most 8 (block table of 2 columns × block_size 4)",
        ),
        (
            "seq_lens",
            &[5, i32::MAX],
            "decode: seq_lens[1] = 2147483647, must be at most 8 (block table of 2 columns × \
             block_size 4)",
        ),
        (
            "block_table",
            &[0, 3, 1, -1],
            "decode: block_table[0][1] = 3, must be < num_blocks 3",
        ),
        (
            "block_table",
            &[0, 2, -7, -1],
            "decode: block_table[1][0] = -7, must be >= 0 and < num_blocks 3",
        ),
    ] {
        assert_eq!(refusal(&file(&with_integers(name, values), "")), expected);
    }
}

#[test]
fn unsigned_integers_are_quoted_as_the_file_has_them() {
    let unsigned = |name: &str, values: &[u32]| {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let changed = with(name, |tensor| {
            tensor.dtype = "U32";
            tensor.bytes = bytes;
        });
        refusal(&file(&changed, ""))
    };
    assert_eq!(
        unsigned("block_table", &[0, 2, u32::MAX - 6, u32::MAX]),
        "decode: block_table[1][0] = 4294967289, must be < num_blocks 3"
    );
    assert_eq!(
        unsigned("seq_lens", &[5, 1 << 31]),
        "decode: seq_lens[1] = 2147483648, must be at most 8 (block table of 2 columns × block_size 4)"
    );
    let folder = Folder::new("unsigned");
    let (input, output) = (folder.path("in"), folder.path("out"));
    let table = with("block_table", |table| table.dtype = "U32");
    std::fs::write(&input, file(&table, "")).unwrap();
    let text = run(&["decode", "-i", &input, "-o", &output]).success();
    assert!(text.contains("block_table     [2, 2] u32\n"), "{text}");
    assert!(text.contains("seq_lens        [2] i32: "), "{text}");
}

#[test]
fn refuses_scales_that_are_no_finite_number() {
    let expected = |scale| {
        format!("config: scale = {scale}, must be finite, also after multiplication by log2(e)")
    };
    assert_eq!(
        refusal_with(&file(&batch(), ""), &["--scale", "NaN"]),
        expected("NaN")
    );
    assert_eq!(
        refusal_with(&file(&batch(), ""), &["--scale", "-inf"]),
        expected("-inf")
    );
    assert_eq!(
        refusal(&file(&batch(), "\"scale\":\"nan\"")),
        expected("NaN")
    );
    assert_eq!(
        refusal(&file(&batch(), "\"scale\":\"one\"")),
        "metadata scale = `one`, must be a number"
    );
}

#[test]
fn refuses_layouts_it_does_not_know() {
    assert_eq!(
        refusal(&file(&batch(), "\"layout\":\"vllm\"")),
        "metadata layout = `vllm`, must be NHD or HND"
    );
    let folder = Folder::new("lowercase");
    let (input, output) = (folder.path("in"), folder.path("out"));
    std::fs::write(&input, file(&batch(), "\"layout\":\"nhd\"")).unwrap();
    let text = run(&["decode", "-i", &input, "-o", &output]).success();
    assert!(text.contains("f32, NHD"), "{text}");
}

#[test]
fn refuses_split_lengths_that_the_plan_refuses() {
    for tokens in ["0", "100", "16384"] {
        assert_eq!(
            refusal_with(&file(&batch(), ""), &["--split", tokens]),
            format!(
                "plan: split_tokens = {tokens}, must be a positive multiple of 16 and at most 8192"
            )
        );
    }
}

#[test]
fn refuses_inputs_that_cannot_be_read() {
    let folder = Folder::new("unreadable");
    let (absent, output) = (folder.path("absent"), folder.path("out"));
    let message = run(&["decode", "-i", &absent, "-o", &output]).failure();
    assert!(
        message.starts_with(&format!("cannot read {absent}: ")),
        "{message}"
    );
    let dir = folder.path("");
    let message = run(&["decode", "-i", &dir, "-o", &output]).failure();
    assert!(
        message.starts_with(&format!("cannot read {dir}: ")),
        "{message}"
    );
    assert!(folder.names().is_empty());
}

#[cfg(target_os = "linux")]
#[test]
fn refuses_inputs_without_a_length() {
    let folder = Folder::new("endless");
    let message = run(&["decode", "-i", "/dev/zero", "-o", &folder.path("out")]).failure();
    assert_eq!(
        message,
        "cannot read /dev/zero: it is not a regular file, whose length is known"
    );
    assert!(folder.names().is_empty());
}

#[test]
fn refuses_outputs_that_cannot_be_written_before_any_work() {
    let folder = Folder::new("unwritable");
    let input = folder.path("in");
    std::fs::write(&input, "not read yet").unwrap();
    for output in [folder.path("absent/out"), folder.path("in/out")] {
        let message = run(&["decode", "-i", &input, "-o", &output]).failure();
        assert!(
            message.starts_with(&format!("cannot write {output}: ")),
            "{message}"
        );
        let message = run(&["sample", "-o", &output]).failure();
        assert!(
            message.starts_with(&format!("cannot write {output}: ")),
            "{message}"
        );
    }
    let dir = folder.path("");
    let message = run(&["decode", "-i", &input, "-o", &dir]).failure();
    let expected = format!("cannot write {dir}: it exists and is not a regular file");
    assert_eq!(message, expected);
    assert_eq!(folder.names(), ["in"]);
}

#[test]
fn refuses_an_output_that_is_the_input() {
    let folder = Folder::new("same");
    let input = folder.path("in");
    let bytes = file(&batch(), "");
    std::fs::write(&input, &bytes).unwrap();
    let other = folder.path("./in");
    let link = folder.path("link");
    std::fs::hard_link(&input, &link).unwrap();
    for output in [&input, &other, &link] {
        let message = run(&["decode", "-i", &input, "-o", output]).failure();
        let expected = format!("the output {output} is the input file, it must be another one");
        assert_eq!(message, expected);
    }
    assert_eq!(
        std::fs::read(&input).unwrap(),
        bytes,
        "the input is untouched"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn refuses_to_replace_a_device() {
    let folder = Folder::new("device");
    let input = folder.path("in");
    std::fs::write(&input, file(&batch(), "")).unwrap();
    let message = run(&["decode", "-i", &input, "-o", "/dev/null"]).failure();
    assert_eq!(
        message,
        "cannot write /dev/null: it exists and is not a regular file"
    );
}

/// Every file that is one byte shorter, or has one byte changed, ends in a result or a sentence.
#[test]
fn damaged_bytes_never_crash() {
    let folder = Folder::new("damaged");
    let (input, output) = (folder.path("in"), folder.path("out"));
    let whole = file(&batch(), "\"layout\":\"NHD\"");
    let header = u64::from_le_bytes(whole[..8].try_into().unwrap()) as usize;
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..60 {
        let mut bytes = whole.clone();
        match rng.u8(0..3) {
            0 => bytes.truncate(rng.usize(..whole.len())),
            1 => bytes[rng.usize(..8)] ^= 1 << rng.u8(..8),
            _ => bytes[rng.usize(8..8 + header)] = rng.u8(b' '..127),
        }
        std::fs::write(&input, &bytes).unwrap();
        let run = run(&["decode", "-i", &input, "-o", &output]);
        match run.code {
            Some(0) => std::fs::remove_file(&output).expect("success wrote the output"),
            _ => assert!(!run.failure().is_empty()),
        }
        assert_eq!(folder.names(), ["in"]);
    }
}
