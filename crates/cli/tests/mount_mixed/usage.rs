//! The memory and the open files of a server over time.

use std::path::Path;

/// Parts of a run that are compared.
const PARTS: usize = 4;
/// Least number of samples of a run whose parts are compared. A server that has just started fills
/// its caches.
const ENOUGH: usize = 120;
/// Growth between the second and the last part that is no leak, in KiB: memory that the allocator
/// keeps.
const SLACK: u64 = 16 << 10;

#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    /// In KiB.
    resident: u64,
    files: usize,
}

/// Samples of a server, at equal intervals.
#[derive(Debug, Default)]
pub struct Usage {
    samples: Vec<Sample>,
}

impl Usage {
    /// Adds a sample of the process `server`, unless it has ended.
    pub fn sample(&mut self, server: u32) {
        let process = Path::new("/proc").join(server.to_string());
        let Ok(status) = std::fs::read_to_string(process.join("status")) else { return };
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident =
            line.and_then(|line| line.split_whitespace().next()).and_then(|word| word.parse().ok());
        let files = std::fs::read_dir(process.join("fd")).map_or(0, Iterator::count);
        if let Some(resident) = resident {
            self.samples.push(Sample { resident, files });
        }
    }

    /// Returns the largest values of each part of the run.
    fn peaks(&self) -> [Sample; PARTS] {
        let len = self.samples.len();
        std::array::from_fn(|part| {
            let samples = &self.samples[len * part / PARTS..len * (part + 1) / PARTS];
            let larger = |a: Sample, b: &Sample| Sample {
                resident: a.resident.max(b.resident),
                files: a.files.max(b.files),
            };
            samples.iter().fold(Sample::default(), larger)
        })
    }

    /// Describes the memory and the open files of each quarter of the run.
    pub fn describe(&self) -> String {
        let peaks = self.peaks();
        let mib = peaks.map(|peak| format!("{}", peak.resident >> 10)).join(" ");
        let files = peaks.map(|peak| peak.files.to_string()).join(" ");
        format!("server, by quarters of {} samples: {mib} MiB, {files} open files", self.samples.len())
    }

    /// Returns true if memory or open files have not reached a plateau by half of the run. Of a
    /// short run, returns false.
    fn grows(&self) -> bool {
        let [_, half, _, last] = self.peaks();
        let is_long = self.samples.len() >= ENOUGH;
        is_long && (last.resident > half.resident + half.resident / 4 + SLACK || last.files > 2 * half.files)
    }

    /// Asserts that memory and open files have reached a plateau by half of the run, if it was long
    /// enough.
    pub fn assert_plateau(&self, name: &str) {
        assert!(!self.grows(), "{name}: the server grows: {}", self.describe());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(resident: impl Fn(u64) -> u64) -> Usage {
        Usage { samples: (0..400).map(|nth| Sample { resident: resident(nth), files: 9 }).collect() }
    }

    #[test]
    fn a_plateau_is_told_from_growth() {
        assert!(!usage(|nth| nth.min(150) << 10).grows());
        assert!(usage(|nth| nth << 10).grows());
    }
}
