//! What an entry needs of a device and its driver.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::manifest::ManifestEntry;
use crate::Error;

/// The least driver that reads a PTX version. A driver for a later CUDA version does, too; one for an
/// earlier version does not, whatever else is compatible within a CUDA major version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeastDriver {
    /// The CUDA version that the driver is for, `major.minor`; `nvidia-smi` prints it.
    pub cuda: String,
    /// The first branch of Linux drivers for it, where this crate knows it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub linux: Option<u32>,
}

impl LeastDriver {
    /// For PTX of this version, `major.minor`; none for a version that this crate does not know.
    pub fn of(ptx_version: &str) -> Option<Self> {
        let (major, minor) = least_cuda(ptx_version)?;
        Some(Self {
            cuda: format!("{major}.{minor}"),
            linux: linux_branch((major, minor)),
        })
    }
}

impl fmt::Display for LeastDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA {}", self.cuda)?;
        match self.linux {
            Some(branch) => write!(f, ", on Linux {branch} or later"),
            None => Ok(()),
        }
    }
}

impl ManifestEntry {
    /// Whether a device of this compute capability and a driver for this CUDA version run the entry,
    /// before anything is loaded.
    ///
    /// # Errors
    /// [`Error::DeviceTooOld`], [`Error::DriverTooOld`]. PTX versions and targets that this crate
    /// does not know are left to the driver.
    pub fn check_device(
        &self,
        device: &str,
        capability: (u32, u32),
        driver: (u32, u32),
    ) -> Result<(), Error> {
        if !runs_on(&self.target, capability).unwrap_or(true) {
            return Err(Error::DeviceTooOld {
                file: self.file.clone(),
                target: self.target.clone(),
                device: device.into(),
                capability,
            });
        }
        match least_cuda(&self.ptx_version) {
            Some(needed) if driver < needed => Err(Error::DriverTooOld {
                file: self.file.clone(),
                ptx_version: self.ptx_version.clone(),
                needed,
                driver,
            }),
            _ => Ok(()),
        }
    }
}

/// `sm_80` runs on 8.0 and later, `sm_90a` on 9.0 alone, `sm_100f` on later ones of the same major.
fn runs_on(target: &str, capability: (u32, u32)) -> Option<bool> {
    let number = target.strip_prefix("sm_")?;
    let digits = number.trim_end_matches(['a', 'f']);
    let least: u32 = digits.parse().ok()?;
    let least = (least / 10, least % 10);
    Some(match &number[digits.len()..] {
        "" => capability >= least,
        "a" => capability == least,
        _ => capability >= least && capability.0 == least.0,
    })
}

/// The first CUDA version whose driver reads a PTX version: the PTX ISA manual's release table.
fn least_cuda(ptx_version: &str) -> Option<(u32, u32)> {
    let (major, minor) = ptx_version.split_once('.')?;
    let minor: u32 = minor.parse().ok()?;
    match (major.parse().ok()?, minor) {
        (6u32, 0..=2) => Some((9, minor)),
        (6, 3..=5) => Some((10, minor - 3)),
        (7, 0..=8) => Some((11, minor)),
        (8, 0..=5) => Some((12, minor)),
        (8, 6..=8) => Some((12, minor + 1)),
        (9, _) => Some((13, minor)),
        _ => None,
    }
}

/// The first branch of Linux drivers for a CUDA version: the CUDA release notes' table of drivers.
fn linux_branch(cuda: (u32, u32)) -> Option<u32> {
    Some(match cuda {
        (11, 0) => 450,
        (11, 1) => 455,
        (11, 2) => 460,
        (11, 3) => 465,
        (11, 4) => 470,
        (11, 5) => 495,
        (11, 6) => 510,
        (11, 7) => 515,
        (11, 8) => 520,
        (12, 0) => 525,
        (12, 1) => 530,
        (12, 2) => 535,
        (12, 3) => 545,
        (12, 4) => 550,
        (12, 5) => 555,
        (12, 6) => 560,
        (12, 7) => 565,
        (12, 8) => 570,
        (12, 9) => 575,
        (13, 0) => 580,
        (13, 1) => 590,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::variants::DECODE;

    #[test]
    fn newer_targets_and_ptx_versions_are_refused_with_both_versions() {
        let entry = ManifestEntry::decode(&DECODE[0], "7.1", "sm_80");
        assert_eq!(entry.check_device("A100", (8, 0), (11, 1)), Ok(()));
        assert_eq!(entry.check_device("H200", (9, 0), (12, 4)), Ok(()));

        let (file, target) = ("f32_d32.ptx".to_string(), "sm_80".to_string());
        let (device, capability) = ("T4".to_string(), (7, 5));
        let error = entry.check_device("T4", (7, 5), (12, 4)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ptx: f32_d32.ptx is built for sm_80, cannot run on T4 of compute capability 7.5"
        );
        assert_eq!(
            error,
            Error::DeviceTooOld {
                file: file.clone(),
                target,
                device,
                capability
            }
        );

        let (ptx_version, needed, driver) = ("7.1".to_string(), (11, 1), (11, 0));
        let error = entry.check_device("A100", (8, 0), driver).unwrap_err();
        assert_eq!(
            error.to_string(),
            "ptx: f32_d32.ptx has PTX version 7.1 and needs a driver for CUDA 11.1, this driver is \
             for CUDA 11.0"
        );
        assert_eq!(
            error,
            Error::DriverTooOld {
                file,
                ptx_version,
                needed,
                driver
            }
        );
    }

    #[test]
    fn targets_follow_their_suffix() {
        assert_eq!(runs_on("sm_90a", (9, 0)), Some(true));
        assert_eq!(runs_on("sm_90a", (10, 0)), Some(false));
        assert_eq!(runs_on("sm_100f", (10, 3)), Some(true));
        assert_eq!(runs_on("sm_100f", (12, 0)), Some(false));
        assert_eq!(runs_on("sm_120", (12, 0)), Some(true));
        assert_eq!(runs_on("compute", (8, 0)), None);
    }

    #[test]
    fn ptx_versions_follow_the_release_table() {
        for (ptx, cuda) in [
            ("6.5", (10, 2)),
            ("7.0", (11, 0)),
            ("8.5", (12, 5)),
            ("8.7", (12, 8)),
            ("9.0", (13, 0)),
        ] {
            assert_eq!(least_cuda(ptx), Some(cuda), "{ptx}");
        }
        for (ptx, words) in [
            ("7.0", "CUDA 11.0, on Linux 450 or later"),
            ("8.7", "CUDA 12.8, on Linux 570 or later"),
            ("9.0", "CUDA 13.0, on Linux 580 or later"),
            ("9.5", "CUDA 13.5"),
        ] {
            assert_eq!(LeastDriver::of(ptx).unwrap().to_string(), words);
        }
        assert_eq!(LeastDriver::of("10.0"), None);
        assert_eq!(least_cuda("10.0"), None);
        assert_eq!(least_cuda("seven"), None);
    }
}
