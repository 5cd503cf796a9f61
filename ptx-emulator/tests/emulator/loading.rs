//! What is loaded, what is refused, and that nothing makes the loader panic.

use proptest::prelude::*;
use ptx_emulator::{LoadError, Module, OPCODES};

use crate::support::{cases, load, module};

#[track_caller]
fn refused(body: &str) -> String {
    match Module::parse(&module("", body)) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("loaded: {body}"),
    }
}

#[test]
fn unsupported_instructions_are_named_with_their_line() {
    let cases = [
        "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [tex, {%f1, %f2}]",
        "wgmma.fence.sync.aligned",
        "add.rn.bf16x3 %r1, %r2, %r3",
        "ld.global.v8.u32 %r1, [%rd1]",
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 %r1, %r1, %r1, %r1",
        "shfl.bfly.b32 %r1, %r1, 1, 31",
        "cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2",
        "mbarrier.init.shared.b64 [%rd1], 1",
        "min.sat.f32 %f1, %f1, %f2",
        "cp.async.bulk.commit_group",
        "fence.proxy.async",
    ];
    for case in cases {
        let opcode = case.split(' ').next().expect("an opcode");
        let wanted = format!("line 10: `{opcode}` is not supported by the emulator");
        assert_eq!(refused(&format!("\n{case};")), wanted);
    }
}

#[test]
fn mistakes_are_located() {
    assert_eq!(
        refused("\nadd.u32 %r1, %r2;"),
        "line 10: `add.u32`: operand 2 must be present, it is missing"
    );
    assert_eq!(
        refused("\nadd.u32 %r1, %rd2, 1;"),
        "line 10: `add.u32`: operand 1 must be a source of 32 bits, it is a register"
    );
    assert_eq!(
        refused("\nbra NOWHERE;"),
        "line 10: label `NOWHERE` is not defined in this module"
    );
    assert_eq!(
        refused("\nmov.u32 %r99, 1;"),
        "line 10: register `%r99` is not defined in this module"
    );
    assert_eq!(
        refused("\nld.global.u32 %r1, [ghost];"),
        "line 10: variable `ghost` is not defined in this module"
    );
    assert_eq!(
        refused("\ncall ghost;"),
        "line 10: function `ghost` is not defined in this module"
    );
    assert_eq!(
        refused("\nA: ret; A: ret;"),
        "line 10: `A` is already defined"
    );
    assert_eq!(
        refused("\nadd.u32 %r1 %r2, 1;"),
        "line 10: expected `,`, found `%r2`"
    );
    assert_eq!(
        refused("\n.reg .b32 %x<9999999999>;"),
        "line 10: the number of registers is 9999999111, must be at most 1048576"
            .replace("9999999111", &(9_999_999_999u64 + 96).to_string())
    );
}

#[test]
fn recursion_and_external_functions_are_refused() {
    let recursive = ".version 7.0 .target sm_80 .address_size 64
        .func f() { call f; ret; }";
    let error = Module::parse(recursive).err().map(|e| e.to_string());
    assert_eq!(
        error.as_deref(),
        Some("line 2: `recursive call of f` is not supported by the emulator")
    );
    let external = ".version 7.0 .target sm_80 .address_size 64
        .extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
        .visible .entry k() { .param .b32 r; .param .b64 a; call (r), vprintf, (a, a); ret; }";
    let error = Module::parse(external).err().map(|e| e.to_string());
    let wanted = "line 3: `call of the external function vprintf` is not supported by the emulator";
    assert_eq!(error.as_deref(), Some(wanted));
}

#[test]
fn debug_information_pragmas_and_hints_are_skipped() {
    let text = ".version 7.8\n.target sm_80, debug\n.address_size 64\n.file 1 \"a.rs\"\n\
        /* a comment\n over lines */\n.visible .entry test(\n.param .u64 .ptr .global .align 16 out)\n\
        .minnctapersm 2\n{\n.loc 1 3 4, function_name $L__info, inlined_at 1 2 3\n\
        .pragma \"nounroll\";\n{ .reg .b32 tmp; mov.u32 tmp, 1; { .reg .b64 tmp; mov.u64 tmp, 2; } }\n\
        $L__tmp0:\nprefetch.global.L2 [out];\nret;\n}\n.section .debug_str { .b8 1 $L: .b8 2 }\n";
    assert_eq!(load(text).entries().len(), 1);
}

#[test]
fn labels_and_registers_obey_scopes() {
    let body = "{ .reg .pred p; setp.eq.u32 p, %r1, %r1; @p bra DONE; trap; DONE: }
                { .reg .pred p; setp.eq.u32 p, %r1, %r1; @p bra DONE; trap; DONE: } ret;";
    load(&module("", body));
    let outside = refused("\n{ .reg .b32 inner; } mov.u32 inner, 1;");
    assert_eq!(
        outside,
        "line 10: `mov.u32`: operand 0 must be a register of 32 bits, it is `inner`"
    );
}

#[test]
fn the_opcode_table_has_no_row_twice() {
    let mut sorted = OPCODES.to_vec();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), OPCODES.len());
}

/// Texts to mutate: our own kernels in small, another compiler's, and one program per fault.
fn seeds() -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut out = vec![include_str!("../foreign/attention.ptx").to_string()];
    for entry in std::fs::read_dir(folder.join("ptx")).expect("the folder") {
        out.push(std::fs::read_to_string(entry.expect("an entry").path()).expect("text"));
    }
    out.sort();
    out
}

/// Replaces, removes, repeats or moves a piece of the text.
fn mutate(text: &str, edits: &[(u8, u32, u32, u8)]) -> String {
    const PIECES: &[&str] = &[
        "<",
        ">",
        "{",
        "}",
        "(",
        ")",
        "[",
        "]",
        ";",
        ",",
        ":",
        "@",
        "!",
        "|",
        "-",
        "+",
        "0x",
        "0f",
        "%",
        ".v4",
        ".reg",
        ".param",
        "ret",
        "4294967296",
        "-1",
        "\"",
        "/*",
        "*/",
        "//",
        "é",
        "\\",
        ".u64",
        ".pred",
        "999999999999999999999",
        ".align",
        "bra",
        "call",
        "::",
        "_",
        "%r1",
        "%p1",
        ".shared",
        ".extern",
        ".func",
        ".global",
        "= {1, 2}",
        "mma.sync",
        "0",
        "1.5e9",
        "\u{0}",
    ];
    let mut chars: Vec<char> = text.chars().collect();
    for &(kind, at, len, piece) in edits {
        let at = at as usize % (chars.len() + 1);
        let end = (at + len as usize % 24).min(chars.len());
        match kind % 4 {
            0 => drop(chars.drain(at..end)),
            1 => {
                let piece: Vec<char> = PIECES[piece as usize % PIECES.len()].chars().collect();
                chars.splice(at..at, piece);
            }
            2 => {
                let copy = chars[at..end].to_vec();
                chars.splice(at..at, copy);
            }
            _ => {
                let piece: Vec<char> = PIECES[piece as usize % PIECES.len()].chars().collect();
                chars.splice(at..end, piece);
            }
        }
    }
    chars.into_iter().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(400), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutated_text_is_loaded_or_refused_without_panic(
        seed in any::<prop::sample::Index>(),
        edits in prop::collection::vec(any::<(u8, u32, u32, u8)>(), 1..6),
    ) {
        let seeds = seeds();
        let original: &String = seed.get(&seeds);
        let text = mutate(original, &edits);
        if let Err(error) = Module::parse(&text) {
            let lines = text.lines().count() as u32 + 1;
            prop_assert!((1..=lines).contains(&error.line()), "{error} of {lines} lines");
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn arbitrary_text_is_refused_without_panic(text in "[ -~\n]{0,200}") {
        let loaded = Module::parse(&text);
        let empty = loaded.as_ref().is_ok_and(|m| m.entries().len() == 0);
        prop_assert!(loaded.is_err() || empty || text.contains(".entry"));
    }
}

#[test]
fn deep_nesting_is_refused_not_followed() {
    let braces = refused(&format!("\n{}", "{".repeat(100_000)));
    assert_eq!(
        braces,
        "line 10: the nesting of scopes is 65, must be at most 64"
    );
    let error = Module::parse(&module(
        "",
        &format!("\nmov.b64 %rd1, {}", "{".repeat(100_000)),
    ));
    assert!(matches!(error, Err(LoadError::Syntax { line: 10, .. })));
}
