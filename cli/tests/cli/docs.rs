//! What the documentation names exists: commands, options, the library's example.

use std::collections::BTreeSet;

use crate::run;

/// Documents with commands, relative to this crate.
const DOCUMENTS: [&str; 8] = [
    "../README.md",
    "../CONTRIBUTING.md",
    "../CHANGELOG.md",
    "../docs/performance.md",
    "../ptx-emulator/README.md",
    "../ptx-emulator/libcuda/README.md",
    "../examples/python/README.md",
    "../examples/cudarc/README.md",
];

fn read(path: &str) -> String {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Words of every command in a document's code that starts with `start`, up to the end of the span
/// or line; a backslash continues it.
fn commands(text: &str, start: &str) -> Vec<Vec<String>> {
    let text = text.replace("\\\n", " ");
    let begins = |at: usize| {
        let before = text[..at].chars().next_back();
        before.is_none_or(|c| matches!(c, '`' | '\n' | ' '))
    };
    let found = text.match_indices(start).filter(|&(at, _)| begins(at));
    found
        .map(|(at, _)| {
            let rest = &text[at + start.len()..];
            let end = rest.find(['`', '\n', '|', '#']).unwrap_or(rest.len());
            rest[..end].split_whitespace().map(String::from).collect()
        })
        .collect()
}

/// Commands of the binary, however it is started.
fn binary_commands(text: &str) -> Vec<Vec<String>> {
    let installed = commands(text, "paged-attention ");
    let mut all: Vec<_> = installed.into_iter().filter(|c| !c.is_empty()).collect();
    all.extend(commands(text, "cargo run --release -- "));
    all
}

#[test]
fn commands_are_found_in_spans_and_blocks() {
    let text = "`paged-attention a --b c` or\n    cargo run --release -- d \\\n    --e # why\n";
    let expected: [&[&str]; 2] = [&["a", "--b", "c"], &["d", "--e"]];
    assert_eq!(binary_commands(text), expected);
}

#[test]
fn commands_of_the_binary_exist_with_their_options() {
    let mut named = BTreeSet::new();
    for document in DOCUMENTS {
        for words in binary_commands(&read(document)) {
            let names: Vec<&str> = words.iter().map(String::as_str).collect();
            let depth = if names[0] == "ptx" { 2 } else { 1 };
            let command = &names[..depth.min(names.len())];
            let help = run(&[command, &["--help"]].concat());
            assert_eq!(help.code, Some(0), "{document}: {words:?}: {}", help.stderr);
            let help: BTreeSet<&str> = help
                .stdout
                .split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
                .collect();
            for option in names.iter().filter(|word| word.starts_with('-')) {
                assert!(help.contains(option), "{document}: {words:?}: no {option}");
            }
            named.insert(command.join(" "));
        }
    }
    let all = [
        "decode",
        "demo",
        "ptx export",
        "ptx list",
        "report",
        "sample",
        "simulate",
    ];
    assert!(
        named.iter().eq(&all),
        "named {named:?}, must be all of {all:?}"
    );
}

/// As clap names the command of a variant.
fn kebab_case(variant: &str) -> String {
    let mut name = String::new();
    for c in variant.chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(c.to_lowercase());
    }
    name
}

#[test]
fn developer_commands_exist() {
    let source = read("../xtask/src/main.rs");
    let (_, variants) = source.split_once("enum Command {").expect("the commands");
    let (variants, _) = variants.split_once('}').expect("their end");
    let variants: Vec<String> = variants
        .lines()
        .map(str::trim)
        .filter(|line| line.starts_with(char::is_uppercase))
        .map(|line| kebab_case(line.split(['(', ',']).next().unwrap_or("")))
        .collect();
    let mut named = BTreeSet::new();
    for document in DOCUMENTS {
        for words in commands(&read(document), "cargo xtask ") {
            let name = words.first().expect("a command").clone();
            assert!(
                variants.contains(&name),
                "{document}: cargo xtask {name}: {variants:?}"
            );
            named.insert(name);
        }
    }
    assert!(named.contains("ci") && named.contains("ptx"), "{named:?}");
}

#[test]
fn the_readme_shows_the_librarys_example() {
    let source = read("../host-crate/src/lib.rs");
    let doc: Vec<&str> = source
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect();
    let block = doc.join("\n");
    let example = block.split("```").nth(1).expect("an example");
    // Lines that rustdoc hides.
    let shown = example
        .trim()
        .lines()
        .filter(|line| !line.starts_with("# "));
    let shown: Vec<&str> = shown.collect();

    let readme = read("../README.md");
    let rust = readme.split("```rust\n").nth(1).expect("a Rust example");
    let rust = rust.split("```").next().expect("its end").trim();
    assert_eq!(rust.lines().collect::<Vec<_>>(), shown);
    assert!(shown.len() > 10);
}

#[test]
fn links_in_the_documents_lead_to_files() {
    for document in DOCUMENTS {
        let text = read(document);
        let links = text.split("](").skip(1);
        for link in links.filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or("");
            if !path.is_empty() && !path.contains("://") {
                let document = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
                let path = document.with_file_name(path);
                assert!(path.exists(), "{}: {link}", document.display());
            }
        }
    }
}
