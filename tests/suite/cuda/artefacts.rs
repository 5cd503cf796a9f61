//! Artefacts that a driver or a set cannot serve: each refusal names what it lacks.

use std::path::PathBuf;

use paged_attention::artefacts::{Manifest, PtxSet};
use paged_attention::cuda::CudaBackend;
use paged_attention::{DType, Error};

use super::{case, untouched};
use crate::backend::cuda::{Tensors, cuda, stream};
use crate::batch::Batch;
use crate::case::Case;

/// A folder with a copy of the embedded artefacts, changed.
struct Artefacts(PathBuf);

impl Artefacts {
    /// `change` gets every file's text, the manifest's included.
    fn new(name: &str, change: impl Fn(&str, &str) -> String) -> Self {
        let dir = format!("paged-attention-suite-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        std::fs::create_dir_all(&dir).unwrap();
        let set = PtxSet::embedded();
        let manifest = set.manifest().to_json();
        let files = set.files().chain([("manifest.json", manifest.as_str())]);
        for (name, text) in files {
            std::fs::write(dir.join(name), change(name, text)).unwrap();
        }
        Self(dir)
    }

    fn backend(&self) -> CudaBackend {
        let set = PtxSet::load(&self.0).unwrap_or_else(|error| panic!("{error}"));
        CudaBackend::open(0).unwrap().with_ptx(set)
    }
}

impl Drop for Artefacts {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a back end says to [`case`], in three ways that must agree.
fn refusal(backend: &CudaBackend) -> Error {
    cuda().enter();
    let batch = Batch::new(&case());
    let mut tensors = Tensors::<f32>::upload(&batch);
    let stream = stream();
    let error = tensors.launch(backend, &stream, &batch).unwrap_err();
    assert_eq!(backend.prepare(&batch.plan), Err(error.clone()));
    stream.synchronize().unwrap();
    assert!(untouched(&tensors), "written although refused: {error}");
    error
}

#[test]
fn ptx_newer_than_the_driver_is_refused_with_both_versions() {
    let artefacts = Artefacts::new("newer-ptx", |_, text| {
        text.replace(".version 7.0", ".version 9.99")
            .replace("\"ptx_version\": \"7.0\"", "\"ptx_version\": \"9.99\"")
            .replace(
                "\"cuda\": \"11.0\",\n    \"linux\": 450",
                "\"cuda\": \"13.99\"",
            )
    });
    let backend = artefacts.backend();
    let (major, minor) = backend.driver_version();
    let text = format!(
        "ptx: f32_d64.ptx has PTX version 9.99 and needs a driver for CUDA 13.99, this driver is \
         for CUDA {major}.{minor}"
    );
    let error = refusal(&backend);
    assert_eq!(error.to_string(), text);
    assert_eq!(backend.supports(&case().config()), Err(error));
}

#[test]
fn ptx_for_a_newer_device_is_refused_with_both_targets() {
    let artefacts = Artefacts::new("newer-target", |_, text| {
        text.replace(".target sm_80", ".target sm_999")
            .replace("\"target\": \"sm_80\"", "\"target\": \"sm_999\"")
    });
    let backend = artefacts.backend();
    let (device, (major, minor)) = (backend.device_name(), backend.compute_capability());
    let text = format!(
        "ptx: f32_d64.ptx is built for sm_999, cannot run on {device} of compute capability \
         {major}.{minor}"
    );
    let error = refusal(&backend);
    assert_eq!(error.to_string(), text);
    assert_eq!(backend.supports(&case().config()), Err(error));
}

#[test]
fn ptx_that_the_driver_cannot_read_is_refused_with_its_name_and_log() {
    let artefacts = Artefacts::new("broken", |name, text| match name {
        "manifest.json" => text.into(),
        _ => text.replacen("ret;", "retire;", 1),
    });
    let error = refusal(&artefacts.backend());
    let Error::Driver {
        call,
        subject,
        name,
        number,
        detail,
    } = &error
    else {
        panic!("{error}")
    };
    let found = (*call, subject.as_str(), name.as_str(), *number);
    let expected = (
        "cuModuleLoadDataEx",
        "f32_d64.ptx",
        "CUDA_ERROR_INVALID_PTX",
        218,
    );
    assert_eq!(found, expected, "{error}");
    assert!(detail.contains("retire"), "{error}");
}

#[test]
fn entries_that_the_artefacts_lack_are_refused() {
    let artefacts = Artefacts::new("fewer", |name, text| {
        if name != "manifest.json" {
            return text.into();
        }
        let mut manifest: Manifest = PtxSet::embedded().manifest().clone();
        manifest.entries.retain(|entry| entry.file == "f16_d64.ptx");
        manifest.to_json()
    });
    let backend = artefacts.backend();
    let error = refusal(&backend);
    let symbol = Batch::new(&case()).plan.decode_variant().entry;
    let expected =
        format!("ptx: the manifest lists no entry {symbol}, must list it for f32 with head_dim 64");
    assert_eq!(error.to_string(), expected);
    assert_eq!(backend.supports(&case().config()), Err(error));
    let listed = Case::new(DType::F16, 64, &[]).config();
    assert_eq!(backend.supports(&listed), Ok(()));
    let symbol = "reshape_and_cache";
    assert_eq!(
        backend.prepare_cache(),
        Err(Error::MissingCacheEntry { symbol })
    );
}
