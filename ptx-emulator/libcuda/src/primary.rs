//! Primary contexts: one per device, counted.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::Ordering::Relaxed;

use crate::boundary::{Handle, Out, entry_points};
use crate::context::Context;
use crate::device::ordinal;
use crate::error::Code;
use crate::state::{Kind, state};

fn release(device: c_int) -> Result<(), Code> {
    let mut state = state()?;
    let device = ordinal(device)?;
    let primary = &mut state.primaries[device];
    if primary.retained == 0 {
        return Err(Code::INVALID_CONTEXT);
    }
    primary.retained -= 1;
    if primary.retained == 0 {
        let handle = primary.handle;
        end(&mut state, handle);
    }
    Ok(())
}

fn reset(device: c_int) -> Result<(), Code> {
    let mut state = state()?;
    let device = ordinal(device)?;
    state.primaries[device].retained = 0;
    let handle = state.primaries[device].handle;
    end(&mut state, handle);
    Ok(())
}

/// Ends a primary context, which a reset may have ended already.
fn end(state: &mut crate::state::State, handle: Handle) {
    let _ = Context::destroy(state, handle);
}

fn set_flags(device: c_int, flags: c_uint) -> Result<(), Code> {
    let mut state = state()?;
    let device = ordinal(device)?;
    state.primaries[device].flags = flags;
    if let Ok(context) = state.contexts.get(state.primaries[device].handle) {
        context.flags.store(flags, Relaxed);
    }
    Ok(())
}

entry_points! {
    /// Retains a device's primary context, creating it if need be.
    7000 fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: c_int) {
        let mut state = state()?;
        let device = ordinal(device)?;
        context.required()?;
        if state.primaries[device].handle == 0 {
            state.primaries[device].handle = state.new_handle(Kind::Context);
        }
        let primary = state.primaries[device];
        if state.contexts.get(primary.handle).is_err() {
            Context::create(&mut state, device, primary.flags, Some(primary.handle));
        }
        state.primaries[device].retained += 1;
        context.write(primary.handle)
    }

    /// Releases a device's primary context; the last release destroys it.
    11000 fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        release(device)
    }

    /// Releases a device's primary context; the last release destroys it.
    7000 fn cuDevicePrimaryCtxRelease(device: c_int) {
        release(device)
    }

    /// Destroys a device's primary context, whoever has retained it.
    11000 fn cuDevicePrimaryCtxReset_v2(device: c_int) {
        reset(device)
    }

    /// Destroys a device's primary context, whoever has retained it.
    7000 fn cuDevicePrimaryCtxReset(device: c_int) {
        reset(device)
    }

    /// Flags of a device's primary context; kept, without effect.
    11000 fn cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) {
        set_flags(device, flags)
    }

    /// Flags of a device's primary context; kept, without effect.
    7000 fn cuDevicePrimaryCtxSetFlags(device: c_int, flags: c_uint) {
        set_flags(device, flags)
    }

    /// Flags of a device's primary context, and whether it is alive.
    7000 fn cuDevicePrimaryCtxGetState(device: c_int, flags: Out<c_uint>, active: Out<c_int>) {
        let state = state()?;
        let primary = state.primaries[ordinal(device)?];
        flags.write(primary.flags)?;
        active.write(state.contexts.get(primary.handle).is_ok().into())
    }
}
