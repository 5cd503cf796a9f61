//! Moves, memory, special registers, calls.

use super::{check, check_with, check32, inputs};
use crate::support::run;

#[test]
fn vectors_pack_and_unpack() {
    check("mov.b64 %rd4, {%r2, %r1};", |x| x.rotate_left(32));
    check("mov.b64 %rd4, {%h4, %h3, %h2, %h1};", |x| {
        (0..4).fold(0, |v, i| v | (x >> (16 * i) & 0xffff) << (48 - 16 * i))
    });
    check32(
        "mov.b32 {%h5, %h6}, %r1;\nmov.b32 %r3, {%h6, %h5};",
        |a, _| a.rotate_left(16),
    );
    check32("mov.b64 {_, %r3}, %rd3;", |_, b| b);
}

#[test]
fn loads_and_stores_of_every_width() {
    let wide = "st.global.u32 [%rd1], 0;";
    check(&format!("{wide} ld.global.u8 %rd4, [%rd2+1];"), |x| {
        x >> 8 & 0xff
    });
    check(&format!("{wide} ld.global.s8 %rd4, [%rd2+1];"), |x| {
        i64::from((x >> 8) as i8) as u64
    });
    check32("ld.global.s16 %r3, [%rd2+2];", |a, _| {
        i32::from((a >> 16) as i16) as u32
    });
    check32(
        "ld.global.nc.L1::no_allocate.L2::128B.b32 %r3, [%rd2+4];",
        |_, b| b,
    );
    check(
        "ld.global.v2.u32 {%r3, %r4}, [%rd2];\nmov.b64 %rd4, {%r4, %r3};",
        |x| x.rotate_left(32),
    );
    check(
        "ld.global.v4.u16 {%h5, %h6, %h7, %h8}, [%rd2];\nmov.b64 %rd4, {%h6, %h5, %h8, %h7};",
        |x| (x & 0x0000_ffff_0000_ffff) << 16 | x >> 16 & 0x0000_ffff_0000_ffff,
    );
    check(
        "st.global.u8 [%rd1+3], %r1;\nst.global.v2.u16 [%rd1+4], {%h1, %h2};\nld.global.u64 %rd4, [%rd1];",
        |x| (x & 0xff) << 24 | (x & 0xffff_ffff) << 32,
    );
    check(
        ".shared .align 8 .b8 buffer[512];\nmov.u32 %r3, buffer;\nmad.lo.u32 %r3, %r0, 8, %r3;\n\
           st.shared.u64 [%r3], %rd3;\nld.shared.u64 %rd4, [%r3];",
        |x| x,
    );
    check(
        ".shared .align 8 .b8 buffer[512];\nmov.u64 %rd5, buffer;\ncvta.shared.u64 %rd5, %rd5;\n\
           mad.wide.u32 %rd5, %r0, 8, %rd5;\nst.u64 [%rd5], %rd3;\nld.u64 %rd4, [%rd5];\n\
           isspacep.shared %p1, %rd5;\n@!%p1 trap;",
        |x| x,
    );
    check(
        ".local .align 8 .b8 mine[16];\nmov.u64 %rd5, mine;\nst.local.u64 [mine+8], %rd3;\n\
           cvta.local.u64 %rd5, %rd5;\nld.u64 %rd4, [%rd5+8];",
        |x| x,
    );
}

#[test]
fn atomics_give_the_old_value_and_update() {
    let body = |op: &str| {
        format!(
            "st.global.u64 [%rd1], %rd3;\n{op}\nld.global.u64 %rd5, [%rd1];\nxor.b64 %rd4, %rd4, %rd5;"
        )
    };
    check(&body("atom.global.add.u64 %rd4, [%rd1], 3;"), |x| {
        x ^ x.wrapping_add(3)
    });
    check(&body("atom.global.max.s64 %rd4, [%rd1], 3;"), |x| {
        x ^ (x as i64).max(3) as u64
    });
    check(&body("atom.exch.b64 %rd4, [%rd1], 3;"), |x| x ^ 3);
    check(&body("atom.global.cas.b64 %rd4, [%rd1], 1, 9;"), |x| {
        x ^ if x == 1 { 9 } else { x }
    });
    check(
        &body("atom.global.relaxed.gpu.and.b32 %r3, [%rd1+4], 255;\ncvt.u64.u32 %rd4, %r3;"),
        |x| x >> 32 ^ (x & 0xff_ffff_ffff),
    );
    check(
        &body("red.global.xor.b32 [%rd1], -1;\nmov.u64 %rd4, 0;"),
        |x| x ^ 0xffff_ffff,
    );
    check(
        &body("atom.global.inc.u32 %r3, [%rd1], 40;\nmov.u64 %rd4, 0;"),
        |x| {
            let low = x as u32;
            x & !0xffff_ffff | u64::from(if low >= 40 { 0 } else { low + 1 })
        },
    );
    let floats: Vec<u64> = (0..64).map(|i| u64::from((i as f32).to_bits())).collect();
    check_with(
        &floats,
        &body("atom.global.add.f32 %f3, [%rd1], 0f3F800000;\nmov.u64 %rd4, 0;"),
        |x| (f32::from_bits(x as u32) + 1.0).to_bits().into(),
    );
}

#[test]
fn special_registers() {
    check32(
        "mov.u32 %r3, %laneid;\nmov.u32 %r4, %warpid;\nmad.lo.u32 %r3, %r4, 32, %r3;\nsub.u32 %r3, %r3, %r0;",
        |_, _| 0,
    );
    check32(
        "mov.u32 %r3, %ntid.x;\nadd.u32 %r3, %r3, %nctaid.y;",
        |_, _| 65,
    );
    check32(
        "mov.u32 %r3, %lanemask_lt;\npopc.b32 %r3, %r3;\nsub.u32 %r3, %r3, %laneid;",
        |_, _| 0,
    );
    check32("mov.u32 %r3, WARP_SZ;", |_, _| 32);
    check(
        "mov.u64 %rd5, %clock64;\nmov.u64 %rd6, %clock64;\nsetp.gt.u64 %p1, %rd6, %rd5;\nselp.u64 %rd4, 1, 0, %p1;",
        |_| 1,
    );
}

#[test]
fn functions_are_called_with_parameters_and_results() {
    let declarations = "
        .func (.param .b32 result) twice(.param .b32 x, .param .align 8 .b8 pair[16]) {
            .reg .b32 %r<4>; .reg .b64 %rd<2>;
            ld.param.b32 %r1, [x];
            ld.param.b64 %rd1, [pair+8];
            cvt.u32.u64 %r2, %rd1;
            mad.lo.u32 %r3, %r1, 2, %r2;
            st.param.b32 [result+0], %r3;
            ret;
        }
        .func (.reg .b32 %out) thrice(.reg .b32 %in) {
            .reg .pred %p;
            setp.gt.u32 %p, %in, 1000;
            mul.lo.u32 %out, %in, 3;
            @%p ret;
            add.u32 %out, %out, 1;
            ret;
        }";
    let body = "ld.global.u32 %r1, [%rd2];
        { .param .b32 a; .param .align 8 .b8 b[16]; .param .b32 c;
          st.param.b32 [a+0], %r1;
          st.param.b64 [b+8], 5;
          call.uni (c), twice, (a, b);
          ld.param.b32 %r2, [c+0]; }
        call (%r3), thrice, (%r2);
        cvt.u64.u32 %rd4, %r3;
        st.global.u64 [%rd1], %rd4;
        ret;";
    let input = inputs();
    let out = run(declarations, body, &input);
    for (x, found) in input.iter().zip(out) {
        let twice = (*x as u32).wrapping_mul(2).wrapping_add(5);
        let extra = u32::from(twice <= 1000);
        assert_eq!(
            found,
            u64::from(twice.wrapping_mul(3).wrapping_add(extra)),
            "{x:#x}"
        );
    }
}

#[test]
fn constants_and_initialised_globals() {
    let declarations = "
        .const .align 4 .b8 table[16] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0};
        .global .align 8 .u64 pointer[2] = {table, generic(table)+8};
        .global .f32 third = 0f3F000000;";
    let body = "mov.u64 %rd3, pointer;
        ld.global.u64 %rd4, [%rd3+8];
        ld.u32 %r1, [%rd4];
        ld.const.u32 %r2, [table+12];
        ld.global.f32 %f1, [third];
        add.f32 %f1, %f1, %f1;
        cvt.rzi.u32.f32 %r3, %f1;
        mad.lo.u32 %r1, %r1, 100, %r2;
        mad.lo.u32 %r1, %r1, 10, %r3;
        cvt.u64.u32 %rd4, %r1;
        st.global.u64 [%rd1], %rd4;
        ret;";
    assert_eq!(run(declarations, body, &[0; 32]), vec![3041; 32]);
}
