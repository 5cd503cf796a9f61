//! `cvt`.

use super::mods::Mods;
use super::{Cx, Decoded, Decoder};
use crate::arith::convert::{CvtMode, CvtRounding, cvt, cvt_pack};
use crate::arith::{ScalarType, lanes};
use crate::code::{Op, Reg};
use crate::table::Class;

use ScalarType as T;

impl Decoder<'_> {
    pub(super) fn cvt(&mut self, cx: &Cx<'_>, m: &mut Mods<'_>) -> Decoded {
        let class = Class::Convert;
        let mode = CvtMode {
            rounding: m.find(CvtRounding::from_suffix),
            ftz: m.flag("ftz"),
            sat: m.flag("sat"),
            relu: m.flag("relu"),
            satfinite: m.flag("satfinite"),
        };
        let dst = m.take_type_or(cx)?;
        let src = m.take_type_or(cx)?;
        if matches!(dst, T::F16x2 | T::BF16x2) {
            if src != T::F32 || !matches!(mode.rounding, Some(CvtRounding::Rn | CvtRounding::Rz)) {
                return Err(cx.unsupported());
            }
            cx.count(3, 3)?;
            let ab = [self.source(cx, 1, src)?, self.source(cx, 2, src)?];
            let d = self.dest(cx, 0, dst)?;
            let nearest = CvtMode {
                rounding: Some(CvtRounding::Rn),
                ..CvtMode::default()
            };
            if let (true, Reg::R32(d), [Reg::R32(a), Reg::R32(b)]) = (mode == nearest, d, ab) {
                let f = if dst == T::F16x2 {
                    lanes::pack_f16x2
                } else {
                    lanes::pack_bf16x2
                };
                return Ok((
                    Op::Lane2 {
                        f,
                        ftz: false,
                        d,
                        a,
                        b,
                    },
                    class,
                ));
            }
            return Ok((
                self.slow2(d, ab, move |a, b| cvt_pack(dst, mode, a, b)),
                class,
            ));
        }
        let known = |t: T| t.is_integer() || matches!(t, T::F16 | T::BF16 | T::F32 | T::F64);
        if !(known(dst) || (dst == T::TF32 && src == T::F32)) || !known(src) {
            return Err(cx.unsupported());
        }
        cx.count(2, 2)?;
        let a = self.wide_source(cx, 1, src)?;
        let d = self.dest_of(cx, 0, self.operand(cx, 0)?, dst, true)?;
        let plain = mode == CvtMode::default();
        match (dst, src, d, a) {
            (T::U64 | T::S64, T::U32, Reg::R64(d), Reg::R32(a)) if plain => {
                return Ok((
                    Op::Widen {
                        signed: false,
                        d,
                        a,
                    },
                    class,
                ));
            }
            (T::U64 | T::S64, T::S32, Reg::R64(d), Reg::R32(a)) if plain => {
                return Ok((Op::Widen { signed: true, d, a }, class));
            }
            (T::U32 | T::S32, T::U64 | T::S64, Reg::R32(d), Reg::R64(a)) if plain => {
                return Ok((Op::Narrow { d, a }, class));
            }
            (T::F32, T::F16, Reg::R32(d), Reg::R16(a) | Reg::R32(a)) if plain => {
                return Ok((
                    Op::Lane1 {
                        f: lanes::f16_to_f32_lanes,
                        ftz: false,
                        d,
                        a,
                    },
                    class,
                ));
            }
            (T::F32, T::BF16, Reg::R32(d), Reg::R16(a) | Reg::R32(a)) if plain => {
                return Ok((
                    Op::Lane1 {
                        f: lanes::bf16_to_f32_lanes,
                        ftz: false,
                        d,
                        a,
                    },
                    class,
                ));
            }
            _ => {}
        }
        // A register wider than the type holds the value extended.
        let extend = dst.int().filter(|t| t.signed);
        let op = match extend {
            Some(it) => self.slow1(d, a, move |a| it.extend(cvt(dst, src, mode, a))),
            None => self.slow1(d, a, move |a| cvt(dst, src, mode, a)),
        };
        Ok((op, class))
    }
}
