//! `sample` and `decode` together.

use safetensors::{Dtype, SafeTensors};

use crate::{Folder, run};

/// A written file, read by the format's own reader.
struct File(Vec<u8>);

impl File {
    fn read(path: &str) -> Self {
        Self(std::fs::read(path).expect("a file"))
    }

    #[track_caller]
    fn tensor(&self, name: &str) -> (Dtype, Vec<usize>, Vec<u8>) {
        let file = SafeTensors::deserialize(&self.0).expect("a safetensors file");
        let view = file.tensor(name).expect("the tensor");
        (view.dtype(), view.shape().to_vec(), view.data().to_vec())
    }

    fn f32s(&self, name: &str) -> Vec<f32> {
        let (dtype, _, bytes) = self.tensor(name);
        assert_eq!(dtype, Dtype::F32);
        let word = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
        bytes.chunks_exact(4).map(word).collect()
    }

    fn i32s(&self, name: &str) -> Vec<i32> {
        let (dtype, _, bytes) = self.tensor(name);
        assert_eq!(dtype, Dtype::I32);
        let word = |bytes: &[u8]| i32::from_le_bytes(bytes.try_into().unwrap());
        bytes.chunks_exact(4).map(word).collect()
    }
}

fn sample(path: &str, options: &str) -> File {
    let options: Vec<&str> = options.split_whitespace().collect();
    run(&[&["sample", "-o", path], &options[..]].concat()).success();
    File::read(path)
}

fn decode(input: &str, output: &str, options: &str) -> (File, String) {
    let options: Vec<&str> = options.split_whitespace().collect();
    let args = ["decode", "--input", input, "--output", output];
    let text = run(&[&args, &options[..]].concat()).success();
    (File::read(output), text)
}

#[test]
fn decode_of_a_sample_passes_its_check_for_every_dtype_and_layout() {
    let folder = Folder::new("check");
    let (input, output) = (folder.path("in"), folder.path("out"));
    for dtype in ["f32", "f16", "bf16"] {
        for layout in ["nhd", "hnd"] {
            let options = format!(
                "--num-seqs 3 --ctx 1..700 --heads 6 --kv-heads 2 --head-dim 80 --block-size 7 \
                 --dtype {dtype} --layout {layout}"
            );
            sample(&input, &options);
            let (file, text) = decode(&input, &output, "--check --split 256");
            assert_eq!(file.tensor("out").1, [3, 6, 80]);
            assert_eq!(file.tensor("lse").1, [3, 6]);
            let last = text.lines().last().expect("a line");
            assert!(
                last.contains("largest error"),
                "the largest error comes last:\n{text}"
            );
        }
    }
    assert_eq!(folder.names(), ["in", "out"], "no temporary file stays");
}

#[test]
fn layout_and_block_size_do_not_change_a_bit() {
    let folder = Folder::new("layouts");
    let (input, output) = (folder.path("in"), folder.path("out"));
    let mut first = None;
    for placing in [
        "--layout nhd --block-size 16",
        "--layout hnd --block-size 16",
        "--layout nhd --block-size 5",
        "--layout hnd --block-size 64",
    ] {
        let options = "--num-seqs 4 --ctx 0..300 --heads 4 --kv-heads 1 --head-dim 64 --seed 9";
        sample(&input, &format!("{options} {placing}"));
        let (file, _) = decode(&input, &output, "--split 512");
        let result = (file.tensor("out"), file.tensor("lse"));
        let first = first.get_or_insert_with(|| result.clone());
        assert!(*first == result, "{placing} changes the output's bits");
    }
}

#[test]
fn the_same_seed_gives_the_same_file() {
    let folder = Folder::new("seeds");
    let path = folder.path("in");
    let bytes = |seed| {
        let options = "--num-seqs 2 --ctx 20 --heads 2 --head-dim 32 --dtype f32";
        sample(&path, &format!("{options} --seed {seed}")).0
    };
    assert!(bytes(3) == bytes(3));
    assert!(bytes(3) != bytes(4));
}

#[test]
fn a_sample_holds_its_tokens_and_nan_elsewhere() {
    let folder = Folder::new("nan");
    let options = "--num-seqs 5 --ctx 0..90 --heads 2 --head-dim 32 --dtype f32 --block-size 8";
    let file = sample(&folder.path("in"), options);
    let tokens: i32 = file.i32s("seq_lens").iter().sum();
    let live: Vec<i32> = file
        .i32s("block_table")
        .into_iter()
        .filter(|&b| b >= 0)
        .collect();
    let mut distinct = live.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), live.len(), "no block serves twice");
    assert!(distinct != live, "the table is shuffled");
    for name in ["k_cache", "v_cache"] {
        let finite = file.f32s(name).iter().filter(|x| x.is_finite()).count();
        assert_eq!(finite, tokens as usize * 2 * 32, "{name}");
    }
}

#[test]
fn scale_zero_gives_the_logarithm_of_the_length() {
    let folder = Folder::new("scale");
    let (input, output) = (folder.path("in"), folder.path("out"));
    let options = "--num-seqs 6 --ctx 0..50 --heads 2 --head-dim 32 --dtype f32";
    let lens = sample(&input, options).i32s("seq_lens");
    let (file, _) = decode(&input, &output, "--scale 0 --check");
    for (lse, len) in file.f32s("lse").chunks(2).zip(lens) {
        let expected = (len as f64).ln();
        for &lse in lse {
            let same = f64::from(lse) == expected || (f64::from(lse) - expected).abs() < 1e-6;
            assert!(same, "length {len}: {lse}, must be {expected}");
        }
    }
}

#[test]
fn what_the_check_cannot_tell_is_said() {
    let folder = Folder::new("cannot-tell");
    let (input, output) = (folder.path("in"), folder.path("out"));
    let options = "--num-seqs 2 --ctx 40..60 --heads 2 --head-dim 32";
    for device in ["cpu", "emulator"] {
        sample(&input, options);
        let check = format!("--check --device {device}");
        let (_, text) = decode(&input, &output, &check);
        assert!(!text.contains("unresolved"), "{text}");
        let (_, text) = decode(&input, &output, &format!("{check} --scale 1e7"));
        let line = text.lines().find(|line| line.contains("unresolved"));
        let line = line.unwrap_or_else(|| panic!("nothing is unresolved in\n{text}"));
        assert!(
            line.contains(" of 128 elements of out: scores are so large"),
            "{line}"
        );
    }
}

#[test]
fn empty_sequences_and_empty_batches_decode() {
    let folder = Folder::new("empty");
    let (input, output) = (folder.path("in"), folder.path("out"));
    let shape = "--heads 2 --head-dim 32 --dtype f32";
    sample(&input, &format!("{shape} --num-seqs 3 --ctx 0"));
    let (file, _) = decode(&input, &output, "--check");
    assert_eq!(file.f32s("out"), vec![0.0; 3 * 2 * 32]);
    assert_eq!(file.f32s("lse"), vec![f32::NEG_INFINITY; 3 * 2]);

    sample(&input, &format!("{shape} --num-seqs 0"));
    let (file, _) = decode(&input, &output, "--check");
    assert_eq!(file.tensor("out").1, [0, 2, 32]);
}

#[test]
fn impossible_samples_are_refused() {
    let folder = Folder::new("refused");
    let path = folder.path("in");
    for (options, expected) in [
        (
            "--head-dim 72",
            "config: head_dim = 72 is not supported for f16, must be one of \
             32, 64, 80, 96, 112, 120, 128, 160, 192, 256",
        ),
        (
            "--head-dim 0",
            "config: head_dim = 0 is not supported for f16, must be one of \
             32, 64, 80, 96, 112, 120, 128, 160, 192, 256",
        ),
        (
            "--heads 16 --kv-heads 5",
            "config: num_q_heads = 16, must be a multiple of num_kv_heads 5",
        ),
        (
            "--block-size 0",
            "config: block_size = 0, must be between 1 and 2147483647",
        ),
        (
            "--num-seqs 9223372036854775807",
            "sample: q of [9223372036854775807, 32, 128] elements is too large for this machine's \
             addresses",
        ),
    ] {
        let options: Vec<&str> = options.split_whitespace().collect();
        let message = run(&[&["sample", "-o", &path], &options[..]].concat()).failure();
        assert_eq!(message, expected);
    }
    assert!(folder.names().is_empty());
}

#[test]
fn the_emulated_ptx_passes_the_check_and_prints_its_counters() {
    let folder = Folder::new("emulator");
    let (input, output) = (folder.path("in"), folder.path("out"));
    for (dtype, head_dim) in [("f32", 64), ("f16", 128), ("f16", 256), ("bf16", 80)] {
        let options = format!(
            "--num-seqs 2 --ctx 70..150 --heads 6 --kv-heads 2 --dtype {dtype} --head-dim {head_dim}"
        );
        sample(&input, &options);
        let (_, text) = decode(&input, &output, "--device emulator --check --split 64");
        for expected in [
            format!("decode_{dtype}_d{head_dim}_"),
            format!("merge_{dtype}_d{head_dim}"),
            "warp instructions".into(),
            "k_cache sectors".into(),
            "largest error".into(),
        ] {
            assert!(text.contains(&expected), "{expected} in\n{text}");
        }
    }
}
