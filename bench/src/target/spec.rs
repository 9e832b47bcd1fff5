//! Targets as users name them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::duration;

/// A target by its name on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetSpec {
    /// `lib:IMAGE`: the library on an image or device.
    Lib(PathBuf),
    /// `raw:DEVICE`: the image or device without a file system.
    Raw(PathBuf),
    /// `dir:PATH`: a directory of any mounted file system.
    Dir(PathBuf),
    /// `sim:LATENCY,PARALLEL`: the library on a device in memory with simulated latency.
    Sim {
        /// Duration of each request.
        latency: Duration,
        /// Requests that the device serves at a time.
        parallel: usize,
    },
    /// `mem`: the library on a device in memory.
    Mem,
    /// `copy`: copies out of an array.
    Copy,
}

impl FromStr for TargetSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match (kind, rest) {
            ("mem", "") => Ok(Self::Mem),
            ("copy", "") => Ok(Self::Copy),
            ("lib" | "raw" | "dir", "") => Err(format!("{kind}: lacks a path")),
            ("lib", path) => Ok(Self::Lib(path.into())),
            ("raw", path) => Ok(Self::Raw(path.into())),
            ("dir", path) => Ok(Self::Dir(path.into())),
            ("sim", both) => {
                let (latency, parallel) = both.split_once(',').ok_or("expected sim:LATENCY,PARALLEL")?;
                let parallel = parallel.parse().ok().filter(|&parallel| parallel > 0);
                let parallel = parallel.ok_or("PARALLEL must be a number above 0")?;
                // A bare number would mean seconds, which no device takes for a request.
                if latency.ends_with(|last: char| last.is_ascii_digit()) {
                    return Err(format!("LATENCY {latency} lacks a unit: us, ms or s"));
                }
                Ok(Self::Sim { latency: duration::parse(latency)?, parallel })
            }
            _ => Err("expected lib:IMAGE, raw:DEVICE, dir:PATH, sim:LATENCY,PARALLEL, mem or copy".into()),
        }
    }
}

impl fmt::Display for TargetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lib(path) => write!(f, "lib:{}", path.display()),
            Self::Raw(path) => write!(f, "raw:{}", path.display()),
            Self::Dir(path) => write!(f, "dir:{}", path.display()),
            Self::Sim { latency, parallel } => write!(f, "sim:{}us,{parallel}", latency.as_micros()),
            Self::Mem => write!(f, "mem"),
            Self::Copy => write!(f, "copy"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parsed_target_prints_as_it_was_written() {
        for text in ["lib:/tmp/x.img", "raw:/dev/loop0", "dir:.", "sim:90us,8", "mem", "copy"] {
            assert_eq!(text.parse::<TargetSpec>().map(|spec| spec.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "lib:", "sim:90us", "sim:90us,0", "sim:90,8", "mem:1", "disk:x"] {
            assert!(text.parse::<TargetSpec>().is_err(), "{text}");
        }
    }
}
