//! What an address points to.

use std::ffi::{c_int, c_uint, c_void};

use crate::boundary::{Handle, In, Out, entry_points};
use crate::error::Code;
use crate::state::{State, current, state};

/// An attribute's value.
enum Value {
    Handle(Handle),
    Number(u32),
    Wide(u64),
}

impl Value {
    fn write(self, data: Out<c_void>) -> Result<(), Code> {
        match self {
            Value::Handle(handle) => data.cast().write(handle),
            Value::Number(number) => data.cast().write(number),
            Value::Wide(wide) => data.cast().write(wide),
        }
    }
}

/// The value of a `CUpointer_attribute`.
fn attribute(state: &State, which: c_uint, address: u64) -> Result<Value, Code> {
    if let Some((start, allocation)) = crate::memory::find(state, address) {
        let context = allocation.context;
        return Ok(match which {
            // A pool's memory belongs to the device, not to a context.
            1 => Value::Handle(if allocation.pool == 0 { context } else { 0 }),
            // CU_MEMORYTYPE_DEVICE.
            2 => Value::Number(2),
            3 => Value::Wide(address),
            6 | 8 | 10 | 15 => Value::Number(0),
            7 => Value::Wide(allocation.number as u64),
            9 => Value::Number(state.contexts.get(context)?.device as u32),
            11 => Value::Wide(start),
            12 => Value::Wide(allocation.size),
            13 => Value::Number(1),
            14 => Value::Wide(0),
            // CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE.
            16 => Value::Number(3),
            17 => Value::Handle(allocation.pool),
            _ => return Err(Code::INVALID_VALUE),
        });
    }
    let host = usize::try_from(address).map_err(|_| Code::INVALID_VALUE)?;
    let (start, pinned) = crate::host_memory::find(state, host).ok_or(Code::INVALID_VALUE)?;
    Ok(match which {
        1 => Value::Handle(pinned.context),
        // CU_MEMORYTYPE_HOST.
        2 => Value::Number(1),
        4 => Value::Wide(address),
        8 | 10 | 13 | 15 => Value::Number(0),
        9 => Value::Number(
            state
                .contexts
                .get(pinned.context)
                .map_or(0, |c| c.device as u32),
        ),
        11 => Value::Wide(start as u64),
        12 => Value::Wide(pinned.bytes as u64),
        _ => return Err(Code::INVALID_VALUE),
    })
}

entry_points! {
    /// An attribute of an address.
    4000 fn cuPointerGetAttribute(data: Out<c_void>, which: c_uint, address: u64) {
        current()?;
        attribute(&*state()?, which, address)?.write(data)
    }

    /// Attributes of an address; those that it does not have are null, as is all of an unknown address.
    7000 fn cuPointerGetAttributes(
        count: c_uint, which: In<c_uint>, data: In<Out<c_void>>, address: u64,
    ) {
        current()?;
        let state = state()?;
        for index in 0..count as usize {
            let (which, data) = (which.at(index).read()?, data.at(index).read()?);
            match attribute(&state, which, address) {
                Ok(value) => value.write(data)?,
                Err(_) if matches!(which, 1 | 3 | 4 | 7 | 11 | 12 | 14 | 17) => {
                    data.cast::<u64>().write(0)?;
                }
                Err(_) if which == 9 => data.cast::<c_int>().write(-2)?,
                Err(_) => data.cast::<c_uint>().write(0)?,
            }
        }
        Ok(())
    }
}
