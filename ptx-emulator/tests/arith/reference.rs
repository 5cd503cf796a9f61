//! Rounding by its definition: scale to units of the last place, round to an integer, scale back.

/// Where an inexact result goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    Nearest,
    Zero,
    Down,
    Up,
}

pub const DIRECTIONS: [(&str, To); 4] = [
    ("rn", To::Nearest),
    ("rz", To::Zero),
    ("rm", To::Down),
    ("rp", To::Up),
];

/// Precision in bits and exponent of the greatest values.
#[derive(Clone, Copy, Debug)]
pub struct Format(pub i32, pub i32);

pub const F16_FORMAT: Format = Format(11, 15);
pub const BF16_FORMAT: Format = Format(8, 127);
pub const F32_FORMAT: Format = Format(24, 127);

fn power(exp: i32) -> f64 {
    2f64.powi(exp)
}

/// x rounded to the format; the result is exact in f64.
pub fn round(x: f64, Format(precision, top): Format, to: To) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    let exp = ((x.abs().to_bits() >> 52) as i32 - 1023).max(1 - top);
    let unit = power(exp - precision + 1);
    let scaled = x / unit;
    let rounded = match to {
        To::Nearest => scaled.round_ties_even(),
        To::Zero => scaled.trunc(),
        To::Down => scaled.floor(),
        To::Up => scaled.ceil(),
    } * unit;
    let greatest = (2.0 - power(1 - precision)) * power(top);
    if rounded.abs() <= greatest {
        return rounded.copysign(x);
    }
    let to_infinity = match to {
        To::Nearest => true,
        To::Zero => false,
        To::Down => x < 0.0,
        To::Up => x > 0.0,
    };
    if to_infinity {
        f64::INFINITY.copysign(x)
    } else {
        greatest.copysign(x)
    }
}

/// a + b with its last bit set if it is inexact: as good as exact for a later rounding.
pub fn sum(a: f64, b: f64) -> f64 {
    let s = a + b;
    let (large, small) = if a.abs() > b.abs() { (a, b) } else { (b, a) };
    let lost = small - (s - large);
    if !s.is_finite() || lost == 0.0 || s.to_bits() & 1 == 1 {
        s
    } else if lost > 0.0 {
        s.next_up()
    } else {
        s.next_down()
    }
}

/// The sign of an exact zero sum depends on the rounding; otherwise as [`round`].
pub fn rounded_sum(a: f64, b: f64, format: Format, to: To) -> f64 {
    let s = sum(a, b);
    if s == 0.0 && to == To::Down && !(a.is_sign_positive() && b.is_sign_positive()) {
        return -0.0;
    }
    round(s, format, to)
}

/// f32 with subnormals made zero.
pub fn flush(x: f32) -> f32 {
    if x.abs() < f32::MIN_POSITIVE {
        0f32.copysign(x)
    } else {
        x
    }
}

macro_rules! half_type {
    ($($name:ident, $format:ident;)*) => {$(
        /// A 16-bit number by its bits.
        #[derive(Clone, Copy, Debug)]
        pub struct $name(u16);

        impl $name {
            pub fn from_bits(bits: u16) -> Self {
                Self(bits)
            }

            pub fn to_bits(self) -> u16 {
                self.0
            }

            pub fn is_nan(self) -> bool {
                self.value().is_nan()
            }

            /// The value by the definition of the format.
            pub fn value(self) -> f64 {
                let Format(precision, top) = $format;
                let (biased, fraction) = (
                    i32::from(self.0 & 0x7fff) >> (precision - 1),
                    f64::from(self.0 & ((1 << (precision - 1)) - 1)) * power(1 - precision),
                );
                let magnitude = match biased {
                    0 => fraction * power(1 - top),
                    b if b == 2 * top + 1 && fraction == 0.0 => f64::INFINITY,
                    b if b == 2 * top + 1 => f64::NAN,
                    b => (1.0 + fraction) * power(b - top),
                };
                if self.0 >> 15 == 1 { -magnitude } else { magnitude }
            }

            /// The pattern whose value is x rounded as told.
            pub fn round(x: f64, to: To) -> Self {
                let x = round(x, $format, to);
                let Format(precision, top) = $format;
                let sign = (x.is_sign_negative() as u16) << 15;
                let infinity = (2 * top as u16 + 1) << (precision - 1);
                if x.is_nan() {
                    return Self(0x7fff);
                }
                if x.is_infinite() {
                    return Self(infinity | sign);
                }
                // Patterns are in the order of magnitudes.
                let (mut low, mut high) = (0, infinity);
                while low + 1 < high {
                    let middle = (low + high) / 2;
                    if Self(middle).value() <= x.abs() { low = middle } else { high = middle }
                }
                Self(low | sign)
            }

            pub fn nearest(x: f64) -> Self {
                Self::round(x, To::Nearest)
            }
        }
    )*};
}

half_type! {
    F16, F16_FORMAT;
    BF16, BF16_FORMAT;
}
