//! Every instruction set of this machine, against f64 and against itself.

mod batch;
mod bounds;
mod exp2;
mod infinities;
mod invariance;

use super::InstructionSet;

/// The sets that this machine has; the others cannot run here.
fn sets() -> impl Iterator<Item = InstructionSet> {
    InstructionSet::ALL
        .iter()
        .copied()
        .filter(|set| set.is_available())
}

#[test]
fn the_fastest_available_set_is_detected() {
    assert_eq!(Some(InstructionSet::detect()), sets().last());
    assert!(InstructionSet::Portable.is_available());
}
