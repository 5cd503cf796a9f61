//! The modifiers of one instruction. Those a decoder does not take make it unsupported.

use super::{Cx, Res};
use crate::arith::{Rounding, ScalarType};

pub(super) struct Mods<'a> {
    left: Vec<&'a str>,
}

impl<'a> Mods<'a> {
    pub(super) fn new(parts: impl Iterator<Item = &'a str>) -> Self {
        Mods {
            left: parts.collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Takes a modifier wherever it stands.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        match self.left.iter().position(|m| *m == name) {
            Some(at) => {
                self.left.remove(at);
                true
            }
            None => false,
        }
    }

    /// Takes the first that `f` knows.
    pub(super) fn find<T>(&mut self, f: impl Fn(&str) -> Option<T>) -> Option<T> {
        let (at, value) = self
            .left
            .iter()
            .enumerate()
            .find_map(|(at, m)| f(m).map(|value| (at, value)))?;
        self.left.remove(at);
        Some(value)
    }

    /// Drops all for which `f` holds.
    pub(super) fn drop_all(&mut self, f: impl Fn(&str) -> bool) {
        self.left.retain(|m| !f(m));
    }

    /// The last modifier, if it is a type.
    pub(super) fn last_type(&self) -> Option<ScalarType> {
        self.left.last().and_then(|m| ScalarType::from_suffix(m))
    }

    /// The first modifier that is a type.
    pub(super) fn take_type(&mut self) -> Option<ScalarType> {
        self.find(ScalarType::from_suffix)
    }

    pub(super) fn take_type_or(&mut self, cx: &Cx<'_>) -> Res<ScalarType> {
        self.take_type().ok_or_else(|| cx.unsupported())
    }

    /// A type that must be one of `allowed`.
    pub(super) fn type_of(&mut self, cx: &Cx<'_>, allowed: &[ScalarType]) -> Res<ScalarType> {
        let ty = self.take_type_or(cx)?;
        if allowed.contains(&ty) {
            Ok(ty)
        } else {
            Err(cx.unsupported())
        }
    }

    pub(super) fn rounding(&mut self) -> Option<Rounding> {
        self.find(|m| match m {
            "rn" => Some(Rounding::Rn),
            "rz" => Some(Rounding::Rz),
            "rm" => Some(Rounding::Rm),
            "rp" => Some(Rounding::Rp),
            "rna" => Some(Rounding::Rna),
            _ => None,
        })
    }
}
