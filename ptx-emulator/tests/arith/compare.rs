//! `setp` and `set` with every operator, type and combination.

use crate::harness::{Pair, Value, binary, ternary};
use crate::reference::{BF16, F16, flush};

type Relation = fn(Option<std::cmp::Ordering>) -> bool;

const ORDERED: [(&str, Relation); 6] = [
    ("eq", |o| o.is_some_and(|o| o.is_eq())),
    ("ne", |o| o.is_some_and(|o| o.is_ne())),
    ("lt", |o| o.is_some_and(|o| o.is_lt())),
    ("le", |o| o.is_some_and(|o| o.is_le())),
    ("gt", |o| o.is_some_and(|o| o.is_gt())),
    ("ge", |o| o.is_some_and(|o| o.is_ge())),
];

/// The unsigned operators of unsigned types.
const UNSIGNED: [(&str, Relation); 4] = [
    ("lo", |o| o.is_some_and(|o| o.is_lt())),
    ("ls", |o| o.is_some_and(|o| o.is_le())),
    ("hi", |o| o.is_some_and(|o| o.is_gt())),
    ("hs", |o| o.is_some_and(|o| o.is_ge())),
];

const UNORDERED: [(&str, Relation); 8] = [
    ("equ", |o| o.is_none_or(|o| o.is_eq())),
    ("neu", |o| o.is_none_or(|o| o.is_ne())),
    ("ltu", |o| o.is_none_or(|o| o.is_lt())),
    ("leu", |o| o.is_none_or(|o| o.is_le())),
    ("gtu", |o| o.is_none_or(|o| o.is_gt())),
    ("geu", |o| o.is_none_or(|o| o.is_ge())),
    ("num", |o| o.is_some()),
    ("nan", |o| o.is_none()),
];

#[track_caller]
fn integers<T: Value + Ord>(ty: &str, operators: &[(&str, Relation)]) {
    for (op, relation) in operators {
        binary(&format!("setp.{op}.{ty}"), |a: T, b: T| {
            relation(Some(a.cmp(&b)))
        });
    }
}

#[track_caller]
fn floats<T: Value>(ty: &str, value: impl Fn(T) -> f64) {
    for (op, relation) in ORDERED.iter().chain(&UNORDERED) {
        binary(&format!("setp.{op}.{ty}"), |a: T, b: T| {
            relation(value(a).partial_cmp(&value(b)))
        });
    }
}

#[test]
fn setp_of_integers() {
    integers::<u16>("u16", &ORDERED);
    integers::<i16>("s16", &ORDERED);
    integers::<u32>("u32", &ORDERED);
    integers::<u32>("u32", &UNSIGNED);
    integers::<i32>("s32", &ORDERED);
    integers::<u64>("u64", &ORDERED);
    integers::<u64>("u64", &UNSIGNED);
    integers::<i64>("s64", &ORDERED);
    integers::<u16>("b16", &ORDERED[..2]);
    integers::<u32>("b32", &ORDERED[..2]);
    integers::<u64>("b64", &ORDERED[..2]);
}

#[test]
fn setp_of_floats_knows_nan() {
    floats::<f32>("f32", |x| x.into());
    floats::<f64>("f64", |x| x);
    floats::<F16>("f16", |x| x.value());
    floats::<BF16>("bf16", |x| x.value());
    binary("setp.eq.ftz.f32", |a: f32, b: f32| flush(a) == flush(b));
    binary("setp.gtu.ftz.f32", |a: f32, b: f32| {
        flush(a).partial_cmp(&flush(b)).is_none_or(|o| o.is_gt())
    });
}

#[test]
fn setp_combines_with_a_predicate() {
    ternary("setp.lt.and.s32", |a: i32, b: i32, c: bool| (a < b) & c);
    ternary("setp.lt.or.s32", |a: i32, b: i32, c: bool| (a < b) | c);
    ternary("setp.lt.xor.s32", |a: i32, b: i32, c: bool| (a < b) ^ c);
    ternary(
        "setp.gt.and.f32 %d, %a, %b, !%c;",
        |a: f32, b: f32, c: bool| (a > b) & !c,
    );
    // The second result is the complement of the comparison, combined too.
    ternary(
        "setp.lt.and.u32 %p1|%d, %a, %b, %c;",
        |a: u32, b: u32, c: bool| (a >= b) & c,
    );
    ternary(
        "setp.lt.or.u32 %d|%p1, %a, %b, %c;",
        |a: u32, b: u32, c: bool| (a < b) | c,
    );
    binary("setp.eq.f32 %p1|%d, %a, %b;", |a: f32, b: f32| !(a == b));
}

#[test]
fn set_gives_ones_or_one() {
    let ones = |x: bool| if x { u32::MAX } else { 0 };
    let one = |x: bool| if x { 1f32 } else { 0.0 };
    binary("set.lt.u32.s32", |a: i32, b: i32| ones(a < b));
    binary("set.hi.u32.u32", |a: u32, b: u32| ones(a > b));
    binary("set.neu.u32.f32", |a: f32, b: f32| ones(!(a == b)));
    binary("set.ge.f32.f32", |a: f32, b: f32| one(a >= b));
    binary("set.ne.f32.u64", |a: u64, b: u64| one(a != b));
    ternary("set.eq.and.u32.u32", |a: u32, b: u32, c: bool| {
        ones((a == b) & c)
    });
    binary("set.gt.f16x2.f16x2", |a: Pair<F16>, b: Pair<F16>| {
        let one = |x: bool| F16::nearest(if x { 1.0 } else { 0.0 });
        Pair(
            one(a.0.value() > b.0.value()),
            one(a.1.value() > b.1.value()),
        )
    });
}
