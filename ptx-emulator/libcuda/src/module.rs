//! Modules from PTX text.

use std::collections::BTreeMap;
use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, AtomicU32};
use std::sync::{Arc, Mutex};

use crate::boundary::{Handle, In, Out, Text, entry_points};
use crate::context::Context;
use crate::error::Code;
use crate::function::Function;
use crate::settings::Settings;
use crate::state::{Driver, Kind, current, lock, state};
use crate::stream::refuse_while_capturing;

/// A loaded module.
pub struct LoadedModule {
    /// Handle of its context.
    pub context: Handle,
    pub handle: Handle,
    pub ptx: ptx_emulator::Module,
    /// Handles that have been given out, by entry.
    functions: Mutex<BTreeMap<String, Handle>>,
}

/// A refusal and its text for the log.
type Refusal = (Code, String);

/// Checks and parses a PTX text as a driver and device of these settings would.
fn compile(image: In<u8>, settings: &Settings) -> Result<ptx_emulator::Module, Refusal> {
    let invalid = |code| (code, String::new());
    let magic = image.cast::<[u8; 4]>().read().map_err(invalid)?;
    // ELF, and the two headers of fat binaries.
    if [
        *b"\x7fELF",
        [0x50, 0xed, 0x55, 0xba],
        [0xb1, 0x43, 0x62, 0x46],
    ]
    .contains(&magic)
    {
        let text = "the image is a compiled binary; the emulated driver runs PTX text only";
        return Err((Code::NO_BINARY_FOR_GPU, text.into()));
    }
    let text = Text::from(image).get().map_err(|code| match code {
        Code::INVALID_VALUE => (Code::INVALID_PTX, "the image is not UTF-8 text".into()),
        code => invalid(code),
    })?;
    if let Some(version) = directive(&text, ".version").and_then(version_of) {
        let newest = settings.newest_ptx();
        if version > newest {
            let sentence = format!(
                "PTX version {}.{} is newer than {}.{}, the newest that a driver for CUDA {}.{} reads",
                version.0, version.1, newest.0, newest.1, settings.driver.0, settings.driver.1
            );
            return Err((Code::UNSUPPORTED_PTX_VERSION, sentence));
        }
    }
    let target = directive(&text, ".target").unwrap_or_default();
    let target = target.split(',').next().unwrap_or_default().trim();
    if !runs_on(target, settings.capability) {
        let (major, minor) = settings.capability;
        let sentence = format!(
            "target {target} does not run on a device of compute capability {major}.{minor}"
        );
        return Err((Code::INVALID_PTX, sentence));
    }
    ptx_emulator::Module::parse(&text).map_err(|error| (Code::INVALID_PTX, error.to_string()))
}

/// The word after a directive; comments are none.
fn directive<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    words(text).skip_while(|&word| word != name).nth(1)
}

/// What whitespace and comments keep apart.
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
        let first = text.chars().next()?.len_utf8();
        let end = text[first..].find(|c: char| c.is_whitespace() || c == '/');
        let (word, rest) = text.split_at(end.map_or(text.len(), |end| first + end));
        text = rest;
        Some(word)
    })
}

fn version_of(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Whether a target runs on a compute capability; a target that cannot be read is left to the parser.
fn runs_on(target: &str, (major, minor): (u32, u32)) -> bool {
    let Some(number) = target.strip_prefix("sm_") else {
        return true;
    };
    let digits = number.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let Ok(least) = digits.parse::<u32>() else {
        return true;
    };
    let device = major * 10 + minor;
    match &number[digits.len()..] {
        "a" => device == least,
        "f" => device >= least && major == least / 10,
        _ => device >= least,
    }
}

/// `CUjit_option` values that take part; the others are accepted, without effect.
const INFO_LOG: c_uint = 3;
const INFO_LOG_BYTES: c_uint = 4;
const ERROR_LOG: c_uint = 5;
const ERROR_LOG_BYTES: c_uint = 6;
/// One past the last `CUjit_option`, with room for newer ones.
const OPTIONS: c_uint = 64;

/// A log buffer among the options.
struct Log {
    buffer: usize,
    capacity: usize,
    /// Where the number of bytes written goes.
    written: Option<Out<usize>>,
}

/// The logs for information and for errors.
fn logs(count: c_uint, options: In<c_uint>, values: Out<usize>) -> Result<[Log; 2], Code> {
    let mut logs = [INFO_LOG, ERROR_LOG].map(|_| Log {
        buffer: 0,
        capacity: 0,
        written: None,
    });
    for index in 0..count as usize {
        let (option, value) = (options.at(index).read()?, values.at(index));
        match option {
            INFO_LOG => logs[0].buffer = value.read()?,
            ERROR_LOG => logs[1].buffer = value.read()?,
            INFO_LOG_BYTES | ERROR_LOG_BYTES => {
                let log = &mut logs[usize::from(option == ERROR_LOG_BYTES)];
                // An unsigned int, in the low half of a pointer.
                log.capacity = value.read()? & 0xffff_ffff;
                log.written = Some(value);
            }
            0..OPTIONS => {}
            _ => return Err(Code::INVALID_VALUE),
        }
    }
    Ok(logs)
}

impl Log {
    fn write(&self, text: &str) -> Result<(), Code> {
        let mut bytes = 0;
        if self.buffer != 0 {
            bytes = Out::from_address(self.buffer).text(text, self.capacity)?;
        }
        match self.written {
            Some(written) => written.write(bytes),
            None => Ok(()),
        }
    }
}

fn load(
    context: &Context,
    module: Out<Handle>,
    image: In<u8>,
    [info, error]: [Log; 2],
) -> Result<(), Code> {
    module.required()?;
    refuse_while_capturing(None)?;
    let compiled = compile(image, &Driver::get()?.settings);
    info.write("")?;
    error.write(
        compiled
            .as_ref()
            .err()
            .map_or("", |(_, text)| text.as_str()),
    )?;
    let ptx = compiled.map_err(|(code, _)| code)?;
    let mut state = state()?;
    let handle = state.new_handle(Kind::Module);
    let functions = Mutex::default();
    let loaded = LoadedModule {
        context: context.handle,
        handle,
        ptx,
        functions,
    };
    state.modules.insert(handle, Arc::new(loaded));
    module.write(handle)
}

entry_points! {
    /// Loads a module from a file of PTX text.
    2000 fn cuModuleLoad(module: Out<Handle>, path: Text) {
        let context = current()?;
        let mut text = std::fs::read(path.get()?).map_err(|_| Code::FILE_NOT_FOUND)?;
        text.extend([0; 4]);
        load(&context, module, In::from_address(text.as_ptr() as usize), logs(0, In::null(), Out::null())?)
    }

    /// Loads a module from PTX text.
    2000 fn cuModuleLoadData(module: Out<Handle>, image: In<u8>) {
        load(&*current()?, module, image, logs(0, In::null(), Out::null())?)
    }

    /// Loads a module from PTX text; options for logs have an effect.
    2010 fn cuModuleLoadDataEx(
        module: Out<Handle>, image: In<u8>, count: c_uint, options: In<c_uint>, values: Out<usize>,
    ) {
        load(&*current()?, module, image, logs(count, options, values)?)
    }

    /// Loads a module from a fat binary: not supported.
    2000 fn cuModuleLoadFatBinary(module: Out<Handle>, image: In<c_void>) {
        current()?;
        module.required()?;
        if image.is_null() { Err(Code::INVALID_VALUE) } else { Err(Code::NO_BINARY_FOR_GPU) }
    }

    /// Unloads a module.
    2000 fn cuModuleUnload(module: Handle) {
        current()?;
        refuse_while_capturing(None)?;
        let mut state = state()?;
        let module = state.modules.remove(module)?;
        state.functions.retain(|function| function.module.handle != module.handle);
        Ok(())
    }

    /// The function of an entry.
    2000 fn cuModuleGetFunction(function: Out<Handle>, module: Handle, name: Text) {
        current()?;
        function.required()?;
        let name = name.get()?;
        let mut state = state()?;
        let module = state.modules.get(module)?;
        let info = module.ptx.entry(&name).ok_or(Code::NOT_FOUND)?.clone();
        let known = lock(&module.functions).get(&name).copied();
        if let Some(handle) = known {
            return function.write(handle);
        }
        let handle = state.new_handle(Kind::Function);
        lock(&module.functions).insert(name.clone(), handle);
        let default_shared = crate::limits::DEFAULT_SHARED.saturating_sub(info.static_shared);
        let made = Function {
            context: module.context,
            c_name: CString::new(name.as_str()).map_err(|_| Code::INVALID_VALUE)?,
            module,
            name,
            info,
            max_dynamic_shared: AtomicU32::new(default_shared),
            carveout: AtomicI32::new(-1),
        };
        state.functions.insert(handle, Arc::new(made));
        function.write(handle)
    }

    /// The number of entries of a module.
    12040 fn cuModuleGetFunctionCount(count: Out<c_uint>, module: Handle) {
        current()?;
        count.write(state()?.modules.get(module)?.ptx.entries().len() as c_uint)
    }

    /// Address and size of a module's variable.
    3020 fn cuModuleGetGlobal_v2(address: Out<u64>, bytes: Out<usize>, module: Handle, name: Text) {
        current()?;
        let name = name.get()?;
        let (module, context) = {
            let state = state()?;
            let module = state.modules.get(module)?;
            let context = state.contexts.get(module.context)?;
            (module, context)
        };
        let found = module.ptx.variable(&context.memory, &name).map_err(|_| Code::OUT_OF_MEMORY)?;
        let (start, size) = found.ok_or(Code::NOT_FOUND)?;
        address.write_if_asked(start);
        bytes.write_if_asked(size as usize);
        Ok(())
    }

    /// Modules are loaded eagerly.
    11070 fn cuModuleGetLoadingMode(mode: Out<c_int>) {
        mode.write(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_follow_their_suffix() {
        assert!(runs_on("sm_80", (8, 0)));
        assert!(runs_on("sm_80", (12, 0)));
        assert!(!runs_on("sm_90", (8, 9)));
        assert!(runs_on("sm_90a", (9, 0)));
        assert!(!runs_on("sm_90a", (10, 0)));
        assert!(runs_on("sm_100f", (10, 3)));
        assert!(!runs_on("sm_100f", (12, 0)));
    }

    #[test]
    fn directives_are_read_with_comments_and_company() {
        let text = "// generated\n.version 7.0 // isa\n.target sm_80, texmode_independent\n";
        assert_eq!(
            directive(text, ".version").and_then(version_of),
            Some((7, 0))
        );
        assert_eq!(directive(text, ".target"), Some("sm_80,"));
        assert_eq!(
            directive(".version 8.5 .target sm_90", ".target"),
            Some("sm_90")
        );
        let text = "/* .version 9.9\n.target sm_99 */// .version 9.8\n.version/**/7.1// isa\n/**/\n\
                    .target sm_80/* .target sm_90 */";
        assert_eq!(directive(text, ".version"), Some("7.1"));
        assert_eq!(directive(text, ".target"), Some("sm_80"));
        for text in [
            "",
            "/",
            "/*",
            "/*/.version 7.0",
            "//.version 7.0",
            ".version",
            ".version8 7.0",
        ] {
            assert_eq!(directive(text, ".version"), None, "{text}");
        }
    }
}
