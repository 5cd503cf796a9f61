//! The C boundary: entry points that return numbers, check their pointers and never unwind.

use std::cell::Cell;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::Code;

/// `CUresult`.
pub type CUresult = u32;

/// A handle of any kind: a number that is looked up, never followed.
pub type Handle = usize;

/// An exported function, for `cuGetProcAddress`.
pub struct Export {
    /// The exported name.
    pub name: &'static str,
    /// The CUDA version, such as 3020 for 3.2, that brought this signature.
    pub since: i32,
    /// Its address.
    pub address: *const (),
}

/// Declares entry points: `since fn name(arguments) { body }`, the body giving a `Result<(), Code>`.
macro_rules! entry_points {
    ($(
        $(#[$doc:meta])*
        $since:literal fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// Pointers are null, or valid for what the driver API reads and writes there.
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $ty),*) -> crate::boundary::CUresult {
                crate::boundary::enter(stringify!($name), || $body)
            }
        )*

        /// What this file exports.
        pub(crate) fn exports() -> Vec<crate::boundary::Export> {
            vec![$( crate::boundary::Export {
                name: stringify!($name),
                since: $since,
                address: $name as *const (),
            } ),*]
        }
    };
}
pub(crate) use entry_points;

thread_local! {
    /// This thread runs a host function that a stream called; it may not call the driver.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Runs an entry point's body. A panic is a bug here, and ends as `CUDA_ERROR_UNKNOWN`.
pub fn enter(name: &'static str, body: impl FnOnce() -> Result<(), Code>) -> CUresult {
    if IN_HOST_FUNCTION.get() {
        return Code::NOT_PERMITTED.0;
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(_) => {
            say(&format!(
                "{name} panicked, which is a bug of the emulated driver"
            ));
            Code::UNKNOWN.0
        }
    }
}

/// Calls a client's function in a stream's order.
pub fn in_host_function(call: impl FnOnce()) {
    IN_HOST_FUNCTION.set(true);
    call();
    IN_HOST_FUNCTION.set(false);
}

/// A sentence for whoever watches stderr.
pub fn say(sentence: &str) {
    eprintln!("ptx-emulator libcuda: {sentence}");
}

/// A pointer to write a result through.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Copy for Out<T> {}
impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Out<T> {
    /// A pointer that asks for nothing.
    pub fn null() -> Self {
        Out(std::ptr::null_mut())
    }

    /// Fails if the pointer is null.
    pub fn required(self) -> Result<Self, Code> {
        if self.0.is_null() {
            Err(Code::INVALID_VALUE)
        } else {
            Ok(self)
        }
    }

    /// Writes a result that must be asked for.
    pub fn write(self, value: T) -> Result<(), Code> {
        self.required()?.write_if_asked(value);
        Ok(())
    }

    /// Writes a result that a null pointer declines.
    pub fn write_if_asked(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: not null, so writable, as every entry point's caller promises. The client's
            // type may be aligned less strictly than ours.
            unsafe { self.0.write_unaligned(value) }
        }
    }

    /// The pointer as one to another type, for results whose type another argument decides.
    pub fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }

    /// The element `index`.
    pub fn at(self, index: usize) -> Self {
        Out(self.0.wrapping_add(index))
    }

    /// What the pointer points to.
    pub fn read(self) -> Result<T, Code>
    where
        T: Copy,
    {
        In(self.0.cast_const()).read()
    }

    /// The address.
    pub fn address(self) -> usize {
        self.0 as usize
    }
}

/// A pointer to read an argument through.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> Copy for In<T> {}
impl<T> Clone for In<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Copy> In<T> {
    /// What the pointer points to.
    pub fn read(self) -> Result<T, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, so readable, as every entry point's caller promises.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// The element `index`.
    pub fn at(self, index: usize) -> Self {
        In(self.0.wrapping_add(index))
    }
}

impl<T> From<*const T> for In<T> {
    fn from(pointer: *const T) -> Self {
        In(pointer)
    }
}

impl<T> In<T> {
    /// A pointer to nothing.
    pub fn null() -> Self {
        In(std::ptr::null())
    }

    /// Whether the pointer is null.
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The pointer as one to another type.
    pub fn cast<U>(self) -> In<U> {
        In(self.0.cast())
    }

    /// The address.
    pub fn address(self) -> usize {
        self.0 as usize
    }
}

impl In<u8> {
    /// Reads from an address that the client gave as a number.
    pub fn from_address(address: usize) -> Self {
        In(address as *const u8)
    }

    /// Fills `bytes` from the client's memory.
    pub fn copy_to(self, bytes: &mut [u8]) -> Result<(), Code> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, so readable for the length that the call names, as its caller promises;
        // our own slice cannot overlap it.
        unsafe {
            self.0
                .copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len())
        };
        Ok(())
    }
}

impl Out<u8> {
    /// Writes to an address that the client gave as a number.
    pub fn from_address(address: usize) -> Self {
        Out(address as *mut u8)
    }

    /// Copies `bytes` into the client's memory.
    pub fn copy_from(self, bytes: &[u8]) -> Result<(), Code> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, so writable for the length that the call names, as its caller promises;
        // our own slice cannot overlap it.
        unsafe { self.0.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    /// Copies `text` and its NUL, cut to `capacity` bytes; gives the bytes written.
    pub fn text(self, text: &str, capacity: usize) -> Result<usize, Code> {
        let Some(room) = capacity.checked_sub(1) else {
            return Ok(0);
        };
        let text = &text.as_bytes()[..text.len().min(room)];
        self.copy_from(text)?;
        self.at(text.len()).copy_from(&[0])?;
        Ok(text.len() + 1)
    }
}

/// A NUL-terminated string.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

impl From<In<u8>> for Text {
    fn from(text: In<u8>) -> Self {
        Text(text.0.cast())
    }
}

impl Text {
    /// The string, which must be UTF-8.
    pub fn get(self) -> Result<String, Code> {
        Ok(self
            .c_str()?
            .to_str()
            .map_err(|_| Code::INVALID_VALUE)?
            .to_string())
    }

    /// The string's bytes.
    pub fn c_str<'a>(self) -> Result<&'a CStr, Code> {
        if self.0.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: not null, so NUL-terminated, as every entry point's caller promises. Callers drop
        // the result before the entry point returns.
        Ok(unsafe { CStr::from_ptr(self.0) })
    }
}
