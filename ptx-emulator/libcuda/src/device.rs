//! The library and its devices.

use std::ffi::{c_char, c_int, c_uint};

use crate::boundary::{Out, entry_points};
use crate::error::Code;
use crate::limits::{self, figures};
use crate::settings::Settings;
use crate::state::{Driver, state};

/// The name of every device.
pub const NAME: &str = "ptx-emulator (emulated on the CPU, no GPU)";

/// A device's ordinal as an index.
pub fn ordinal(device: c_int) -> Result<usize, Code> {
    let devices = Driver::get()?.settings.devices;
    usize::try_from(device)
        .ok()
        .filter(|&d| d < devices)
        .ok_or(Code::INVALID_DEVICE)
}

/// The value of a `CUdevice_attribute`. What the device does not have is 0.
fn attribute(settings: &Settings, device: usize, attribute: c_uint) -> Result<u32, Code> {
    let figures = figures(settings.capability);
    Ok(match attribute {
        1 => limits::BLOCK_THREADS,
        2..=4 => limits::BLOCK[attribute as usize - 2],
        5..=7 => limits::GRID[attribute as usize - 5],
        8 => limits::DEFAULT_SHARED,
        9 => 64 * 1024,
        10 => 32,
        // Maximum pitch.
        11 => i32::MAX as u32,
        12 | 82 => limits::REGISTERS,
        // Clocks in kHz: a placeholder, since nothing here runs at a clock.
        13 | 36 => 1_000_000,
        // Alignments of textures and surfaces.
        14 | 30 => 512,
        51 => 32,
        16 => limits::MULTIPROCESSORS,
        // PCI bus, where the device's ordinal tells devices apart.
        33 => device as u32,
        // Memory bus width in bits, again a placeholder.
        37 => 256,
        38 => 4 << 20,
        39 => figures.threads_per_sm,
        41 => 1,
        75 => settings.capability.0,
        76 => settings.capability.1,
        78 => 1,
        81 => figures.shared_per_sm,
        // Single to double precision ratio.
        87 => 2,
        97 => figures.shared_per_block,
        // Host memory may be registered.
        99 => 1,
        106 => figures.blocks_per_sm,
        111 => limits::RESERVED_SHARED,
        // Memory pools.
        115 => 1,
        0 | 201.. => return Err(Code::INVALID_VALUE),
        _ => 0,
    })
}

fn uuid(uuid: Out<[u8; 16]>, device: c_int) -> Result<(), Code> {
    let mut bytes = *b"ptx-emulator-\0\0\0";
    bytes[15] = ordinal(device)? as u8;
    uuid.write(bytes)
}

entry_points! {
    /// Initialises the driver.
    2000 fn cuInit(flags: c_uint) {
        match flags {
            0 => Driver::init(),
            _ => Err(Code::INVALID_VALUE),
        }
    }

    /// The CUDA version of the driver.
    2020 fn cuDriverGetVersion(version: Out<c_int>) {
        version.write(Driver::settings_or_default().driver_number())
    }

    /// The device of an ordinal.
    2000 fn cuDeviceGet(device: Out<c_int>, number: c_int) {
        drop(state()?);
        device.write(ordinal(number)? as c_int)
    }

    /// The number of devices.
    2000 fn cuDeviceGetCount(count: Out<c_int>) {
        count.write(Driver::get()?.settings.devices as c_int)
    }

    /// The device's name, which says that it is emulated.
    2000 fn cuDeviceGetName(name: Out<c_char>, len: c_int, device: c_int) {
        ordinal(device)?;
        let capacity = usize::try_from(len).ok().filter(|&len| len > 0).ok_or(Code::INVALID_VALUE)?;
        name.required()?.cast::<u8>().text(NAME, capacity)?;
        Ok(())
    }

    /// Sixteen bytes that name the device.
    9020 fn cuDeviceGetUuid(bytes: Out<[u8; 16]>, device: c_int) {
        uuid(bytes, device)
    }

    /// Sixteen bytes that name the device.
    11040 fn cuDeviceGetUuid_v2(bytes: Out<[u8; 16]>, device: c_int) {
        uuid(bytes, device)
    }

    /// The device's memory in bytes.
    3020 fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: c_int) {
        ordinal(device)?;
        bytes.write(Driver::get()?.settings.memory_bytes as usize)
    }

    /// An attribute of the device.
    2000 fn cuDeviceGetAttribute(value: Out<c_int>, which: c_uint, device: c_int) {
        let device = ordinal(device)?;
        value.write(attribute(&Driver::get()?.settings, device, which)? as c_int)
    }

    /// The device's compute capability.
    2000 fn cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, device: c_int) {
        ordinal(device)?;
        let capability = Driver::get()?.settings.capability;
        major.write(capability.0 as c_int)?;
        minor.write(capability.1 as c_int)
    }

    /// The device's place on a PCI bus that is not there.
    4010 fn cuDeviceGetPCIBusId(id: Out<c_char>, len: c_int, device: c_int) {
        let device = ordinal(device)?;
        let capacity = usize::try_from(len).ok().filter(|&len| len > 0).ok_or(Code::INVALID_VALUE)?;
        id.required()?.cast::<u8>().text(&format!("0000:{device:02x}:00.0"), capacity)?;
        Ok(())
    }

    /// Whether one device may read another's memory: never.
    4000 fn cuDeviceCanAccessPeer(can: Out<c_int>, device: c_int, peer: c_int) {
        ordinal(device)?;
        ordinal(peer)?;
        can.write(0)
    }
}
