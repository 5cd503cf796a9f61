//! Aligned, zeroed memory for tensors.

use std::alloc::{self, Layout};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use half::{bf16, f16};
use safetensors::Dtype;

use crate::error::Error;

#[cfg(not(target_endian = "little"))]
compile_error!("safetensors files are little endian, and tensors are read as they are");

/// A cache line, and the 16 bytes that the library asks for.
const ALIGNMENT: usize = 64;

/// Plain numbers: what tensors hold.
///
/// # Safety
/// Every bit pattern is a value, and there is no padding.
pub unsafe trait Number: Copy + 'static {
    /// The type's name in a safetensors file.
    const FILE_DTYPE: Dtype;
}

// SAFETY: 32 bits, each pattern an integer.
unsafe impl Number for i32 {
    const FILE_DTYPE: Dtype = Dtype::I32;
}
// SAFETY: 32 bits, each pattern a number or a NaN.
unsafe impl Number for f32 {
    const FILE_DTYPE: Dtype = Dtype::F32;
}
// SAFETY: a transparent u16.
unsafe impl Number for f16 {
    const FILE_DTYPE: Dtype = Dtype::F16;
}
// SAFETY: a transparent u16.
unsafe impl Number for bf16 {
    const FILE_DTYPE: Dtype = Dtype::BF16;
}

/// The bytes of a slice of numbers.
pub fn bytes_of<T: Number>(values: &[T]) -> &[u8] {
    // SAFETY: `Number` has no padding, so `size_of_val` bytes are initialised; u8 has no alignment;
    // the result borrows `values`.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// `len` numbers at a multiple of 64 bytes, zero at first. Pages cost memory once they are touched.
pub struct Buffer<T> {
    start: NonNull<T>,
    layout: Layout,
    len: usize,
    owns: PhantomData<T>,
}

impl<T: Number> Buffer<T> {
    /// Allocates; `what` names the buffer if that fails.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn zeroed(what: &'static str, len: usize) -> Result<Self, Error> {
        let bytes = len.saturating_mul(size_of::<T>());
        let error = || Error::OutOfMemory { what, bytes };
        // An allocation of no bytes is not allowed: take a few.
        let layout = Layout::from_size_align(bytes.max(ALIGNMENT), ALIGNMENT);
        let layout = layout.map_err(|_| error())?;
        // SAFETY: the layout's size is not 0.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start.cast()).ok_or_else(error)?;
        Ok(Self {
            start,
            layout,
            len,
            owns: PhantomData,
        })
    }

    /// The bytes, for reading a file into them.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = size_of_val(&**self);
        // SAFETY: the allocation holds that many bytes, all initialised, and any bytes make valid
        // numbers; `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), bytes) }
    }
}

impl<T> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `zeroed` made an allocation of `len` values, aligned for `T` and initialised.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as for `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        // SAFETY: `zeroed` allocated with this layout; numbers need no drop.
        unsafe { alloc::dealloc(self.start.as_ptr().cast(), self.layout) }
    }
}

// SAFETY: the buffer owns its memory and hands it out by the usual borrows, so it may go wherever
// its numbers may.
unsafe impl<T: Send> Send for Buffer<T> {}
// SAFETY: as above; a shared buffer gives shared slices only.
unsafe impl<T: Sync> Sync for Buffer<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_as_long_as_asked() {
        for len in [0, 1, 7, 4096] {
            let mut buffer = Buffer::<f32>::zeroed("test", len).unwrap();
            assert_eq!(buffer.as_ptr().addr() % ALIGNMENT, 0);
            assert_eq!(&*buffer, vec![0.0; len]);
            buffer.fill(1.0);
            assert_eq!(buffer.bytes_mut().len(), 4 * len);
            assert_eq!(bytes_of(&buffer), [0, 0, 0x80, 0x3f].repeat(len));
        }
    }

    #[test]
    fn refuses_more_than_the_address_space() {
        let error = Buffer::<f32>::zeroed("the workspace", usize::MAX / 2).err();
        let text = error.expect("must be refused").to_string();
        let expected = format!("cannot allocate {} bytes for the workspace", usize::MAX);
        assert_eq!(text, expected);
    }
}
