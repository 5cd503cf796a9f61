//! Output files that appear whole or not at all, and progress bars.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::error::Error;

/// Checks, before any work, that `path` can be written: its folder takes files, and what it names
/// is absent or a regular file other than `input`.
pub fn check(path: &Path, input: Option<&Path>) -> Result<(), Error> {
    if let Some(input) = input
        && let (Ok(a), Ok(b)) = (fs::canonicalize(path), fs::canonicalize(input))
        && (a == b || same_inode(&a, &b))
    {
        let path = path.to_owned();
        return Err(Error::OutputIsInput { path });
    }
    // Replacing a device by a file, as a rename does, is never meant.
    if fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
        let path = path.to_owned();
        return Err(Error::NotAFile { path });
    }
    Temporary::create(path).map(drop)
}

#[cfg(unix)]
fn same_inode(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    identity(a).is_some() && identity(a) == identity(b)
}

#[cfg(not(unix))]
fn same_inode(_: &Path, _: &Path) -> bool {
    false
}

/// Writes a file beside `path` and renames it to `path` once all is written.
pub fn write(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Error> {
    let mut temporary = Temporary::create(path)?;
    content(&mut temporary.file).map_err(Error::write(path))?;
    fs::rename(&temporary.path, path).map_err(Error::write(path))
}

/// A new file in the folder of its target. Dropping removes it, if it still has its own name.
struct Temporary {
    path: PathBuf,
    file: File,
}

impl Temporary {
    fn create(target: &Path) -> Result<Self, Error> {
        if target.file_name().is_none() {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "it does not name a file");
            return Err(Error::write(target)(source));
        }
        // Not longer than the target's may be, which is often the longest there is.
        let path = target.with_file_name(format!(".paged-attention.{}.tmp", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.map_err(Error::write(target))?;
        Ok(Self { path, file })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A bar of `length` bytes on standard error, if that is a terminal.
pub fn byte_bar(what: &'static str, length: u64) -> ProgressBar {
    bar(what, length, "{decimal_bytes} of {decimal_total_bytes}")
}

/// A bar of `length` steps on standard error, if that is a terminal.
pub fn step_bar(what: &'static str, length: u64) -> ProgressBar {
    bar(what, length, "{pos} of {len}")
}

/// A sign of life on standard error, if that is a terminal, for work whose end cannot be seen.
pub fn spinner(what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("  {msg}  {spinner}  {elapsed}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
    let spinner = ProgressBar::new_spinner()
        .with_style(style)
        .with_message(what);
    spinner.enable_steady_tick(Duration::from_millis(200));
    spinner
}

fn bar(what: &'static str, length: u64, count: &str) -> ProgressBar {
    let template = format!("  {{msg:<14}}  {{bar:30}}  {count}  {{eta}} left");
    let style =
        ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length)
        .with_style(style)
        .with_message(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_nothing_and_keeps_the_old_file() {
        let dir =
            std::env::temp_dir().join(format!("paged-attention-output-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("out");
        fs::write(&path, "old").unwrap();
        let result = write(&path, |file| {
            file.write_all(b"half")?;
            Err(io::Error::other("the disk is full"))
        });
        let expected = format!("cannot write {}: the disk is full", path.display());
        assert_eq!(result.unwrap_err().to_string(), expected);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);

        write(&path, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);

        let longest = dir.join("x".repeat(255));
        write(&longest, |file| file.write_all(b"new")).unwrap();
        assert_eq!(fs::read_to_string(&longest).unwrap(), "new");
        fs::remove_dir_all(&dir).unwrap();
    }
}
