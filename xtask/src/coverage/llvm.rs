//! LLVM's tools for profiles. LLVM 19 and later read the profiles of Rust 1.95, whose LLVM is newer
//! but writes the same versions of the formats.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::command::cmd;
use crate::debian;

/// Major versions of the tools that read the formats.
const VERSIONS: std::ops::RangeInclusive<u32> = 19..=29;

/// One version of the tools.
pub struct Llvm {
    /// The end of the names of the programs, such as `-19`.
    suffix: String,
}

impl Llvm {
    /// Finds the newest version in the search path, or installs one.
    pub fn find() -> Result<Self> {
        if let Some(found) = Self::newest() {
            return Ok(found);
        }
        debian::install(debian::LLVM);
        Self::newest().context("llvm-cov of LLVM 19 or later is missing (Debian's llvm-19)")
    }

    fn newest() -> Option<Self> {
        let versions = VERSIONS.rev().map(|version| format!("-{version}"));
        let suffix = versions
            .chain([String::new()])
            .find(|suffix| cmd(format!("llvm-cov{suffix}")).args("--version").output().is_ok())?;
        Some(Self { suffix })
    }

    /// Merges the profiles of a folder into one.
    pub fn merge(&self, folder: &Path, into: &Path) -> Result<()> {
        let mut profiles: Vec<_> =
            fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        profiles.sort();
        ensure!(!profiles.is_empty(), "no instrumented program has run");
        let merge = cmd(format!("llvm-profdata{}", self.suffix))
            .args("merge -sparse -failure-mode=warn -o")
            .arg(into);
        profiles.iter().fold(merge, |merge, profile| merge.arg(profile)).run()?;
        Ok(())
    }

    /// Returns what `lcov` calls a tracefile: how often each line of each source file ran.
    pub fn tracefile(&self, profile: &Path, programs: &[PathBuf]) -> Result<String> {
        let export =
            cmd(format!("llvm-cov{}", self.suffix)).args("export --format=lcov --instr-profile").arg(profile);
        programs.iter().fold(export, |export, program| export.arg("--object").arg(program)).run()
    }
}
