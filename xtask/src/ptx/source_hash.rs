//! A hash over kernel-crate's code: what the committed PTX was built from.
//!
//! Comments, blanks and unit tests do not count, so that prose can change without a rebuild.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::command::root;

/// The hash of kernel-crate's sources, as the manifest gives it.
pub fn of_kernel_crate() -> Result<String> {
    let src = root().join("kernel-crate/src");
    let mut files = Vec::new();
    collect(&src, &mut files)?;
    files.sort();
    let mut hash = Fnv::new();
    for file in files {
        let name = file
            .strip_prefix(&src)?
            .to_string_lossy()
            .replace('\\', "/");
        hash.write(name.as_bytes());
        hash.write(&[0]);
        hash.write(code(&fs::read_to_string(&file)?).as_bytes());
        hash.write(&[0]);
    }
    Ok(format!("{:016x}", hash.0))
}

fn collect(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The text without comments and unit tests, every run of blanks and every trailing comma gone, so
/// that formatting does not count either.
fn code(text: &str) -> String {
    let text = text
        .split("\n#[cfg(test)]\nmod tests")
        .next()
        .unwrap_or(text);
    let mut code = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '/' if chars.peek() == Some(&'/') => while chars.next_if(|&c| c != '\n').is_some() {},
            '"' => {
                code.push(c);
                while let Some(c) = chars.next() {
                    code.push(c);
                    match c {
                        '\\' => code.extend(chars.next()),
                        '"' => break,
                        _ => {}
                    }
                }
            }
            c if c.is_whitespace() => {
                // A blank counts only between words.
                let word = |c: &char| c.is_alphanumeric() || *c == '_';
                while chars.next_if(|c| c.is_whitespace()).is_some() {}
                if code.chars().next_back().is_some_and(|c| word(&c))
                    && chars.peek().is_some_and(word)
                {
                    code.push(' ');
                }
            }
            ')' | ']' | '}' | '>' => {
                if code.ends_with(',') {
                    code.pop();
                }
                code.push(c);
            }
            c => code.push(c),
        }
    }
    code
}

/// 64-bit FNV-1a: guards against forgetting, not against malice.
struct Fnv(u64);

impl Fnv {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::code;

    #[test]
    fn comments_blanks_and_trailing_commas_do_not_count() {
        let short = "fn f(a: u32) { g(\"x // y\", a) }";
        let long = "//! Doc.\nfn f(\n    a: u32, // why\n) {\n    g(\"x // y\", a)\n}\n#[cfg(test)]\nmod tests {}";
        assert_eq!(code(short), code(long));
    }

    #[test]
    fn code_counts() {
        assert_ne!(code("let a = 1;"), code("let a = 2;"));
        assert_ne!(code("asm!(\"a b\")"), code("asm!(\"a  b\")"));
        assert_ne!(code("return x"), code("returnx"));
    }
}
