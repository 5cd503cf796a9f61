//! Refusals of `cargo xtask`, as a user sees them who has set `RUST_BACKTRACE`.

use std::process::Command;

/// What the program says of words that it refuses.
#[track_caller]
fn refusal(words: &str, environment: &[(&str, &str)]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(words.split_whitespace())
        .env("RUST_BACKTRACE", "1")
        .envs(environment.iter().copied())
        .output()
        .expect("the binary starts");
    let text = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{text}");
    let message = text.strip_prefix("error: ");
    let message = message.unwrap_or_else(|| panic!("no `error: ` in {text:?}"));
    assert!(!message.contains("backtrace"), "{message}");
    message.trim_end().to_owned()
}

#[test]
fn a_name_of_no_entry_is_said() {
    // Programs that do nothing: no entry is assembled.
    let tools = [("PTXAS", "true"), ("NVDISASM", "true")];
    let message = refusal("compare --entry decode_f17_", &tools);
    assert_eq!(message, "no entry's name contains `decode_f17_`");
}

#[test]
fn a_rustc_for_rust_cuda_that_does_not_run_or_is_none_is_said() {
    for (rustc, found) in [
        ("/no/such/rustc", "does not run"),
        ("false", "does not run"),
        ("true", "is no rustc"),
    ] {
        let message = refusal("ptx --backend rust-cuda", &[("RUST_CUDA_RUSTC", rustc)]);
        let mut lines = message.lines();
        assert_eq!(
            lines.next(),
            Some("the kernels cannot be compiled with rust-cuda here:")
        );
        let line = format!("- the rustc that RUST_CUDA_RUSTC names: {rustc} {found}");
        assert_eq!(lines.next(), Some(line.as_str()), "{message}");
    }
}

#[test]
fn a_cause_follows_its_refusal_in_the_same_line() {
    let message = refusal("ptxas --dir /no/such/folder", &[("PTXAS", "true")]);
    assert!(
        message.starts_with("cannot read /no/such/folder: "),
        "{message}"
    );
    assert_eq!(message.lines().count(), 1, "{message}");
}
