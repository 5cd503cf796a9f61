//! `demo`, `ptx` and the command line itself.

use std::path::Path;

use paged_attention::artefacts::PtxSet;

use crate::{Folder, names, run};

/// The number at the end of the line that starts with `label`.
#[track_caller]
fn number_after(text: &str, label: &str) -> f64 {
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with(label));
    let line = line.unwrap_or_else(|| panic!("no line {label:?} in\n{text}"));
    let word = line.split_whitespace().last().expect("a word");
    word.parse()
        .unwrap_or_else(|_| panic!("{word:?} is no number"))
}

#[test]
fn demo_agrees_with_contiguous_attention_and_the_reference() {
    for (dtype, bound) in [("f32", 1e-5), ("f16", 1e-3), ("bf16", 8e-3)] {
        let text = run(&["demo", "--dtype", dtype]).success();
        for row in ["0-15", "16-31", "32-47", "48-59"] {
            assert!(
                text.lines().any(|line| line.trim_start().starts_with(row)),
                "{text}"
            );
        }
        assert!(number_after(&text, "to reference") <= bound, "{text}");
        assert_eq!(number_after(&text, "to contiguous"), 0.0, "{text}");
    }
}

#[test]
fn demo_prints_the_same_for_the_same_seed() {
    let demo = |seed| run(&["demo", "--seed", seed]).success();
    assert_eq!(demo("5"), demo("5"));
    assert_ne!(demo("5"), demo("6"));
}

#[test]
fn ptx_list_names_every_file_and_every_entry() {
    let set = PtxSet::embedded();
    assert!(!set.manifest().entries.is_empty());
    let files = run(&["ptx", "list"]).success();
    for (name, _) in set.files() {
        let lines = files
            .lines()
            .filter(|line| line.contains(&format!(" {name} ")));
        assert_eq!(lines.count(), 1, "{name} in\n{files}");
    }
    let entries = run(&["ptx", "list", "--entries"]).success();
    for entry in &set.manifest().entries {
        let symbol = &entry.symbol;
        assert!(entries.contains(symbol.as_str()), "{symbol} in\n{entries}");
    }
}

#[test]
fn ptx_export_writes_a_set_that_loads_again() {
    let folder = Folder::new("export");
    let dir = folder.path("a/b");
    run(&["ptx", "export", &dir]).success();
    let loaded = PtxSet::load(Path::new(&dir)).expect("the exported set is consistent");
    assert_eq!(&loaded, PtxSet::embedded());
    let files = PtxSet::embedded().files().count() + 1;
    assert_eq!(
        names(Path::new(&dir)).len(),
        files,
        "the files, the manifest, no more"
    );
    // A second time over the first.
    run(&["ptx", "export", &dir]).success();
    assert_eq!(names(Path::new(&dir)).len(), files);
}

#[test]
fn ptx_export_onto_a_file_says_so() {
    let folder = Folder::new("export-file");
    let file = folder.path("file");
    std::fs::write(&file, "").unwrap();
    let message = run(&["ptx", "export", &file]).failure();
    assert!(
        message.starts_with(&format!("cannot write {file}: ")),
        "{message}"
    );
}

#[test]
fn misuse_is_refused_with_usage() {
    for args in [
        &[] as &[&str],
        &["decode"],
        &[
            "decode", "--input", "a", "--output", "b", "--device", "abacus",
        ],
        &["sample", "-o", "a", "--ctx", "9..3"],
        &["demo", "--dtype", "f64"],
    ] {
        let run = run(args);
        assert_eq!(run.code, Some(2), "{args:?}");
        assert!(
            run.stderr.contains("Usage") || run.stderr.contains("--help"),
            "{}",
            run.stderr
        );
    }
}

#[test]
fn every_help_fits_a_terminal() {
    for command in [
        &[] as &[&str],
        &["demo"],
        &["sample"],
        &["decode"],
        &["ptx"],
        &["ptx", "list"],
        &["ptx", "export"],
    ] {
        for flag in ["-h", "--help"] {
            let text = run(&[command, &[flag]].concat()).success();
            for line in text.lines() {
                let width = line.chars().count();
                assert!(width <= 110, "{command:?} {flag}: {width} columns: {line}");
            }
        }
    }
}
