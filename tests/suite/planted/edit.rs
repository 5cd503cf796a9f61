//! Edits of the shipped PTX, instruction by instruction.

use paged_attention::artefacts::{Manifest, PtxSet};

/// An instruction: opcode with modifiers, operands. Guards are part of the opcode.
pub struct Instruction<'a> {
    pub opcode: &'a str,
    pub operands: Vec<&'a str>,
}

impl<'a> Instruction<'a> {
    pub fn parse(line: &'a str) -> Option<Self> {
        let line = line.trim().strip_suffix(';')?;
        let (opcode, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        // Braces hold vectors: commas inside do not separate operands.
        let mut operands = vec![];
        let (mut depth, mut start) = (0, 0);
        for (i, c) in rest.char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    operands.push(rest[start..i].trim());
                    start = i + 1;
                }
                _ => {}
            }
        }
        operands.push(rest[start..].trim());
        Some(Self { opcode, operands })
    }
}

/// Which of the instructions that an edit matches.
#[derive(Clone, Copy)]
pub enum Which {
    Every,
    /// From 0.
    Nth(usize),
}

/// The embedded set's text of `entry`'s file, with every match of `edit` inside that entry replaced. An
/// edit that matches nothing fails the test: the kernel has moved on, and the edit must follow.
#[track_caller]
pub fn edited(
    entry: &str,
    which: Which,
    edit: impl Fn(&Instruction<'_>) -> Option<String>,
) -> (String, String) {
    let set = PtxSet::embedded();
    let file = &set
        .entry(entry)
        .unwrap_or_else(|| panic!("no entry {entry}"))
        .file;
    let (mut inside, mut matches, mut edits) = (false, 0, 0);
    let mut text = String::new();
    for line in set.ptx(file).unwrap().lines() {
        if let Some((_, name)) = line.split_once(".entry ") {
            inside = name.trim_end_matches('(').trim() == entry;
        }
        let replaced = Instruction::parse(line)
            .filter(|_| inside)
            .and_then(|i| edit(&i));
        let chosen = replaced.filter(|_| {
            matches += 1;
            match which {
                Which::Every => true,
                Which::Nth(n) => matches == n + 1,
            }
        });
        edits += usize::from(chosen.is_some());
        text += chosen.as_deref().unwrap_or(line);
        text.push('\n');
    }
    assert!(
        edits > 0,
        "{entry}: {matches} instructions match, the one to edit is not among them"
    );
    (file.clone(), text)
}

/// A set that holds one edited file, loaded as any folder of artefacts is.
pub fn set_with(file: &str, text: &str) -> PtxSet {
    let name = format!("paged-attention-planted-{}-{:p}", std::process::id(), text);
    let dir = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&dir).unwrap();
    let whole = PtxSet::embedded().manifest();
    let entries = whole
        .entries
        .iter()
        .filter(|entry| entry.file == file)
        .cloned()
        .collect();
    let manifest = Manifest {
        entries,
        ..whole.clone()
    };
    std::fs::write(dir.join("manifest.json"), manifest.to_json()).unwrap();
    std::fs::write(dir.join(file), text).unwrap();
    let set = PtxSet::load(&dir);
    std::fs::remove_dir_all(&dir).unwrap();
    set.unwrap_or_else(|error| panic!("{error}"))
}

/// Drops an instruction.
pub fn drop(opcode: &str) -> impl Fn(&Instruction<'_>) -> Option<String> {
    move |i| (i.opcode == opcode).then(String::new)
}

/// Runs an instruction in the lanes below `limit` of `register` only.
pub fn only_below<'a>(
    opcode: &'a str,
    register: &'a str,
    limit: u32,
) -> impl Fn(&Instruction<'_>) -> Option<String> + 'a {
    move |i| {
        (i.opcode == opcode).then(|| {
            let operands = i.operands.join(",");
            format!(
                "{{ .reg .pred some; .reg .b32 place; mov.u32 place,{register}; \
                 setp.lt.u32 some,place,{limit}; @some {opcode} {operands}; }}"
            )
        })
    }
}

/// The instructions of an entry.
pub fn instructions(entry: &str) -> impl Iterator<Item = Instruction<'static>> {
    let set = PtxSet::embedded();
    let file = &set
        .entry(entry)
        .unwrap_or_else(|| panic!("no entry {entry}"))
        .file;
    let text = set.ptx(file).unwrap_or_else(|| panic!("no file {file}"));
    let start = text
        .find(&format!(".entry {entry}("))
        .unwrap_or_else(|| panic!("no {entry}"));
    let body = text[start..].split(".entry ").nth(1).unwrap_or("");
    body.lines().filter_map(Instruction::parse)
}
