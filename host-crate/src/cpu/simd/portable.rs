//! Plain Rust, for every machine: lanes as an array, written so that compilers vectorise it.

use super::{GRANULE, Simd};

/// No instruction set beyond the target's baseline. `N` is 8; tests also use 16, to see the
/// handling of long vectors on machines that have none.
#[derive(Clone, Copy)]
pub(crate) struct Portable<const N: usize>;

#[inline(always)]
fn map<const N: usize>(a: [f32; N], f: impl Fn(f32) -> f32) -> [f32; N] {
    let mut out = a;
    for x in &mut out {
        *x = f(*x);
    }
    out
}

#[inline(always)]
fn zip<const N: usize>(a: [f32; N], b: [f32; N], f: impl Fn(f32, f32) -> f32) -> [f32; N] {
    let mut out = a;
    for (x, y) in out.iter_mut().zip(b) {
        *x = f(*x, y);
    }
    out
}

/// Zeros after a granule.
#[inline(always)]
fn extend<const N: usize>(granule: [f32; GRANULE]) -> [f32; N] {
    std::array::from_fn(|i| if i < GRANULE { granule[i] } else { 0.0 })
}

/// Widens an f16 without a branch: the exponent and mantissa move to their f32 places and a
/// multiplication by 2^112 corrects the bias, subnormals included.
#[inline(always)]
fn f16_to_f32(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let scaled = f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23);
    // 0x7c00 and above are infinity and NaN: all exponent bits set in f32, too.
    let special = if bits & 0x7fff >= 0x7c00 {
        0x7f80_0000
    } else {
        0
    };
    f32::from_bits(scaled.to_bits() | special | u32::from(bits & 0x8000) << 16)
}

/// Adding and subtracting it rounds to the nearest integer, for magnitudes up to 2^22.
const ROUNDER: f32 = 1.5 * (1u32 << 23) as f32;

// Every SAFETY note below: the trait's contract gives valid pointers; nothing else is unsafe.
#[allow(clippy::undocumented_unsafe_blocks, reason = "one note for all, above")]
impl<const N: usize> Simd for Portable<N> {
    type V = [f32; N];
    const LANES: usize = N;

    #[inline(always)]
    unsafe fn splat(x: f32) -> [f32; N] {
        [x; N]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> [f32; N] {
        unsafe { from.cast::<[f32; N]>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> [f32; N] {
        unsafe { from.cast::<[u16; N]>().read_unaligned() }.map(f16_to_f32)
    }

    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> [f32; N] {
        let bits = unsafe { from.cast::<[u16; N]>().read_unaligned() };
        bits.map(|b| f32::from_bits(u32::from(b) << 16))
    }

    #[inline(always)]
    unsafe fn load_granule(from: *const f32) -> [f32; N] {
        extend(unsafe { Portable::<GRANULE>::load(from) })
    }

    #[inline(always)]
    unsafe fn load_granule_f16(from: *const u16) -> [f32; N] {
        extend(unsafe { Portable::<GRANULE>::load_f16(from) })
    }

    #[inline(always)]
    unsafe fn load_granule_bf16(from: *const u16) -> [f32; N] {
        extend(unsafe { Portable::<GRANULE>::load_bf16(from) })
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, v: [f32; N]) {
        unsafe { to.cast::<[f32; N]>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn load_quad(from: *const f32) -> [f32; N] {
        let [a, b, c, d] = unsafe { from.cast::<[f32; 4]>().read_unaligned() };
        std::array::from_fn(|i| [a, b, c, d][i % 4])
    }

    #[inline(always)]
    unsafe fn store_quad(to: *mut f32, v: [f32; N]) {
        unsafe {
            to.cast::<[f32; 4]>()
                .write_unaligned([v[0], v[1], v[2], v[3]])
        }
    }

    #[inline(always)]
    unsafe fn exchange<const D: usize>(v: [f32; N]) -> [f32; N] {
        std::array::from_fn(|i| v[i ^ D])
    }

    #[inline(always)]
    unsafe fn add(a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |x, y| x + y)
    }

    #[inline(always)]
    unsafe fn sub(a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |x, y| x - y)
    }

    #[inline(always)]
    unsafe fn mul(a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |x, y| x * y)
    }

    #[inline(always)]
    unsafe fn fma(a: [f32; N], b: [f32; N], c: [f32; N]) -> [f32; N] {
        // `mul_add` is a library call where the target has no fused instruction.
        let fused = cfg!(any(target_arch = "aarch64", target_feature = "fma"));
        let mut out = c;
        for i in 0..N {
            out[i] = if fused {
                a[i].mul_add(b[i], c[i])
            } else {
                a[i] * b[i] + c[i]
            };
        }
        out
    }

    #[inline(always)]
    unsafe fn max(a: [f32; N], b: [f32; N]) -> [f32; N] {
        zip(a, b, |x, y| if x > y { x } else { y })
    }

    #[inline(always)]
    unsafe fn round(a: [f32; N]) -> [f32; N] {
        map(a, |x| (x + ROUNDER) - ROUNDER)
    }

    #[inline(always)]
    unsafe fn scale_by_power(p: [f32; N], n: [f32; N]) -> [f32; N] {
        // The low bits of `n + ROUNDER` are n in two's complement; shifted, they are an exponent.
        zip(p, n, |p, n| {
            let exponent = (n + ROUNDER).to_bits() << 23;
            if p.is_nan() {
                p
            } else {
                f32::from_bits(p.to_bits().wrapping_add(exponent))
            }
        })
    }

    #[inline(always)]
    unsafe fn zero_where_less(x: [f32; N], limit: f32, v: [f32; N]) -> [f32; N] {
        zip(x, v, |x, v| if x < limit { 0.0 } else { v })
    }

    #[inline(always)]
    unsafe fn sum4(to: *mut f32, v: [[f32; N]; 4]) {
        let sums = v.map(|v| {
            let mut sums = v;
            let mut len = N;
            while len > 1 {
                len /= 2;
                for i in 0..len {
                    sums[i] += sums[i + len];
                }
            }
            sums[0]
        });
        unsafe { to.cast::<[f32; 4]>().write_unaligned(sums) }
    }
}
