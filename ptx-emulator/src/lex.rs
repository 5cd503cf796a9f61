//! Splits PTX text into tokens; comments vanish here, line numbers stay.

use crate::error::LoadError;

/// One token with the line it stands on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Token<'a> {
    pub line: u32,
    pub kind: Kind<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind<'a> {
    /// Identifier, directive or opcode with its modifiers: `%tid.x`, `.reg`, `ld.global.L2::128B`.
    Word(&'a str),
    /// A number as it was written.
    Number(&'a str),
    /// The inside of a quoted string.
    Text(&'a str),
    Punct(u8),
    End,
}

impl Kind<'_> {
    /// The token as an error message shows it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Kind::Word(w) | Kind::Number(w) => format!("`{w}`"),
            Kind::Text(t) => format!("\"{t}\""),
            Kind::Punct(c) => format!("`{}`", *c as char),
            Kind::End => "the end of the text".to_string(),
        }
    }
}

/// Tokens of `text`, always ended by [`Kind::End`].
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, LoadError> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len() / 4);
    let mut line = 1u32;
    let mut at = 0usize;
    while at < bytes.len() {
        let c = bytes[at];
        let start = at;
        match c {
            b'\n' => {
                line += 1;
                at += 1;
            }
            _ if c.is_ascii_whitespace() => at += 1,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                while at < bytes.len() && bytes[at] != b'\n' {
                    at += 1;
                }
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let from = line;
                at += 2;
                loop {
                    match bytes.get(at) {
                        Some(b'*') if bytes.get(at + 1) == Some(&b'/') => break,
                        Some(b'\n') => line += 1,
                        Some(_) => {}
                        None => {
                            return Err(LoadError::syntax(from, "the comment's `*/`", "no end"));
                        }
                    }
                    at += 1;
                }
                at += 2;
            }
            b'"' => {
                at += 1;
                while at < bytes.len() && bytes[at] != b'"' && bytes[at] != b'\n' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                if bytes.get(at) != Some(&b'"') {
                    return Err(LoadError::syntax(
                        line,
                        "a closing quote",
                        "the end of the line",
                    ));
                }
                // A backslash may have stepped into a character: `get` then refuses the cut.
                let inside = text.get(start + 1..at).unwrap_or("");
                out.push(Token {
                    line,
                    kind: Kind::Text(inside),
                });
                at += 1;
            }
            _ if is_word_start(c) => {
                at += 1;
                loop {
                    match bytes.get(at) {
                        Some(&b) if is_word_start(b) || b.is_ascii_digit() => at += 1,
                        Some(b':')
                            if bytes.get(at + 1) == Some(&b':')
                                && bytes.get(at + 2).is_some_and(u8::is_ascii_alphanumeric) =>
                        {
                            at += 2;
                        }
                        _ => break,
                    }
                }
                out.push(Token {
                    line,
                    kind: Kind::Word(&text[start..at]),
                });
            }
            _ if c.is_ascii_digit() => {
                at += 1;
                let hex_float = matches!(bytes.get(at), Some(b'f' | b'F' | b'd' | b'D'));
                while let Some(&b) = bytes.get(at) {
                    let exponent_sign = (b == b'+' || b == b'-')
                        && matches!(bytes[at - 1], b'e' | b'E')
                        && !hex_float
                        && !matches!(bytes.get(start + 1), Some(b'x' | b'X'));
                    if b.is_ascii_alphanumeric() || b == b'.' || exponent_sign {
                        at += 1;
                    } else {
                        break;
                    }
                }
                out.push(Token {
                    line,
                    kind: Kind::Number(&text[start..at]),
                });
            }
            _ if c.is_ascii_punctuation() => {
                out.push(Token {
                    line,
                    kind: Kind::Punct(c),
                });
                at += 1;
            }
            _ => {
                let shown = text[start..].chars().next().unwrap_or('?');
                return Err(LoadError::syntax(line, "PTX text", &format!("{shown:?}")));
            }
        }
    }
    out.push(Token {
        line,
        kind: Kind::End,
    });
    Ok(out)
}

fn is_word_start(c: u8) -> bool {
    c.is_ascii_alphabetic() || matches!(c, b'_' | b'$' | b'%' | b'.')
}
