//! Text for terminals: units and aligned columns.

use std::io::{self, Write};
use std::time::Duration;

/// Bytes with a decimal unit and three digits: `512 B`, `1.05 MB`.
pub fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, &["B", "KB", "MB", "GB", "TB"])
}

/// Bytes per second.
pub fn bandwidth(bytes: u64, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds == 0.0 {
        return "-".into();
    }
    let rate = bytes as f64 / seconds;
    scaled(rate, &["B/s", "KB/s", "MB/s", "GB/s", "TB/s"])
}

fn scaled(mut value: f64, units: &[&str]) -> String {
    let mut unit = 0;
    // 999.5 would print as 1000.
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let decimals = match value {
        _ if unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", units[unit])
}

/// A time with three digits: `1.23 ms`.
pub fn time(time: Duration) -> String {
    let nanoseconds = time.as_nanos() as f64;
    if nanoseconds < 1e9 {
        scaled(nanoseconds, &["ns", "µs", "ms", "s"])
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

/// A count with its thousands apart: `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number: six decimals where they say enough, else an exponent.
pub fn number(x: f64) -> String {
    match x.abs() {
        0.0 => "0".into(),
        size if (1e-2..1e5).contains(&size) => format!("{x:.6}"),
        _ => format!("{x:.3e}"),
    }
}

/// Text of a file in a message, between backticks: escaped, and no longer than a line.
pub fn quoted(text: &str) -> String {
    format!("`{}`", escaped(text, 60))
}

/// At most `most` characters of a text, control characters escaped.
pub fn escaped(text: &str, most: usize) -> String {
    let mut kept: String = text
        .chars()
        .take(most)
        .flat_map(char::escape_debug)
        .collect();
    if let Some(more) = text
        .chars()
        .count()
        .checked_sub(most)
        .filter(|&more| more > 0)
    {
        kept += &format!("… ({more} characters more)");
    }
    kept
}

/// A message that may quote a file: control characters escaped, all but the ends of lines.
pub fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '"' | '\'' | '\\' => printable.push(c),
            c => printable.extend(c.escape_debug()),
        }
    }
    printable
}

/// A shape as a list; a very long one by its beginning.
pub fn shape(dims: &[usize]) -> String {
    match dims.get(..8) {
        Some(first) if dims.len() > 8 => {
            let first: Vec<_> = first.iter().map(usize::to_string).collect();
            format!("[{}, … ({} dimensions)]", first.join(", "), dims.len())
        }
        _ => format!("{dims:?}"),
    }
}

/// One line of a report: a label in a column of its own.
pub fn field(out: &mut dyn Write, label: &str, value: impl std::fmt::Display) -> io::Result<()> {
    writeln!(out, "  {label:<16}{value}")
}

/// Rows in aligned columns, two spaces apart and two from the margin.
pub struct Table {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

/// Where a column's text stands.
#[derive(Clone, Copy)]
pub enum Align {
    Left,
    Right,
}

impl Table {
    /// A table with these headings.
    pub fn new(columns: &[(&str, Align)]) -> Self {
        Self {
            align: columns.iter().map(|&(_, align)| align).collect(),
            rows: vec![columns.iter().map(|(name, _)| name.to_string()).collect()],
        }
    }

    /// Adds a row with one cell per column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Prints the headings and the rows.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.align.len()).map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, &width), align) in row.iter().zip(&widths).zip(&self.align) {
                line += "  ";
                line += &match align {
                    Align::Left => format!("{cell:<width$}"),
                    Align::Right => format!("{cell:>width$}"),
                };
            }
            writeln!(out, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_keep_three_digits() {
        for (value, expected) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.00 KB"),
            (12_345, "12.3 KB"),
            (999_499, "999 KB"),
            (999_500, "1.00 MB"),
            (65_536_000, "65.5 MB"),
            (u64::MAX, "18446744 TB"),
        ] {
            assert_eq!(bytes(value), expected);
        }
        assert_eq!(bandwidth(1_000_000, Duration::from_millis(1)), "1.00 GB/s");
        assert_eq!(bandwidth(1, Duration::ZERO), "-");
    }

    #[test]
    fn times_carry_a_unit() {
        assert_eq!(time(Duration::from_micros(1234)), "1.23 ms");
        assert_eq!(time(Duration::from_nanos(1500)), "1.50 µs");
        assert_eq!(time(Duration::from_secs(75)), "75.0 s");
    }

    #[test]
    fn counts_keep_thousands_apart() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1234567, "1,234,567"),
        ] {
            assert_eq!(count(n), text);
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(0.0), "0");
        assert_eq!(number(-8.156193), "-8.156193");
        assert_eq!(number(3.051e-5), "3.051e-5");
        assert_eq!(number(f64::NEG_INFINITY), "-inf");
        assert_eq!(number(f64::NAN), "NaN");
    }

    #[test]
    fn texts_of_files_are_escaped_and_shortened() {
        assert_eq!(quoted("NHD"), "`NHD`");
        assert_eq!(quoted("a\n\u{1b}[2J\u{202e}"), "`a\\n\\u{1b}[2J\\u{202e}`");
        let long = quoted(&"é".repeat(1000));
        assert_eq!(long, format!("`{}… (940 characters more)`", "é".repeat(60)));
        assert_eq!(shape(&[3; 8]), "[3, 3, 3, 3, 3, 3, 3, 3]");
        assert_eq!(shape(&[1; 9]), "[1, 1, 1, 1, 1, 1, 1, 1, … (9 dimensions)]");
    }

    #[test]
    fn messages_keep_lines_and_quotes_and_nothing_that_moves_a_terminal() {
        let found = printable("`é` \"a\" \\ it's\n\u{1b}[2J\r\u{202e}\u{9b}");
        assert_eq!(found, "`é` \"a\" \\ it's\n\\u{1b}[2J\\r\\u{202e}\\u{9b}");
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("name", Align::Left), ("size", Align::Right)]);
        table.row(["µ".into(), "1".into()]);
        table.row(["longer".into(), "12345".into()]);
        let mut text = vec![];
        table.print(&mut text).unwrap();
        let expected = "  name     size\n  µ           1\n  longer  12345\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
