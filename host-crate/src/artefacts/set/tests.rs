//! What a set must be to load, and what is found in it.

use super::*;
use crate::artefacts::file_name;

fn sample() -> (Manifest, BTreeMap<String, Cow<'static, str>>) {
    let decode = ManifestEntry::decode(&DECODE[0], "7.0", "sm_80");
    let merge = ManifestEntry::merge(&MERGE[0], "7.0", "sm_80");
    let text = format!(
        "//\n.version 7.0\n.target sm_80\n.visible .entry {}(\n.visible .entry {} (\n",
        decode.symbol, merge.symbol
    );
    let files = [(decode.file.clone(), text.into())].into();
    let manifest = Manifest {
        abi_version: ABI_VERSION,
        compiler: "rustc".into(),
        source_hash: "00".into(),
        ptx_version: "7.0".into(),
        least_driver: LeastDriver::of("7.0"),
        entries: vec![decode, merge],
    };
    (manifest, files)
}

fn build(manifest: &Manifest, files: BTreeMap<String, Cow<'static, str>>) -> Result<PtxSet, Error> {
    PtxSet::new(&serde_json::to_string(manifest).unwrap(), files)
}

#[test]
fn the_embedded_set_is_consistent() {
    PtxSet::compiled_in(embedded::MANIFEST, embedded::FILES).unwrap();
    let [first, ..] = PtxSet::all_embedded()[..] else {
        panic!("no set")
    };
    assert_eq!(first, ("default", PtxSet::embedded()));
    assert_eq!(PtxSet::embedded().source_note(), None);
}

/// All that the default set holds, for the same interface.
#[cfg(feature = "rust-cuda-ptx")]
#[test]
fn the_embedded_rust_cuda_set_is_consistent_and_complete() {
    use super::super::embedded_rust_cuda::{FILES, MANIFEST};
    let set = PtxSet::compiled_in(MANIFEST, FILES).unwrap();
    let symbols = |set: &PtxSet| -> Vec<String> {
        let entries = set.manifest().entries.iter();
        entries.map(|entry| entry.symbol.clone()).collect()
    };
    assert_eq!(symbols(&set), symbols(PtxSet::embedded()));
    let names: Vec<&str> = PtxSet::all_embedded()
        .iter()
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(names, ["default", "rust-cuda"]);
}

#[test]
fn a_set_from_another_source_carries_a_note() {
    let (manifest, files) = sample();
    let note = build(&manifest, files).unwrap().source_note().unwrap();
    let present = &PtxSet::embedded().manifest().source_hash;
    assert_eq!(
        note,
        format!(
            "built from kernel source 00, the default set from {present}: the same interface \
             (ABI version {ABI_VERSION}), other instructions"
        )
    );
}

#[test]
fn another_driver_than_the_ptx_version_needs_is_refused() {
    let (mut manifest, files) = sample();
    manifest.least_driver = LeastDriver::of("7.1");
    assert_eq!(
        build(&manifest, files.clone()).unwrap_err().to_string(),
        "ptx: decode_f32_d32_h1 in f32_d32.ptx has least_driver CUDA 11.1, on Linux 455 or later, \
         must have CUDA 11.0, on Linux 450 or later"
    );
    manifest.least_driver = None;
    let error = build(&manifest, files).unwrap_err();
    assert!(error.to_string().contains("least_driver none"), "{error}");
}

#[test]
fn a_folder_round_trips() {
    let dir = std::env::temp_dir().join(format!("paged-attention-set-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (manifest, files) = sample();
    std::fs::write(dir.join(MANIFEST_FILE), manifest.to_json()).unwrap();
    for (name, text) in &files {
        std::fs::write(dir.join(name), text.as_bytes()).unwrap();
    }
    let loaded = PtxSet::load(&dir);
    std::fs::remove_file(dir.join("f32_d32.ptx")).unwrap();
    let missing = PtxSet::load(&dir);
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(loaded, build(&manifest, files));
    let path = dir.join("f32_d32.ptx");
    let kind = std::io::ErrorKind::NotFound;
    let text = format!("ptx: cannot read {}: entity not found", path.display());
    let missing = missing.unwrap_err();
    assert_eq!(missing.to_string(), text);
    assert_eq!(missing, Error::ArtefactUnreadable { path, kind });
}

/// Reading them might never end.
#[cfg(unix)]
#[test]
fn pipes_devices_and_folders_in_place_of_files_are_refused() {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    let name = format!("paged-attention-pipes-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    let make: [fn(&Path); 3] = [
        |path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
        |path| symlink("/dev/zero", path).unwrap(),
        |path| std::fs::create_dir(path).unwrap(),
    ];
    let (manifest, files) = sample();
    for make in make {
        for file in [MANIFEST_FILE, "f32_d32.ptx"] {
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::write(dir.join(MANIFEST_FILE), manifest.to_json()).unwrap();
            for (name, text) in &files {
                std::fs::write(dir.join(name), text.as_bytes()).unwrap();
            }
            let path = dir.join(file);
            std::fs::remove_file(&path).unwrap();
            make(&path);
            let error = PtxSet::load(&dir);
            std::fs::remove_dir_all(&dir).unwrap();
            let error = error.unwrap_err();
            let place = path.display();
            assert_eq!(
                error.to_string(),
                format!("ptx: cannot read {place}: it is not a regular file")
            );
            assert_eq!(error, Error::ArtefactNotRegular { path });
        }
    }
}

#[test]
fn directives_and_entries_in_comments_do_not_count() {
    let (manifest, files) = sample();
    let with = |change: fn(&str) -> String| {
        let files = files.iter();
        let files = files.map(|(name, text)| (name.clone(), change(text).into()));
        build(&manifest, files.collect())
    };
    let before = |text: &str| format!("/*\n.version 6.0\n.target sm_50\n*/\n{text}");
    assert_eq!(with(before).map(drop), Ok(()));
    let commented = |text: &str| text.replace(".version 7.0", "/*\n.version 7.0\n*/");
    let error = with(commented).unwrap_err().to_string();
    assert!(
        error.ends_with("has ptx_version none, must have 7.0"),
        "{error}"
    );
    let commented = |text: &str| text.replace(".visible .entry merge", "// .visible .entry merge");
    let error = with(commented).unwrap_err().to_string();
    assert!(error.contains("has definition none"), "{error}");
}

#[test]
fn plans_find_their_entries() {
    let (manifest, files) = sample();
    let set = build(&manifest, files).unwrap();
    let config = crate::AttentionConfig::new(crate::DType::F32, 4, 4, 32, 16);
    let plan = |config| {
        let limits = crate::DeviceLimits::a100();
        Plan::new(&config, 1, 16, crate::SplitPolicy::Auto, &limits).unwrap()
    };
    let found = plan(config);
    let found = set.for_plan(&found).unwrap();
    assert_eq!((found.file, found.decode.head_dim), ("f32_d32.ptx", 32));
    assert!(found.text.starts_with("//\n.version"));
    let error = set.for_cache().unwrap_err();
    let symbol = "reshape_and_cache";
    assert_eq!(error, Error::MissingCacheEntry { symbol });
    assert_eq!(
        error.to_string(),
        "ptx: the manifest lists no entry reshape_and_cache, must list it for operations on the \
         cache"
    );
    let text = PtxSet::embedded().for_cache().unwrap();
    assert!(text.contains(".entry gather_cache"));

    let other = plan(crate::AttentionConfig {
        head_dim: 64,
        ..config
    });
    let error = set.for_plan(&other).unwrap_err();
    let (symbol, dtype, head_dim) = ("decode_f32_d64_h1", crate::DType::F32, 64);
    assert_eq!(
        error,
        Error::MissingEntry {
            symbol,
            dtype,
            head_dim
        }
    );
    assert_eq!(
        error.to_string(),
        "ptx: the manifest lists no entry decode_f32_d64_h1, must list it for f32 with head_dim 64"
    );
}

#[test]
fn other_abi_versions_are_refused() {
    let (mut manifest, files) = sample();
    manifest.abi_version += 1;
    let error = build(&manifest, files).unwrap_err();
    assert_eq!(
        error,
        Error::AbiVersion {
            found: ABI_VERSION + 1,
            expected: ABI_VERSION
        }
    );
    assert_eq!(
        error.to_string(),
        format!(
            "ptx: the manifest has abi_version {}, must have {ABI_VERSION}",
            ABI_VERSION + 1
        )
    );
}

#[test]
fn bad_manifests_are_refused_with_the_place() {
    let error = PtxSet::new("{\n \"abi_version\": 1,\n \"x\": 2}", BTreeMap::new()).unwrap_err();
    let Error::ManifestSyntax {
        line: 3,
        column,
        reason,
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(
        error.to_string(),
        format!("ptx: manifest.json line 3, column {column}: {reason}")
    );
    assert!(
        reason.contains("unknown field `x`") && !reason.contains("at line"),
        "{reason}"
    );
}

/// Each contradiction is refused, naming the property.
#[test]
fn contradictions_are_refused() {
    type Change = fn(&mut ManifestEntry);
    let cases: [(&str, Change); 11] = [
        ("file name", |e| e.file = "../f32_d32.ptx".into()),
        ("file", |e| e.file = "f32_d33.ptx".into()),
        ("kind", |e| e.kind = super::super::EntryKind::Merge),
        ("dtype", |e| e.dtype = "f16".into()),
        ("heads_per_tile", |e| e.heads_per_tile = 2),
        ("parameter", |e| e.parameter.fields[3].offset += 4),
        ("grid", |e| e.grid = "[1, 1, 1]".into()),
        ("block", |e| e.block = [64, 1, 1]),
        ("shared_bytes", |e| e.shared_bytes -= 1),
        ("ptx_version", |e| e.ptx_version = "8.0".into()),
        ("target", |e| e.target = "sm_90".into()),
    ];
    for (property, change) in cases {
        let (mut manifest, files) = sample();
        change(&mut manifest.entries[0]);
        match build(&manifest, files) {
            Err(Error::ArtefactMismatch {
                property: found,
                symbol,
                ..
            }) => {
                assert_eq!((found, symbol.as_str()), (property, DECODE[0].entry));
            }
            other => panic!("{property}: {other:?}"),
        }
    }
    let (manifest, mut files) = sample();
    for text in files.values_mut() {
        *text = text.replace(MERGE[0].entry, "merge_f32_d32x").into();
    }
    let error = build(&manifest, files).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ptx: merge_f32_d32 in f32_d32.ptx has definition none, must have .entry merge_f32_d32"
    );
}

#[test]
fn file_names_spell_dtype_and_head_dim() {
    assert_eq!(file_name(crate::DType::Bf16, 128), "bf16_d128.ptx");
}
