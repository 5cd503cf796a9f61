//! Cuts LLVM's one module into files of a few entries each.

use anyhow::{Result, bail, ensure};

/// A module as LLVM printed it: directives, and entries by symbol.
pub struct Module {
    version: String,
    target: String,
    entries: Vec<(String, String)>,
}

impl Module {
    /// Takes the module apart. Comments and indentation go; functions that are no entries (the
    /// panic handler) are dropped, and an entry that would need one is an error.
    pub fn parse(text: &str) -> Result<Self> {
        let (mut version, mut target) = (None, None);
        let mut entries: Vec<(String, String)> = Vec::new();
        // The item being read: its text, its brace depth, and whether it is an entry.
        let mut open: Option<(String, i32)> = None;
        for line in text.lines() {
            let line = compact(line);
            if line.is_empty() {
                continue;
            }
            if let Some((item, depth)) = &mut open {
                item.push_str(&line);
                item.push('\n');
                *depth += braces(&line);
                if line.ends_with('}') && *depth == 0 {
                    let (item, _) = open.take().expect("an item is open");
                    if let Some(symbol) = symbol(&item) {
                        ensure!(
                            !item.contains("call"),
                            "{symbol} calls a function; is there a panic path?"
                        );
                        entries.push((symbol.to_string(), item));
                    }
                }
            } else if let Some(value) = line.strip_prefix(".version ") {
                version = Some(value.to_string());
            } else if let Some(value) = line.strip_prefix(".target ") {
                target = Some(value.split(',').next().unwrap_or(value).to_string());
            } else if line.starts_with(".visible .entry") || line.starts_with(".visible .func") {
                let depth = braces(&line);
                open = Some((format!("{line}\n"), depth));
            }
        }
        match (version, target) {
            (Some(version), Some(target)) => Ok(Self {
                version,
                target,
                entries,
            }),
            _ => bail!("the compiler's output has no .version or no .target line"),
        }
    }

    /// PTX ISA version, `major.minor`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Target architecture.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// A file with these entries.
    pub fn file(&self, symbols: &[&str]) -> Result<String> {
        let mut text = format!(
            ".version {}\n.target {}\n.address_size 64\n.extern .shared .align 16 .b8 dyn_smem[];\n",
            self.version, self.target
        );
        for symbol in symbols {
            match self.entries.iter().find(|(name, _)| name == symbol) {
                Some((_, entry)) => text.push_str(entry),
                None => bail!("the compiler's output has no entry {symbol}"),
            }
        }
        Ok(text)
    }
}

/// Every entry's symbol and parameter line, in order.
pub fn signatures(text: &str) -> Vec<(String, String)> {
    let mut lines = text.lines().map(str::trim);
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if let Some(symbol) = symbol(line) {
            found.push((
                symbol.to_string(),
                lines.next().unwrap_or_default().to_string(),
            ));
        }
    }
    found
}

/// An entry's text in its file, from its name to its closing brace.
pub fn entry_text<'t>(text: &'t str, symbol: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!(".entry {symbol}("))?;
    rest.split_once("\n}\n").map(|(body, _)| body)
}

fn symbol(item: &str) -> Option<&str> {
    let rest = item.strip_prefix(".visible .entry ")?;
    rest.split(['(', '\n']).next()
}

fn braces(line: &str) -> i32 {
    line.bytes()
        .map(|b| match b {
            b'{' => 1,
            b'}' => -1,
            _ => 0,
        })
        .sum()
}

/// A line without comment, indentation and the blanks after commas.
fn compact(line: &str) -> String {
    let code = line.split("//").next().unwrap_or_default();
    let words: Vec<&str> = code.split_whitespace().collect();
    words.join(" ").replace(", ", ",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "//\n.version 7.0\n.target sm_80\n.address_size 64\n\
        .visible .func handler(\n)\n{\n\ttrap;\n}\n\
        .visible .entry one(\n\t.param .align 8 .b8 one_param_0[8]\n)\n{\n\
        \t{ .reg .b16 a, b; }\n\tret; // end\n}\n";

    #[test]
    fn entries_are_kept_and_other_functions_dropped() {
        let module = Module::parse(TEXT).unwrap();
        let file = module.file(&["one"]).unwrap();
        assert!(file.ends_with(
            ".visible .entry one(\n.param .align 8 .b8 one_param_0[8]\n)\n{\n{ .reg .b16 a,b; }\nret;\n}\n"
        ));
        assert!(!file.contains("handler"));
        assert_eq!(
            signatures(&file),
            [("one".into(), ".param .align 8 .b8 one_param_0[8]".into())]
        );
        assert!(module.file(&["two"]).is_err());
        let entry = entry_text(&file, "one").unwrap();
        assert!(
            entry.starts_with("\n.param") && entry.ends_with("\nret;"),
            "{entry}"
        );
        assert_eq!(entry_text(&file, "on"), None);
    }

    #[test]
    fn an_entry_that_calls_is_refused() {
        let text = TEXT.replace("ret;", "call.uni handler;");
        assert!(Module::parse(&text).is_err());
    }
}
