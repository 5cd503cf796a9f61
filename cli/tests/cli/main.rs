//! The binary, run as a user would.

mod device;
mod docs;
mod hostile;
mod report;
mod round_trip;
mod sets;
mod simple;
mod simulate;

use std::path::{Path, PathBuf};
use std::process::Command;

/// What a run left behind.
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Run {
    /// The output of a run that succeeded and complained of nothing.
    #[track_caller]
    fn success(self) -> String {
        assert_eq!(
            (self.code, self.stderr.as_str()),
            (Some(0), ""),
            "{}",
            self.stdout
        );
        self.stdout
    }

    /// The message of a run that failed.
    #[track_caller]
    fn failure(self) -> String {
        assert_eq!(self.code, Some(1), "{}{}", self.stdout, self.stderr);
        let message = self.stderr.strip_prefix("error: ");
        let message = message.unwrap_or_else(|| panic!("no `error: ` in {:?}", self.stderr));
        message.trim_end().to_owned()
    }
}

/// Runs the binary with words as arguments.
fn run(args: &[&str]) -> Run {
    run_in(args, &[])
}

/// The same with more environment.
fn run_in(args: &[&str], environment: &[(&str, &str)]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_paged-attention"))
        .args(args)
        .envs(environment.iter().copied())
        .output()
        .expect("the binary starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    Run {
        code: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// A folder of a test's own, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let name = format!("paged-attention-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    /// A file's path as an argument.
    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }

    /// Names of all files, sorted; hidden ones too.
    fn names(&self) -> Vec<String> {
        names(&self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a folder");
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<_> = entries
        .map(|entry| name(entry).into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}
