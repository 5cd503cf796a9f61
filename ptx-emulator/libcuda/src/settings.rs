//! What the environment says about the emulated machine.
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `PTX_EMULATOR_DEVICES` | 1 | number of devices, 0 to 16 |
//! | `PTX_EMULATOR_COMPUTE_CAPABILITY` | 8.0 | of every device; PTX for a newer target is refused |
//! | `PTX_EMULATOR_DRIVER_VERSION` | 13.0 | the CUDA version; a newer PTX version is refused |
//! | `PTX_EMULATOR_MEMORY_MIB` | 4096 | memory of every device |
//! | `PTX_EMULATOR_THREADS` | all | host threads that run a launch's blocks |

use ptx_emulator::Options;

/// The settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Number of devices.
    pub devices: usize,
    /// Compute capability (major, minor).
    pub capability: (u32, u32),
    /// CUDA version (major, minor).
    pub driver: (u32, u32),
    /// Bytes of device memory.
    pub memory_bytes: u64,
    /// Host threads; `None` for all.
    pub threads: Option<usize>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            devices: 1,
            capability: (8, 0),
            driver: (13, 0),
            memory_bytes: 4096 << 20,
            threads: None,
        }
    }
}

impl Settings {
    /// Settings from the values of variables.
    ///
    /// # Errors
    /// A sentence that names the variable, its value and what it must be.
    pub fn parse(value_of: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut settings = Self::default();
        let number = |name: &str, default: u64, low: u64, high: u64| {
            let Some(text) = value_of(name) else {
                return Ok(default);
            };
            match text.parse() {
                Ok(value) if (low..=high).contains(&value) => Ok(value),
                _ => Err(format!(
                    "{name} is `{text}`, must be a number from {low} to {high}"
                )),
            }
        };
        let version = |name: &str, default: (u32, u32)| {
            let Some(text) = value_of(name) else {
                return Ok(default);
            };
            let parsed = text
                .split_once('.')
                .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
            match parsed {
                Some((major @ 1..=99, minor @ 0..=9)) => Ok((major, minor)),
                _ => Err(format!(
                    "{name} is `{text}`, must be a version such as {}.{}",
                    default.0, default.1
                )),
            }
        };
        settings.devices = number("PTX_EMULATOR_DEVICES", 1, 0, 16)? as usize;
        settings.memory_bytes = number("PTX_EMULATOR_MEMORY_MIB", 4096, 1, 1 << 20)? << 20;
        settings.threads = match number("PTX_EMULATOR_THREADS", 0, 0, 1024)? {
            0 => None,
            threads => Some(threads as usize),
        };
        settings.capability = version("PTX_EMULATOR_COMPUTE_CAPABILITY", settings.capability)?;
        settings.driver = version("PTX_EMULATOR_DRIVER_VERSION", settings.driver)?;
        Ok(settings)
    }

    /// The CUDA version as the driver API writes it.
    pub fn driver_number(&self) -> i32 {
        (self.driver.0 * 1000 + self.driver.1 * 10) as i32
    }

    /// The newest PTX version that a driver of this CUDA version reads: table "PTX ISA release
    /// history" of the PTX manual. Later releases follow CUDA 13's rule, one minor for one minor.
    pub fn newest_ptx(&self) -> (u32, u32) {
        match self.driver {
            (11, minor) => (7, minor),
            (12, minor @ 0..=5) => (8, minor),
            (12, minor) => (8, minor - 1),
            (major, minor) if major >= 13 => (major - 4, minor),
            _ => (6, 5),
        }
    }

    /// How kernels are run.
    pub fn options(&self) -> Options {
        Options {
            threads: self.threads,
            count_memory: false,
            ..Options::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, value: &str) -> Result<Settings, String> {
        Settings::parse(|asked| (asked == name).then(|| value.to_string()))
    }

    #[test]
    fn an_empty_environment_gives_the_defaults() {
        assert_eq!(Settings::parse(|_| None), Ok(Settings::default()));
    }

    #[test]
    fn each_variable_is_read() {
        assert_eq!(parse("PTX_EMULATOR_DEVICES", "2").unwrap().devices, 2);
        assert_eq!(
            parse("PTX_EMULATOR_COMPUTE_CAPABILITY", "7.5")
                .unwrap()
                .capability,
            (7, 5)
        );
        assert_eq!(
            parse("PTX_EMULATOR_DRIVER_VERSION", "11.4")
                .unwrap()
                .driver_number(),
            11040
        );
        assert_eq!(
            parse("PTX_EMULATOR_MEMORY_MIB", "3").unwrap().memory_bytes,
            3 << 20
        );
        assert_eq!(parse("PTX_EMULATOR_THREADS", "5").unwrap().threads, Some(5));
    }

    #[test]
    fn bad_values_are_named_with_what_they_must_be() {
        assert_eq!(
            parse("PTX_EMULATOR_DEVICES", "17").unwrap_err(),
            "PTX_EMULATOR_DEVICES is `17`, must be a number from 0 to 16"
        );
        assert_eq!(
            parse("PTX_EMULATOR_DRIVER_VERSION", "new").unwrap_err(),
            "PTX_EMULATOR_DRIVER_VERSION is `new`, must be a version such as 13.0"
        );
    }

    #[test]
    fn drivers_read_the_ptx_of_their_release() {
        let newest = |driver| {
            Settings {
                driver,
                ..Settings::default()
            }
            .newest_ptx()
        };
        assert_eq!(newest((11, 0)), (7, 0));
        assert_eq!(newest((12, 5)), (8, 5));
        assert_eq!(newest((12, 6)), (8, 5));
        assert_eq!(newest((12, 8)), (8, 7));
        assert_eq!(newest((13, 0)), (9, 0));
    }
}
