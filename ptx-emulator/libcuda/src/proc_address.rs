//! `cuGetProcAddress`: entry points by name and version.

use std::ffi::{c_int, c_uint, c_void};

use crate::boundary::{Export, In, Out, Text, entry_points};
use crate::error::Code;

/// Everything that is implemented.
fn all() -> impl Iterator<Item = Export> {
    [
        crate::context::exports(),
        crate::copy::exports(),
        crate::device::exports(),
        crate::error::exports(),
        crate::event::exports(),
        crate::function::exports(),
        crate::graph::exports(),
        crate::host_memory::exports(),
        crate::launch::exports(),
        crate::memory::exports(),
        crate::module::exports(),
        crate::occupancy::exports(),
        crate::pointer::exports(),
        crate::pool::exports(),
        crate::primary::exports(),
        exports(),
        crate::stream::exports(),
    ]
    .into_iter()
    .flatten()
}

/// A name without its `_v2` and the like.
fn base(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((base, digits)) if digits.bytes().all(|digit| digit.is_ascii_digit()) => base,
        _ => name,
    }
}

/// Other names under which newer versions are known.
fn alias(name: &str) -> &str {
    match name {
        "cuGraphInstantiateWithFlags" => "cuGraphInstantiate",
        _ => base(name),
    }
}

/// `CUdriverProcAddressQueryResult`: found, no such name, or only for newer versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Success = 0,
    NotFound = 1,
    VersionTooOld = 2,
}

/// The newest signature of a name that a client of a CUDA version knows.
fn find(name: &str, version: c_int) -> Result<Export, Status> {
    let named: Vec<Export> = all()
        .filter(|export| {
            export.name == name || base(export.name) == name || alias(export.name) == name
        })
        .collect();
    if named.is_empty() {
        return Err(Status::NotFound);
    }
    let known = named.into_iter().filter(|export| export.since <= version);
    known
        .max_by_key(|export| export.since)
        .ok_or(Status::VersionTooOld)
}

fn get(
    name: Text,
    address: Out<In<c_void>>,
    version: c_int,
    status: Out<c_uint>,
) -> Result<(), Code> {
    let name = name.get()?;
    address.required()?;
    match find(&name, version) {
        Ok(export) => {
            status.write_if_asked(Status::Success as c_uint);
            address.write(In::from(export.address.cast()))
        }
        Err(why) => {
            status.write_if_asked(why as c_uint);
            address.write(In::null())?;
            Err(Code::NOT_FOUND)
        }
    }
}

entry_points! {
    /// The address of an entry point.
    11030 fn cuGetProcAddress(name: Text, address: Out<In<c_void>>, version: c_int, _flags: u64) {
        get(name, address, version, Out::null())
    }

    /// The address of an entry point, and whether it was found.
    12000 fn cuGetProcAddress_v2(
        name: Text, address: Out<In<c_void>>, version: c_int, _flags: u64, status: Out<c_uint>,
    ) {
        get(name, address, version, status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, version: c_int) -> Result<&'static str, Status> {
        find(name, version).map(|export| export.name)
    }

    #[test]
    fn a_version_gets_the_newest_signature_it_knows() {
        assert_eq!(found("cuCtxCreate", 11030), Ok("cuCtxCreate_v2"));
        assert_eq!(found("cuCtxCreate", 12000), Ok("cuCtxCreate_v3"));
        assert_eq!(found("cuCtxCreate", 13000), Ok("cuCtxCreate_v4"));
        assert_eq!(found("cuGetProcAddress", 11030), Ok("cuGetProcAddress"));
        assert_eq!(found("cuGetProcAddress", 12000), Ok("cuGetProcAddress_v2"));
        assert_eq!(
            found("cuGraphInstantiate", 11000),
            Ok("cuGraphInstantiate_v2")
        );
        assert_eq!(
            found("cuGraphInstantiate", 12000),
            Ok("cuGraphInstantiateWithFlags")
        );
        assert_eq!(found("cuMemAlloc", 13000), Ok("cuMemAlloc_v2"));
    }

    #[test]
    fn unknown_names_and_older_versions_differ() {
        assert_eq!(found("cuArrayCreate", 13000), Err(Status::NotFound));
        assert_eq!(found("cuLaunchKernelEx", 11000), Err(Status::VersionTooOld));
    }
}
