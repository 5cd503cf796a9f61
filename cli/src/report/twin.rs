//! The contiguous twin: the decode body for f16, head_dim 128, with contiguous addresses in place of
//! the table. No kernel to ship: it is there to be compared with.

use paged_attention::DType;
use paged_attention::artefacts::{PtxSet, file_name, manifest};

const TEXT: &str = include_str!("../../ptx/contiguous_f16_d128.ptx");

/// The twin under the name of the entry whose twin it is, so that every back end runs it in that
/// one's place. The set holds nothing else.
pub fn set() -> PtxSet {
    let text = TEXT.replace("contiguous", "decode");
    let mut manifest = manifest().clone();
    let entries = &mut manifest.entries;
    entries.retain(|entry| text.contains(&format!(".entry {}(", entry.symbol)));
    let file = file_name(DType::F16, 128);
    PtxSet::new(&manifest.to_json(), [(file, text.into())].into())
        .expect("the twin that is carried has the interface of its entry")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_set_holds_the_twin_and_its_merge_alone() {
        let set = super::set();
        let entries = set.manifest().entries.iter();
        let symbols: Vec<_> = entries.map(|entry| entry.symbol.as_str()).collect();
        assert_eq!(symbols, ["decode_f16_d128_mma", "merge_f16_d128"]);
    }
}
