//! What a PTX text says of itself, comments left out.

use std::collections::BTreeSet;

/// The directives of a PTX text that a manifest repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Header<'a> {
    /// Of `.version`; empty without one.
    pub version: &'a str,
    /// The first of `.target`; empty without one.
    pub target: &'a str,
    /// Symbols of the entries.
    pub entries: BTreeSet<&'a str>,
}

impl<'a> Header<'a> {
    /// Reads a text.
    pub fn of(text: &'a str) -> Self {
        let mut header = Self::default();
        let mut words = words(text);
        while let Some(word) = words.next() {
            let mut next = || words.next().unwrap_or_default();
            match word {
                ".version" if header.version.is_empty() => header.version = next(),
                // `.target sm_80, debug` and the like name the target first.
                ".target" if header.target.is_empty() => header.target = until(next(), ','),
                ".entry" => _ = header.entries.insert(until(next(), '(')),
                _ => {}
            }
        }
        header
    }
}

fn until(word: &str, end: char) -> &str {
    word.split(end).next().unwrap_or_default()
}

/// What whitespace and comments keep apart; a quoted text is one word.
fn words(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        loop {
            text = text.trim_start();
            if let Some(comment) = text.strip_prefix("//") {
                text = comment.split_once('\n').map_or("", |(_, rest)| rest);
            } else if let Some(comment) = text.strip_prefix("/*") {
                text = comment.split_once("*/").map_or("", |(_, rest)| rest);
            } else {
                break;
            }
        }
        let (first, rest) = text.split_at(text.chars().next()?.len_utf8());
        let rest = match first {
            "\"" => rest.split_once('"').map_or("", |(_, rest)| rest),
            _ => rest.trim_start_matches(|c: char| !c.is_whitespace() && c != '/' && c != '"'),
        };
        let word = &text[..text.len() - rest.len()];
        text = rest;
        Some(word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_in_comments_and_strings_are_not_the_files() {
        let text = "//\n// .version 6.0 .target sm_50\n/* .version 6.1\n.target sm_60 */.version/**/7.0 // 9.9\n\
                    .target sm_80, debug /* .target sm_90 */\n.file 1 \"/* a.rs\"\n\
                    .visible .entry one(\n/*.entry two( */ // .entry three(\n.entry\nfour (\n.file 2 \" .entry five(\"\n";
        let header = Header {
            version: "7.0",
            target: "sm_80",
            entries: ["four", "one"].into(),
        };
        assert_eq!(Header::of(text), header);
    }

    #[test]
    fn texts_without_directives_or_with_open_comments_have_an_empty_header() {
        for text in [
            "",
            "//",
            "/*",
            "/*/ .version 7.0",
            "é .versions 7.0",
            "\"",
            "/",
            ".version",
        ] {
            assert_eq!(Header::of(text), Header::default(), "{text}");
        }
    }
}
