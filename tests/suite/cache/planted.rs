//! Planted bugs in the cache kernels, and what notices each.

use paged_attention::Error;
use paged_attention::kernels::variants::CacheKind;
use ptx_emulator::FaultKind;

use super::case::CacheCase;
use super::runner::{check, validate};
use super::world::{Call, Table, World};
use super::{far, runner};
use crate::backend::{DTYPES, Ptx};
use crate::planted::edit::{Instruction, Which, edited, set_with};

#[track_caller]
fn planted(
    kind: CacheKind,
    which: Which,
    edit: impl Fn(&Instruction<'_>) -> Option<String>,
) -> Ptx {
    let (file, text) = edited(kind.entry(), which, edit);
    Ptx::new(set_with(&file, &text))
}

/// Half of every 16 bytes is left as it was.
#[test]
fn stores_of_8_bytes_are_noticed() {
    for kind in CacheKind::ALL {
        let ptx = planted(kind, Which::Every, |i| {
            let (to, values) = (i.operands.first()?, i.operands.get(1)?);
            let mut values = values.trim_matches(['{', '}']).split(',');
            let (a, b) = (values.next()?, values.next()?);
            i.opcode
                .starts_with("st.global.v4")
                .then(|| format!("st.global.v2.b32 {to},{{{a},{b}}};"))
        });
        let mut world = World::new(&CacheCase::new(DTYPES[1], 4, 4));
        let (caches, rows) = (world.caches(true), world.rows(3));
        let table = Table {
            entries: vec![2],
            num_seqs: 1,
            width: 1,
            stride: 1,
        };
        let call = match kind {
            CacheKind::ReshapeAndCache => Call::Write {
                rows: &rows,
                caches: &caches,
                slots: &[5, 0, 7],
            },
            CacheKind::CopyBlocks => Call::Copy {
                caches: &caches,
                pairs: &[[0, 3]],
            },
            CacheKind::GatherCache => Call::Gather {
                caches: &caches,
                table: &table,
                lens: &[3],
                rows: &rows,
            },
        };
        let error = check(&ptx, &mut world, &call).expect_err("not noticed");
        assert!(error.contains("bytes of"), "{error}");
    }
}

/// Negative slots are taken for slots: the row that is read then is not there.
#[test]
fn a_missing_check_for_negative_slots_is_noticed() {
    let kind = CacheKind::ReshapeAndCache;
    let ptx = planted(kind, Which::Nth(0), |i| {
        let branch = i.opcode.starts_with('@') && i.operands[0].starts_with("bra");
        branch.then(String::new)
    });
    let mut world = World::new(&CacheCase::new(DTYPES[1], 4, 4));
    let (caches, rows) = (world.caches(true), world.rows(2));
    let call = Call::Write {
        rows: &rows,
        caches: &caches,
        slots: &[5, -1],
    };
    validate(&world.case, &call).unwrap();
    let error = runner::launch(&ptx, &mut world, &call).expect_err("not noticed");
    let Error::Emulated { source, .. } = error else {
        panic!("{error}")
    };
    let ptx_emulator::Error::Fault(fault) = source else {
        panic!("{source}")
    };
    assert!(
        matches!(fault.kind, FaultKind::Uninitialised { .. }),
        "{fault}"
    );
}

/// Products of 32 bits.
#[test]
fn offsets_of_32_bits_are_noticed() {
    let ptx = planted(CacheKind::ReshapeAndCache, Which::Every, |i| {
        (i.opcode == "mad.lo.s64").then(|| {
            let [to, a, b, c] = i.operands[..] else {
                panic!("{:?}", i.operands)
            };
            format!(
                "{{ .reg .b32 x,y; .reg .b64 z; cvt.u32.u64 x,{a}; cvt.u32.u64 y,{b}; \
                 mul.lo.s32 x,x,y; cvt.s64.s32 z,x; add.s64 {to},z,{c}; }}"
            )
        })
    });
    for place in crate::far::PLACES {
        let error = far::write(&ptx, place).expect_err("not noticed");
        assert!(error.to_string().contains("out of bounds"), "{error}");
    }
}
