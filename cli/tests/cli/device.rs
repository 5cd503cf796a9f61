//! `decode --device`: what computes, and that it is said.

use crate::{Folder, run};

/// Runs `decode` on a small sample with these options.
fn decode(test: &str, options: &[&str]) -> crate::Run {
    let folder = Folder::new(test);
    let (input, output) = (folder.path("in"), folder.path("out"));
    let sample = "--num-seqs 2 --ctx 70..150 --heads 6 --kv-heads 2 --head-dim 64 --dtype f16";
    let sample: Vec<&str> = sample.split_whitespace().collect();
    run(&[&["sample", "-o", &input], &sample[..]].concat()).success();
    let decode = ["decode", "--input", &input, "--output", &output];
    let run = run(&[&decode, options].concat());
    let written = folder.names().contains(&"out".to_owned());
    assert_eq!(written, run.code == Some(0), "{}", run.stderr);
    run
}

/// What is said of the device.
#[track_caller]
fn device(text: &str) -> &str {
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with("device "));
    line.unwrap_or_else(|| panic!("no device in\n{text}"))
}

#[test]
fn the_cpu_computes_where_it_is_named() {
    let text = decode("device-cpu", &["--device", "cpu", "--check"]).success();
    assert!(device(&text).contains("CPU"), "{text}");
}

#[cfg(not(feature = "cuda"))]
mod without_cuda {
    use super::*;

    #[test]
    fn auto_is_the_cpu() {
        let text = decode("device-auto", &["--device", "auto", "--check"]).success();
        assert!(device(&text).contains("CPU"), "{text}");
    }

    #[test]
    fn a_cuda_device_is_refused() {
        assert_eq!(
            decode("device-cuda", &["--device", "cuda"]).failure(),
            "--device cuda: this program is built without its feature `cuda`, must be built with it"
        );
    }
}

#[cfg(feature = "cuda")]
mod with_cuda {
    use super::*;

    #[test]
    fn a_cuda_device_computes_where_it_is_named_and_where_it_answers() {
        for name in ["cuda", "auto"] {
            let options = ["--device", name, "--check", "--split", "64"];
            let text = decode(&format!("device-{name}"), &options).success();
            assert!(device(&text).contains("CUDA"), "{text}");
            assert!(text.contains("largest error"), "{text}");
        }
    }
}
