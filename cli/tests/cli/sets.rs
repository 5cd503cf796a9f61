//! The sets of PTX: `ptx list`, `ptx export`, and `--ptx-set` of `decode`.

use std::path::Path;

use paged_attention::artefacts::PtxSet;

use crate::{Folder, run};

/// A small batch in a folder of the test's own.
fn sample(test: &str, dtype: &str) -> (Folder, String) {
    let folder = Folder::new(test);
    let input = folder.path("in");
    let sample = "--num-seqs 2 --ctx 70..150 --heads 6 --kv-heads 2 --head-dim 64 --block-size 12";
    let sample: Vec<&str> = sample.split_whitespace().collect();
    run(&[&["sample", "-o", &input, "--dtype", dtype], &sample[..]].concat()).success();
    (folder, input)
}

/// Decodes with these options, into `out`.
fn decode(folder: &Folder, input: &str, options: &[&str]) -> crate::Run {
    let output = folder.path("out");
    let decode = [
        "decode", "--input", input, "--output", &output, "--split", "64",
    ];
    run(&[&decode, options].concat())
}

/// Writes the default set into a folder, its manifest changed.
fn changed(folder: &Folder, change: impl Fn(&str) -> String) -> String {
    let dir = folder.path("set");
    run(&["ptx", "export", &dir]).success();
    let manifest = Path::new(&dir).join("manifest.json");
    let old = std::fs::read_to_string(&manifest).unwrap();
    let new = change(&old);
    assert_ne!(
        new, old,
        "the manifest has moved on, and the change must follow"
    );
    std::fs::write(manifest, new).unwrap();
    dir
}

#[test]
fn ptx_list_shows_each_set_with_its_compiler_ptx_version_and_least_driver() {
    let text = run(&["ptx", "list"]).success();
    let sets = PtxSet::all_embedded();
    assert_eq!(sets[0].0, "default");
    for (name, set) in sets {
        let manifest = set.manifest();
        let (_, section) = text
            .split_once(&format!("{name}\n"))
            .unwrap_or_else(|| panic!("no {name} in\n{text}"));
        let section = section.split("\n\n").next().unwrap();
        let driver = manifest.least_driver.as_ref().unwrap().to_string();
        for (label, value) in [
            ("compiler", &manifest.compiler),
            ("PTX version", &manifest.ptx_version),
            ("least driver", &driver),
            ("kernel source", &manifest.source_hash),
        ] {
            let line = section
                .lines()
                .find(|line| line.trim_start().starts_with(label));
            let line = line.unwrap_or_else(|| panic!("no {label} in\n{section}"));
            assert!(line.ends_with(value.as_str()), "{value} in {line}");
        }
        assert_eq!(section.contains("note"), set.source_note().is_some());
    }
    assert!(text.contains("CUDA 11.0, on Linux 450 or later"), "{text}");
}

#[test]
fn help_names_the_sets_that_there_are_and_no_others() {
    let names: Vec<String> = PtxSet::all_embedded()
        .iter()
        .map(|(name, _)| format!("`{name}`"))
        .collect();
    for (command, what, or) in [
        (
            &["decode"][..],
            "PTX that --device cuda or emulator runs",
            "a folder",
        ),
        (&["ptx", "export"], "What to write", "another folder"),
    ] {
        let line = format!("{what}: {} or {or}", names.join(", "));
        for option in ["-h", "--help"] {
            let text = run(&[command, &[option]].concat()).success();
            assert!(text.contains(&line), "{line} in\n{text}");
        }
    }
}

#[test]
fn each_set_exports_and_loads_again() {
    let folder = Folder::new("sets-export");
    for (name, set) in PtxSet::all_embedded() {
        let dir = folder.path(name);
        run(&["ptx", "export", &dir, "--ptx-set", name]).success();
        assert_eq!(&PtxSet::load(Path::new(&dir)).unwrap(), set);
    }
}

#[test]
fn each_set_decodes_within_the_bound() {
    for dtype in ["f32", "bf16"] {
        let (folder, input) = sample(&format!("sets-{dtype}"), dtype);
        for (name, set) in PtxSet::all_embedded() {
            let options = ["--device", "emulator", "--check", "--ptx-set", name];
            let text = decode(&folder, &input, &options).success();
            let line = format!("{name}, by {}", set.manifest().compiler);
            assert!(text.contains(&line), "{line} in\n{text}");
            assert!(text.contains("largest error"), "{text}");
        }
    }
}

#[test]
fn a_set_in_a_folder_computes_the_same_and_says_its_source() {
    let (folder, input) = sample("sets-folder", "f16");
    let result = |set: &str| {
        let options = ["--device", "emulator", "--check", "--ptx-set", set];
        let text = decode(&folder, &input, &options).success();
        (text, std::fs::read(folder.path("out")).unwrap())
    };
    let (text, default) = result("default");
    assert!(!text.contains("built from kernel source"), "{text}");
    let present = &PtxSet::embedded().manifest().source_hash;
    let dir = changed(&folder, |text| text.replace(present, "0123456789abcdef"));
    let (text, found) = result(&dir);
    let note = format!("built from kernel source 0123456789abcdef, the default set from {present}");
    assert!(text.contains(&dir) && text.contains(&note), "{text}");
    assert!(found == default, "the same PTX, other bits");
}

#[test]
fn a_set_of_another_abi_version_is_refused() {
    let (folder, input) = sample("sets-abi", "f16");
    let dir = changed(&folder, |text| {
        text.replacen("\"abi_version\": ", "\"abi_version\": 9", 1)
    });
    let present = PtxSet::embedded().manifest().abi_version;
    for command in [
        &[
            "decode", "-i", &input, "-o", "never", "--device", "emulator",
        ][..],
        &["ptx", "export", "never"],
    ] {
        let run = run(&[command, &["--ptx-set", &dir]].concat());
        assert_eq!(
            run.failure(),
            format!("ptx: the manifest has abi_version 9{present}, must have {present}")
        );
    }
}

#[test]
fn texts_of_a_manifest_reach_the_terminal_escaped() {
    let (folder, input) = sample("sets-escaped", "f16");
    let options = |set| ["--device", "emulator", "--ptx-set", set];
    let present = &PtxSet::embedded().manifest().source_hash;
    let long = "x".repeat(1000);
    let dir = changed(&folder, |text| {
        let text = text.replace(present, "\\u001b[2J\\n");
        text.replace(
            "\"compiler\": \"",
            &format!("\"compiler\": \"\\u001b]0;{long}"),
        )
    });
    let text = decode(&folder, &input, &options(&dir)).success();
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert!(text.contains("by \\u{1b}]0;xxx"), "{text}");
    assert!(!text.contains(&long), "{text}");
    assert!(
        text.contains("kernel source \\u{1b}[2J\\n, the default"),
        "{text}"
    );
    let symbol = "\"symbol\": \"decode_f32_d32_h1";
    let manifest = Path::new(&dir).join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let text = text.replace(symbol, &format!("{symbol}\\u001b[2J"));
    std::fs::write(manifest, text).unwrap();
    assert_eq!(
        decode(&folder, &input, &options(&dir)).failure(),
        "ptx: decode_f32_d32_h1\\u{1b}[2J in f32_d32.ptx has definition none, must have .entry \
         decode_f32_d32_h1\\u{1b}[2J"
    );
}

#[cfg(unix)]
#[test]
fn a_pipe_in_place_of_a_ptx_file_is_refused() {
    let (folder, input) = sample("sets-pipe", "f16");
    let dir = folder.path("set");
    run(&["ptx", "export", &dir]).success();
    let file = Path::new(&dir).join("f16_d64.ptx");
    std::fs::remove_file(&file).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&file).status();
    assert!(made.unwrap().success());
    let options = ["--device", "emulator", "--ptx-set", &dir];
    assert_eq!(
        decode(&folder, &input, &options).failure(),
        format!(
            "ptx: cannot read {}: it is not a regular file",
            file.display()
        )
    );
}

#[test]
fn sets_that_are_not_there_are_refused() {
    let (folder, input) = sample("sets-missing", "f16");
    let run = decode(
        &folder,
        &input,
        &["--device", "emulator", "--ptx-set", "abacus"],
    );
    assert_eq!(run.code, Some(2));
    let names: Vec<&str> = PtxSet::all_embedded()
        .iter()
        .map(|(name, _)| *name)
        .collect();
    let text = format!(
        "`abacus` must be {}, or a folder with a manifest.json",
        names.join(" or ")
    );
    assert!(run.stderr.contains(&text), "{}", run.stderr);
    let empty = folder.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let run = decode(
        &folder,
        &input,
        &["--device", "emulator", "--ptx-set", &empty],
    );
    let manifest = Path::new(&empty).join("manifest.json");
    assert_eq!(
        run.failure(),
        format!("ptx: cannot read {}: entity not found", manifest.display())
    );
}

#[test]
fn a_set_is_refused_where_no_ptx_may_run() {
    let (folder, input) = sample("sets-cpu", "f16");
    for device in ["cpu", "auto"] {
        let options = ["--device", device, "--ptx-set", "default"];
        assert_eq!(
            decode(&folder, &input, &options).failure(),
            "--ptx-set default: needs a device that runs PTX, must come with --device cuda or \
             emulator"
        );
    }
}

#[test]
fn an_export_that_fails_leaves_no_manifest_of_another_set() {
    let folder = Folder::new("export-fails");
    let dir = folder.path("set");
    run(&["ptx", "export", &dir]).success();
    let file = Path::new(&dir).join("f32_d32.ptx");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert!(
        run(&["ptx", "export", &dir])
            .failure()
            .contains("f32_d32.ptx")
    );
    assert!(!Path::new(&dir).join("manifest.json").exists());
}
