//! `mma.sync` and `ldmatrix` on one warp, fragments by the manual's tables.

use std::fmt::Write;

use crate::harness::{Random, Value, dump};
use crate::reference::{BF16, F16};
use ptx_emulator::{Launch, Memory, Module, Options};

/// Row and column of an element, as offsets from (group, 2·(lane mod 4)) with group = lane / 4;
/// one entry for each element of the fragment, in the order a0, a1, …
type Table = &'static [(usize, usize)];

const A_K8: Table = &[(0, 0), (0, 1), (8, 0), (8, 1)];
const A_K16: Table = &[
    (0, 0),
    (0, 1),
    (8, 0),
    (8, 1),
    (0, 8),
    (0, 9),
    (8, 8),
    (8, 9),
];
/// For B the first number is the row offset from 2·(lane mod 4); the column is the group.
const B_K8: Table = &[(0, 0), (1, 0)];
const B_K16: Table = &[(0, 0), (1, 0), (8, 0), (9, 0)];
const C: Table = &[(0, 0), (0, 1), (8, 0), (8, 1)];

struct Case {
    k: usize,
    a: Table,
    b: Table,
    input: &'static str,
    sum: &'static str,
}

const CASES: [Case; 6] = [
    Case {
        k: 8,
        a: A_K8,
        b: B_K8,
        input: "f16",
        sum: "f32",
    },
    Case {
        k: 8,
        a: A_K8,
        b: B_K8,
        input: "bf16",
        sum: "f32",
    },
    Case {
        k: 8,
        a: A_K8,
        b: B_K8,
        input: "f16",
        sum: "f16",
    },
    Case {
        k: 16,
        a: A_K16,
        b: B_K16,
        input: "f16",
        sum: "f32",
    },
    Case {
        k: 16,
        a: A_K16,
        b: B_K16,
        input: "bf16",
        sum: "f32",
    },
    Case {
        k: 16,
        a: A_K16,
        b: B_K16,
        input: "f16",
        sum: "f16",
    },
];

fn registers(name: &str, count: usize) -> String {
    let list: Vec<String> = (0..count).map(|i| format!("%{name}{i}")).collect();
    format!("{{{}}}", list.join(", "))
}

/// Every lane loads `words[i]` 32-bit words per operand, executes, stores `words[3]`.
fn kernel(case: &Case, words: [usize; 4]) -> String {
    let mut text = String::from(
        ".version 8.0\n.target sm_80\n.address_size 64\n\n\
         .visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2, .param .u64 p3)\n{\n\
         \t.reg .b32 %t, %x0_<8>, %x1_<8>;\n\t.reg .b64 %p;\n\tmov.u32 %t, %tid.x;\n",
    );
    let accumulator = if case.sum == "f32" { "f32" } else { "b32" };
    writeln!(text, "\t.reg .{accumulator} %x2_<8>, %x3_<8>;").unwrap();
    let list = |index: usize| registers(&format!("x{index}_"), words[index]);
    for (index, count) in words.iter().enumerate() {
        if index == 3 {
            let (k, input, sum) = (case.k, case.input, case.sum);
            let (d, a, b, c) = (list(3), list(0), list(1), list(2));
            writeln!(
                text,
                "\tmma.sync.aligned.m16n8k{k}.row.col.{sum}.{input}.{input}.{sum} {d}, {a}, {b}, {c};"
            )
            .unwrap();
        }
        writeln!(text, "\tld.param.u64 %p, [p{index}];").unwrap();
        writeln!(text, "\tmad.wide.u32 %p, %t, {}, %p;", 4 * count).unwrap();
        for word in 0..*count {
            let (offset, register) = (4 * word, format!("%x{index}_{word}"));
            match index {
                3 => writeln!(text, "\tst.global.b32 [%p+{offset}], {register};").unwrap(),
                _ => writeln!(text, "\tld.global.b32 {register}, [%p+{offset}];").unwrap(),
            }
        }
    }
    text + "\tret;\n}\n"
}

/// Runs a one-warp kernel whose parameters are the operands and the result, 32-bit words by lane.
#[track_caller]
fn run_warp(text: &str, operands: &[Vec<u32>], result_words: usize, shared_bytes: u32) -> Vec<u32> {
    let module = Module::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let memory = Memory::new();
    let mut params = Vec::new();
    for words in operands {
        let bytes: Vec<u8> = words.iter().flat_map(|x| x.to_le_bytes()).collect();
        let address = memory.alloc(bytes.len() as u64, 256, "operand").unwrap();
        memory.write(address, &bytes).unwrap();
        params.extend(address.to_le_bytes());
    }
    let result = memory
        .alloc((32 * 4 * result_words) as u64, 256, "result")
        .unwrap();
    params.extend(result.to_le_bytes());
    let launch = Launch {
        grid: [1; 3],
        block: [32, 1, 1],
        shared_bytes,
    };
    module
        .launch(&memory, "k", launch, &params, &Options::default())
        .unwrap_or_else(|error| panic!("{error}\n{text}"));
    let mut bytes = vec![0; 32 * 4 * result_words];
    memory.read(result, &mut bytes).unwrap();
    bytes
        .chunks(4)
        .map(|x| u32::from_le_bytes(x.try_into().unwrap()))
        .collect()
}

#[test]
fn mma_is_the_matrix_product_of_the_manuals_fragments() {
    for case in &CASES {
        let mut random = Random(case.k as u64);
        // Small integers: sums are exact in every order, in f16 too.
        let mut small = || (random.next() % 13) as f64 - 6.0;
        let a: Vec<Vec<f64>> = (0..16)
            .map(|_| (0..case.k).map(|_| small()).collect())
            .collect();
        let b: Vec<Vec<f64>> = (0..case.k)
            .map(|_| (0..8).map(|_| small()).collect())
            .collect();
        let c: Vec<Vec<f64>> = (0..16).map(|_| (0..8).map(|_| small()).collect()).collect();
        let half = |x: f64| match case.input {
            "f16" => F16::nearest(x).bits() as u32,
            _ => BF16::nearest(x).bits() as u32,
        };
        let pairs = |elements: Vec<f64>| -> Vec<u32> {
            elements
                .chunks(2)
                .map(|x| half(x[0]) | half(x[1]) << 16)
                .collect()
        };
        let place =
            |lane: usize, (row, column): (usize, usize)| (lane / 4 + row, lane % 4 * 2 + column);
        let (mut a_words, mut b_words, mut c_words) = (vec![], vec![], vec![]);
        for lane in 0..32 {
            let at = |entry| place(lane, entry);
            a_words.extend(pairs(
                case.a.iter().map(|e| a[at(*e).0][at(*e).1]).collect(),
            ));
            let b_of = |row: usize| b[lane % 4 * 2 + row][lane / 4];
            b_words.extend(pairs(case.b.iter().map(|e| b_of(e.0)).collect()));
            let c_elements: Vec<f64> = C.iter().map(|e| c[at(*e).0][at(*e).1]).collect();
            match case.sum {
                "f32" => c_words.extend(c_elements.iter().map(|x| (*x as f32).to_bits())),
                _ => c_words.extend(pairs(c_elements)),
            }
        }
        let sums = if case.sum == "f32" { 4 } else { 2 };
        let words = [case.a.len() / 2, case.b.len() / 2, sums, sums];
        let text = kernel(case, words);
        dump(
            &format!("mma k{} {} {}", case.k, case.input, case.sum),
            &text,
        );
        let d = run_warp(&text, &[a_words, b_words, c_words], sums, 0);
        for lane in 0..32 {
            for (index, entry) in C.iter().enumerate() {
                let (row, column) = place(lane, *entry);
                let product: f64 = (0..case.k).map(|k| a[row][k] * b[k][column]).sum();
                let got = match case.sum {
                    "f32" => f64::from(f32::from_bits(d[4 * lane + index])),
                    _ => {
                        let word = d[2 * lane + index / 2];
                        F16::from_bits((word >> (16 * (index % 2))) as u16).value()
                    }
                };
                let want = product + c[row][column];
                let (k, input, sum) = (case.k, case.input, case.sum);
                assert_eq!(got, want, "k{k} {input} {sum} lane {lane} element {index}");
            }
        }
    }
}

#[test]
fn mma_sums_stay_within_the_bound_of_f32_sums() {
    let case = &CASES[3];
    let mut random = Random(77);
    let mut word = || {
        let mut half = || F16::nearest(random.next() as i64 as f64 / 2f64.powi(63)).bits() as u32;
        half() | half() << 16
    };
    let a: Vec<u32> = (0..32 * 4).map(|_| word()).collect();
    let b: Vec<u32> = (0..32 * 2).map(|_| word()).collect();
    let c = vec![0x3f00_0001; 32 * 4];
    let d = run_warp(
        &kernel(case, [4, 2, 4, 4]),
        &[a.clone(), b.clone(), c],
        4,
        0,
    );
    let half = |words: &[u32], lane: usize, size: usize, index: usize| {
        F16::from_bits((words[lane * size + index / 2] >> (16 * (index % 2))) as u16).value()
    };
    // Where an element of A or B lies, found by searching the tables.
    let a_at = |row: usize, k: usize| {
        (0..32)
            .flat_map(|lane| A_K16.iter().enumerate().map(move |(i, e)| (lane, i, e)))
            .find(|(lane, _, e)| (lane / 4 + e.0, lane % 4 * 2 + e.1) == (row, k))
            .map(|(lane, i, _)| half(&a, lane, 4, i))
            .unwrap()
    };
    let b_at = |k: usize, column: usize| {
        (0..32)
            .flat_map(|lane| B_K16.iter().enumerate().map(move |(i, e)| (lane, i, e)))
            .find(|(lane, _, e)| (lane % 4 * 2 + e.0, lane / 4) == (k, column))
            .map(|(lane, i, _)| half(&b, lane, 2, i))
            .unwrap()
    };
    for lane in 0..32 {
        for (index, entry) in C.iter().enumerate() {
            let (row, column) = (lane / 4 + entry.0, lane % 4 * 2 + entry.1);
            let terms: Vec<f64> = (0..16).map(|k| a_at(row, k) * b_at(k, column)).collect();
            let start = f64::from(f32::from_bits(0x3f00_0001));
            let want = start + terms.iter().sum::<f64>();
            // 16 additions, each within 2^-24 of a partial sum, which the sizes' sum bounds.
            let sizes = start + terms.iter().map(|x| x.abs()).sum::<f64>();
            let got = f64::from(f32::from_bits(d[4 * lane + index]));
            assert!(
                (got - want).abs() <= 16.0 * 2f64.powi(-24) * sizes,
                "lane {lane} {index}"
            );
        }
    }
}

#[test]
fn ldmatrix_hands_rows_to_groups_of_four_lanes() {
    for count in [1usize, 2, 4] {
        for trans in ["", ".trans"] {
            let list = registers("v", count);
            let mut text = String::from(
                ".version 8.0\n.target sm_80\n.address_size 64\n\n\
                 .visible .entry k(.param .u64 p0, .param .u64 p1)\n{\n\
                 \t.reg .b32 %t, %s, %w, %v<4>;\n\t.reg .b64 %p;\n\
                 \t.shared .align 16 .b8 tile[1024];\n\
                 \tmov.u32 %t, %tid.x;\n\tld.param.u64 %p, [p0];\n\
                 \tmad.wide.u32 %p, %t, 32, %p;\n\tmov.u32 %s, tile;\n\tmad.lo.u32 %s, %t, 32, %s;\n",
            );
            // Each lane fills two rows of 16 bytes.
            for word in 0..8 {
                writeln!(text, "\tld.global.b32 %w, [%p+{}];", 4 * word).unwrap();
                writeln!(text, "\tst.shared.b32 [%s+{}], %w;", 4 * word).unwrap();
            }
            // Rows are given in reverse order: lane l names row 31 − l.
            writeln!(
                text,
                "\tbar.sync 0;\n\tsub.u32 %w, 31, %t;\n\tmov.u32 %s, tile;\n\
                 \tmad.lo.u32 %s, %w, 16, %s;\n\
                 \tldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {list}, [%s];\n\
                 \tld.param.u64 %p, [p1];\n\tmad.wide.u32 %p, %t, {}, %p;",
                4 * count
            )
            .unwrap();
            for word in 0..count {
                writeln!(text, "\tst.global.b32 [%p+{}], %v{word};", 4 * word).unwrap();
            }
            text += "\tret;\n}\n";
            dump(&format!("ldmatrix x{count}{trans}"), &text);
            // Row r, column c holds 256·r + c.
            let rows: Vec<u32> = (0..64)
                .flat_map(|r| (0..4).map(move |w| (256 * r + 2 * w) | (256 * r + 2 * w + 1) << 16))
                .collect();
            let got = run_warp(&text, &[rows], count, 0);
            for lane in 0..32 {
                for matrix in 0..count {
                    for half in 0..2 {
                        let (line, place) = (lane / 4, lane % 4 * 2 + half);
                        let (r, c) = if trans.is_empty() {
                            (line, place)
                        } else {
                            (place, line)
                        };
                        let row = 31 - (8 * matrix + r);
                        let word = got[lane * count + matrix] >> (16 * half) & 0xffff;
                        let want = (256 * row + c) as u32;
                        assert_eq!(word, want, "x{count}{trans} lane {lane} matrix {matrix}");
                    }
                }
            }
        }
    }
}
