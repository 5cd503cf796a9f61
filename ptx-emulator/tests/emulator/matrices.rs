//! `ldmatrix`, `mma` and `movmatrix` through kernels: products of whole matrices against a plain
//! loop, with the fragments loaded as kernels do, row by row from shared memory.

use ptx_emulator::{Launch, Memory};

use crate::support::{checked, load, module};

/// Small integers: exact in f16 and bf16, and so are all sums of products.
fn element(matrix: usize, row: usize, column: usize) -> f32 {
    ((matrix * 5 + row * 7 + column * 3 + row * column) % 9) as f32 - 4.0
}

/// The 16-bit pattern of a small integer.
fn pattern(bf16: bool, value: f32) -> u16 {
    let bits = value.to_bits();
    if bf16 || value == 0.0 {
        return (bits >> 16) as u16;
    }
    ((bits >> 16 & 0x8000) | ((bits >> 23 & 0xff) - 112) << 10 | (bits >> 13 & 0x3ff)) as u16
}

/// Runs `body` in one warp with A [16, 16] and then B in shared memory, both of 16-bit elements
/// with rows of 32 bytes; `out` has 256 words.
#[track_caller]
fn warp(body: &str, bf16: bool, b_rows: usize, b_columns: usize) -> Vec<u32> {
    let text = module(
        "",
        &format!(
            ".shared .align 16 .b8 tiles[1024];
             mov.u32 %r0, %laneid; ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [in];
             mov.u32 %r1, tiles; mad.lo.u32 %r2, %r0, 32, %r1; mad.wide.u32 %rd3, %r0, 32, %rd2;
             cp.async.cg.shared.global [%r2], [%rd3], 16;
             cp.async.cg.shared.global [%r2+16], [%rd3+16], 16;
             cp.async.wait_all; bar.warp.sync -1;
             {body}
             ret;"
        ),
    );
    let mut halves = vec![0u16; 512];
    for (matrix, rows, columns) in [(0, 16, 16), (1, b_rows, b_columns)] {
        for row in 0..rows {
            for column in 0..columns {
                let at = matrix * 256 + row * 16 + column;
                halves[at] = pattern(bf16, element(matrix, row, column));
            }
        }
    }
    let memory = Memory::new();
    let source = memory.alloc(1024, 256, "tiles").expect("memory");
    let bytes: Vec<u8> = halves.iter().flat_map(|h| h.to_le_bytes()).collect();
    memory.write(source, &bytes).expect("inside");
    let out = memory.alloc(1024, 256, "out").expect("memory");
    let params = [out.to_le_bytes(), source.to_le_bytes()].concat();
    let launch = Launch {
        grid: [1; 3],
        block: [32, 1, 1],
        shared_bytes: 0,
    };
    if let Err(error) = load(&text).launch(&memory, "test", launch, &params, &checked()) {
        panic!("{error}");
    }
    let mut bytes = vec![0; 1024];
    memory.read(out, &mut bytes).expect("inside");
    bytes
        .chunks_exact(4)
        .map(|c| u32::from_le_bytes(c.try_into().expect("4 bytes")))
        .collect()
}

/// Row address of A for `ldmatrix.x4`: rows 0..16, left half and then right half.
const A_ROW: &str = "and.b32 %r3, %r0, 15; shr.u32 %r4, %r0, 4;
    mad.lo.u32 %r3, %r3, 32, %r1; mad.lo.u32 %r3, %r4, 16, %r3;
    ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r3];";

/// Stores %f1..%f4, the fragment of a 16 × 8 matrix, to out[row * 8 + column].
const STORE_D: &str = "shr.u32 %r3, %r0, 2; and.b32 %r4, %r0, 3; mul.lo.u32 %r4, %r4, 2;
    mad.lo.u32 %r3, %r3, 8, %r4; mad.wide.u32 %rd4, %r3, 4, %rd1;
    st.global.v2.f32 [%rd4], {%f1, %f2}; st.global.v2.f32 [%rd4+256], {%f3, %f4};";

#[track_caller]
fn check_product(out: &[u32], k: usize, b: impl Fn(usize, usize) -> f32) {
    for row in 0..16 {
        for column in 0..8 {
            let wanted: f32 = (0..k)
                .map(|i| element(0, row, i) * b(i, column))
                .sum::<f32>()
                + 1.0;
            let found = f32::from_bits(out[row * 8 + column]);
            assert_eq!(found, wanted, "element ({row}, {column})");
        }
    }
}

#[test]
fn products_of_16_by_16_with_k_major_b() {
    for (name, bf16) in [("f16", false), ("bf16", true)] {
        // B is stored as 8 rows of 16: one per column of the product.
        let body = format!(
            "{A_ROW} mov.f32 %f5, 0f3F800000;
             and.b32 %r3, %r0, 7; shr.u32 %r4, %r0, 3; and.b32 %r4, %r4, 1;
             mad.lo.u32 %r3, %r3, 32, %r1; mad.lo.u32 %r3, %r4, 16, %r3;
             ldmatrix.sync.aligned.m8n8.x2.shared.b16 {{%r14, %r15}}, [%r3+512];
             mma.sync.aligned.m16n8k16.row.col.f32.{name}.{name}.f32
                 {{%f1, %f2, %f3, %f4}}, {{%r10, %r11, %r12, %r13}}, {{%r14, %r15}},
                 {{%f5, %f5, %f5, %f5}};
             {STORE_D}"
        );
        let out = warp(&body, bf16, 8, 16);
        check_product(&out, 16, |i, column| element(1, column, i));
    }
}

#[test]
fn products_with_transposed_loads_of_b() {
    // B is stored as 16 rows of 8: `.trans` turns rows into columns.
    let body = format!(
        "{A_ROW} mov.f32 %f5, 0f3F800000;
         and.b32 %r3, %r0, 15; mad.lo.u32 %r3, %r3, 32, %r1;
         ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {{%r14, %r15}}, [%r3+512];
         mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
             {{%f1, %f2, %f3, %f4}}, {{%r10, %r11, %r12, %r13}}, {{%r14, %r15}},
             {{%f5, %f5, %f5, %f5}};
         {STORE_D}"
    );
    check_product(&warp(&body, false, 16, 8), 16, |i, column| {
        element(1, i, column)
    });
}

#[test]
fn products_of_k_8_and_the_transpose_of_a_register() {
    // The first two matrices of A are its left half. B's fragment is loaded untransposed from
    // 8 rows of k and transposed in registers.
    let body = format!(
        "{A_ROW} mov.f32 %f5, 0f3F800000;
         and.b32 %r3, %r0, 7; mad.lo.u32 %r3, %r3, 32, %r1;
         ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r14}}, [%r3+512];
         movmatrix.sync.aligned.m8n8.trans.b16 %r15, %r14;
         mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32
             {{%f1, %f2, %f3, %f4}}, {{%r10, %r11}}, {{%r15}}, {{%f5, %f5, %f5, %f5}};
         {STORE_D}"
    );
    check_product(&warp(&body, true, 8, 8), 8, |i, column| {
        element(1, i, column)
    });
}

#[test]
fn products_with_f16_accumulators() {
    let body = format!(
        "{A_ROW} mov.b32 %r5, 0x3c003c00;
         and.b32 %r3, %r0, 15; mad.lo.u32 %r3, %r3, 32, %r1;
         ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {{%r14, %r15}}, [%r3+512];
         mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16
             {{%r6, %r7}}, {{%r10, %r11, %r12, %r13}}, {{%r14, %r15}}, {{%r5, %r5}};
         mov.b32 {{%h1, %h2}}, %r6; mov.b32 {{%h3, %h4}}, %r7;
         cvt.f32.f16 %f1, %h1; cvt.f32.f16 %f2, %h2; cvt.f32.f16 %f3, %h3; cvt.f32.f16 %f4, %h4;
         {STORE_D}"
    );
    check_product(&warp(&body, false, 16, 8), 16, |i, column| {
        element(1, i, column)
    });
}

#[test]
fn asynchronous_copies_fill_with_zeros_behind_the_source() {
    let body = "mad.wide.u32 %rd3, %r0, 32, %rd2; mul.lo.u32 %r3, %r0, 32; add.u32 %r3, %r3, %r1;
        and.b32 %r4, %r0, 15; cp.async.cg.shared.global [%r3], [%rd3], 16, %r4;
        setp.lt.u32 %p1, %r0, 16;
        cp.async.ca.shared.global [%r3+16], [%rd3], 8, %p1;
        cp.async.ca.shared.global.L2::128B [%r3+24], [%rd3], 8;
        cp.async.wait_all;
        ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r3]; ld.shared.v4.u32 {%r8, %r9, %r10, %r11}, [%r3+16];
        mad.wide.u32 %rd4, %r0, 32, %rd1;
        st.global.v4.u32 [%rd4], {%r4, %r5, %r6, %r7}; st.global.v4.u32 [%rd4+16], {%r8, %r9, %r10, %r11};";
    let out: Vec<u8> = warp(body, true, 16, 16)
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .collect();
    for lane in 0..32 {
        let source: Vec<u8> = (0..8)
            .flat_map(|i| pattern(true, element(lane / 16, lane % 16, i)).to_le_bytes())
            .collect();
        let row = &out[lane * 32..lane * 32 + 32];
        let count = lane % 16;
        assert_eq!(&row[..count], &source[..count], "lane {lane}");
        assert!(
            row[count..16].iter().all(|b| *b == 0),
            "lane {lane}: {row:?}"
        );
        // With the predicate set the source is ignored.
        let ignored = if lane < 16 {
            [0; 8]
        } else {
            source[..8].try_into().expect("8 bytes")
        };
        assert_eq!(row[16..24], ignored, "lane {lane}");
        assert_eq!(row[24..], source[..8], "lane {lane}");
    }
}
