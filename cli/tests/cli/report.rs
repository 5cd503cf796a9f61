//! `report`: tables and charts.

use crate::{Folder, names, run};

/// Tags that close in the order in which they were opened, and numbers in every coordinate.
#[track_caller]
fn assert_valid_svg(name: &str, svg: &str) {
    assert!(svg.starts_with("<svg "), "{name}: {svg:.60}");
    assert!(
        svg.contains("xmlns=\"http://www.w3.org/2000/svg\""),
        "{name}"
    );
    let mut open = Vec::new();
    for piece in svg.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').expect("the end of a tag");
        assert!(
            !tag.contains("NaN") && !tag.contains("inf"),
            "{name}: {tag}"
        );
        assert!(!text.contains('&') || text.contains(';'), "{name}: {text}");
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed.trim()), "{name}");
        } else if !tag.ends_with('/') {
            open.push(tag.split_whitespace().next().expect("a name"));
        }
    }
    assert!(open.is_empty(), "{name}: {open:?}");
}

fn charts(folder: &Folder) -> Vec<String> {
    let dir = folder.path("charts");
    let names = names(dir.as_ref());
    for name in &names {
        let svg = std::fs::read_to_string(format!("{dir}/{name}")).expect("a chart");
        assert_valid_svg(name, &svg);
        assert!(svg.matches("<text").count() > 5, "{name}");
    }
    names
}

#[test]
fn both_tables_and_their_charts_come_from_the_emulator() {
    let folder = Folder::new("report");
    let small = ["--ctx", "256", "--block-size", "1,16"];
    let text = run(&[&["report", "--out", &folder.path("charts")], &small[..]].concat()).success();
    for wanted in [
        "sm_90 instructions per K/V byte, main loop",
        "instructions ÷ contiguous, block 16",
        "Predicted bounds on K and V read",
        "A100",
        "H100",
        "H200",
        "MHA 32/32: instructions",
        "GQA 64/8: sectors",
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in\n{text}");
    }
    assert!(!text.contains("missed"), "{text}");
    // The two ratios to the twin differ by what is said of the splits.
    let splits = text.lines().find(|line| line.starts_with("  splits "));
    let splits: Vec<_> = splits.unwrap().split_whitespace().skip(1).collect();
    assert_eq!(splits, ["1", "1", "8"]);
    let flat: Vec<_> = text.split_whitespace().collect();
    let flat = flat.join(" ");
    for wanted in [
        "head_dim 128, splits of 512,",
        "has MHA and GQA in one split each",
    ] {
        assert!(flat.contains(wanted), "no {wanted:?} in\n{text}");
    }
    let published = text
        .lines()
        .filter(|line| line.contains("PagedAttention paper"));
    let published: Vec<_> = published.collect();
    assert!(published[1].contains("26.00 %") && published[1].ends_with(" 6.50 %"));
    let expected = [
        "paging_gqa_instructions.svg",
        "paging_gqa_sectors.svg",
        "paging_mha_instructions.svg",
        "paging_mha_sectors.svg",
        "targets.svg",
    ];
    assert_eq!(charts(&folder), expected);
}

#[test]
fn the_cpu_is_timed() {
    let folder = Folder::new("report-cpu");
    let words = [
        "report",
        "--device",
        "cpu",
        "--ctx",
        "64",
        "--block-size",
        "16",
    ];
    let text = run(&[&words[..], &["--out", &folder.path("charts")]].concat()).success();
    assert!(text.contains("MHA 32/32: time"), "{text}");
    assert!(
        text.contains("GQA 64/8, block 16, worst context, time"),
        "{text}"
    );
    let expected = ["paging_gqa_time.svg", "paging_mha_time.svg", "targets.svg"];
    assert_eq!(charts(&folder), expected);
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_cuda_device_is_refused_before_any_work() {
    let folder = Folder::new("report-cuda");
    let run = run(&[
        "report",
        "--device",
        "cuda",
        "--out",
        &folder.path("charts"),
    ]);
    assert_eq!(run.stdout, "");
    assert_eq!(
        run.failure(),
        "--device cuda: this program is built without its feature `cuda`, must be built with it"
    );
    assert_eq!(folder.names(), [""; 0]);
}

/// Both kernels, verified and timed; of the emulated driver's times nothing is made.
#[cfg(feature = "cuda")]
#[test]
fn a_cuda_device_is_timed() {
    let folder = Folder::new("report-cuda");
    let words = "report --device cuda --ctx 1,700 --block-size 1,16,48";
    let words: Vec<&str> = words.split(' ').collect();
    let text = run(&[&words[..], &["--out", &folder.path("charts")]].concat()).success();
    for wanted in ["MHA 32/32: time", "GQA 64/8: time"] {
        assert!(text.contains(wanted), "no {wanted:?} in\n{text}");
    }
    assert!(!text.contains("NaN"), "{text}");
    let emulated = text.contains("these times say nothing about a GPU");
    assert_eq!(
        emulated,
        text.contains("(emulated on the CPU, no GPU)"),
        "{text}"
    );
    for measured in ["GB/s of K and V", "GQA 64/8, block 48, worst context, time"] {
        assert_eq!(emulated, !text.contains(measured), "{text}");
    }
    let expected: &[&str] = match emulated {
        true => &["targets.svg"],
        false => &["paging_gqa_time.svg", "paging_mha_time.svg", "targets.svg"],
    };
    assert_eq!(charts(&folder), expected);
}

#[cfg(feature = "cuda")]
#[test]
fn a_machine_without_a_device_is_refused_before_any_work() {
    // The real driver's variable and the emulated one's.
    let none = [("CUDA_VISIBLE_DEVICES", ""), ("PTX_EMULATOR_DEVICES", "0")];
    let run = crate::run_in(&["report", "--device", "cuda"], &none);
    assert_eq!(run.stdout, "");
    let message = run.failure();
    assert!(message.contains("CUDA_ERROR_NO_DEVICE"), "{message}");
}

#[test]
fn numbers_out_of_range_are_refused() {
    for (option, value) in [
        ("--ctx", "0"),
        ("--block-size", "16,0"),
        ("--attention-share", "1.5"),
        ("--attention-share", "NaN"),
    ] {
        let run = run(&["report", option, value]);
        assert_eq!(run.code, Some(2), "{option} {value}: {}", run.stderr);
        assert!(run.stderr.contains(option), "{}", run.stderr);
    }
}
