//! Launching small programs.

use ptx_emulator::{Error, Fault, Launch, Memory, Module, Options, Report};

/// Options for tests: every detector on, one host thread.
pub fn checked() -> Options {
    Options {
        threads: Some(1),
        instruction_limit: 10_000_000,
        ..Options::default()
    }
}

#[track_caller]
pub fn load(text: &str) -> Module {
    match Module::parse(text) {
        Ok(module) => module,
        Err(error) => panic!("{error}\n{text}"),
    }
}

/// A module of one entry `test(.param .u64 out, .param .u64 in)` around a body.
pub fn module(declarations: &str, body: &str) -> String {
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n{declarations}\n\
         .visible .entry test(.param .u64 out, .param .u64 in)\n{{\n\
         .reg .pred %p<8>; .reg .b16 %h<16>; .reg .b32 %r<32>; .reg .b64 %rd<16>;\n\
         .reg .f32 %f<16>; .reg .f64 %fd<8>;\n{body}\n}}\n"
    )
}

/// Start of a body: %r0 = tid, %rd1 = &out[tid], %rd2 = &in[tid], both of u64.
pub const HEAD: &str = "
    mov.u32 %r0, %tid.x;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [in];
    mad.wide.u32 %rd1, %r0, 8, %rd1;
    mad.wide.u32 %rd2, %r0, 8, %rd2;
";

/// Runs a body over one block of `input.len()` threads: thread i reads `in[i]`, writes `out[i]`.
#[track_caller]
pub fn run(declarations: &str, body: &str, input: &[u64]) -> Vec<u64> {
    match try_run(declarations, body, input, &checked()) {
        Ok((out, _)) => out,
        Err(error) => panic!("{error}"),
    }
}

#[track_caller]
pub fn try_run(
    declarations: &str,
    body: &str,
    input: &[u64],
    options: &Options,
) -> Result<(Vec<u64>, Report), Error> {
    let module = load(&module(declarations, &format!("{HEAD}{body}")));
    let memory = Memory::new();
    let bytes: Vec<u8> = input.iter().flat_map(|v| v.to_le_bytes()).collect();
    let source = memory.alloc(bytes.len() as u64, 256, "in")?;
    memory.write(source, &bytes)?;
    let target = memory.alloc(bytes.len() as u64, 256, "out")?;
    memory.fill(target, 0, bytes.len() as u64)?;
    let params = [target.to_le_bytes(), source.to_le_bytes()].concat();
    let launch = Launch {
        grid: [1; 3],
        block: [input.len() as u32, 1, 1],
        shared_bytes: 0,
    };
    let report = module.launch(&memory, "test", launch, &params, options)?;
    let mut out = vec![0; bytes.len()];
    memory.read(target, &mut out)?;
    let words = out
        .chunks_exact(8)
        .map(|c| u64::from_le_bytes(c.try_into().expect("8 bytes")));
    Ok((words.collect(), report))
}

#[track_caller]
pub fn fault(result: Result<impl std::fmt::Debug, Error>) -> Fault {
    match result {
        Err(Error::Fault(fault)) => *fault,
        other => panic!("expected a fault, found {other:?}"),
    }
}

/// Number of cases: few by default, more by the environment.
pub fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(default)
}
