//! All stressors of files that stress-ng has, one by one on mounts of parext4 and of the kernel's
//! ext4.
//!
//! A stressor must end on parext4 as on the kernel's ext4. One that the kernel's ext4 does not pass
//! either is listed with its reason.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::tool;
use crate::command::cmd;
use crate::debian;
use crate::image;
use crate::kernel_mount::Mount;
use crate::parext4_mount::Mounted;
use crate::report::Report;
use crate::testbed::{TestBed, remove};

/// Time of one stressor, and the time after which it has hung, in seconds.
const SECONDS: u32 = 2;
const LIMIT: u32 = 120;
/// Bytes that each instance of a stressor writes, if it can be told: by default more than the
/// volume has.
const BYTES: &str = "64m";
const MIB: u64 = 1024;
/// Stressors of other classes that use files.
const OTHER_CLASSES: [&str; 7] = ["aio", "aiol", "metamix", "readahead", "revio", "seek", "sendfile"];
const OPTIONS: [&str; 3] = ["cache=kernel", "cache=writeback", "cache=direct"];

/// How a stressor ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    /// 0 if it passed; 3 and 4 if the system lacks what it needs; 124 if it hung.
    status: Option<i32>,
    why: String,
}

impl End {
    fn passed(&self) -> bool {
        self.status == Some(0)
    }
}

/// Runs all stressors on each kind of mount.
pub fn run(bed: &TestBed, report: &mut Report) -> Result<()> {
    let missing = debian::install(&[tool("stress-ng", "stress-ng")]);
    if !missing.is_empty() {
        report.skip("stress-ng", "stress-ng is missing");
        return Ok(());
    }
    let stressors = Stressors::find()?;
    let kernel = match debian::check_kernel_mounts() {
        Ok(()) => stressors.on_kernel(bed)?,
        Err(why) => {
            report.skip("stress-ng on the kernel's ext4", &format!("{why:#}"));
            BTreeMap::new()
        }
    };
    for options in OPTIONS {
        stressors.on_parext4(bed, options, &kernel, report)?;
    }
    Ok(())
}

/// The names of the stressors, and the names of the stressors whose size can be set.
struct Stressors {
    names: Vec<String>,
    help: String,
}

impl Stressors {
    fn find() -> Result<Self> {
        // It lists the stressors of a class and fails, because it has none to run.
        let list = cmd("stress-ng").args("--class filesystem?").output()?.text;
        let names = list.lines().find_map(|line| line.split_once("stressors: "));
        let names: Vec<_> = names.map(|(_, names)| names).unwrap_or_default().split_whitespace().collect();
        ensure!(!names.is_empty(), "stress-ng lists no stressors of files: {list}");
        let help = cmd("stress-ng").arg("--help").output()?.text;
        // Versions differ in their stressors and classes.
        let others = OTHER_CLASSES.into_iter().filter(|name| help.contains(&format!("--{name} N")));
        let mut names: Vec<_> = names.into_iter().chain(others).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        Ok(Self { names, help })
    }

    /// Runs a stressor in the folder `dir`.
    fn run(&self, name: &str, dir: &Path) -> Result<End> {
        let mut command = cmd("timeout").args("--kill-after=10").arg(LIMIT.to_string());
        command = command.args("stress-ng --temp-path .").arg(format!("--{name}")).arg("2");
        let bytes = format!("--{name}-bytes");
        if self.help.contains(&format!("{bytes} N")) {
            command = command.arg(bytes).arg(BYTES);
        }
        let output = command.args("--verify --timeout").arg(SECONDS.to_string()).dir(dir).output()?;
        let lines = output.text.lines().filter(|line| line.contains("fail") || line.contains("skipp"));
        let why = lines.map(message).next().unwrap_or_default();
        Ok(End { status: output.status.code(), why })
    }

    fn on_kernel(&self, bed: &TestBed) -> Result<BTreeMap<String, End>> {
        let image = bed.path("kernel-image");
        remove(&image)?;
        image::mke2fs(&image, MIB << 20, "")?;
        let mount = Mount::new(&image, &bed.path("kernel-mount"), "")?;
        let end = |name: &String| Ok((name.clone(), self.run(name, mount.dir())?));
        let ends = self.names.iter().map(end).collect::<Result<_>>()?;
        mount.unmount()?;
        remove(&image)?;
        Ok(ends)
    }

    fn on_parext4(
        &self,
        bed: &TestBed,
        options: &str,
        kernel: &BTreeMap<String, End>,
        report: &mut Report,
    ) -> Result<()> {
        let (image, dir) = (bed.path("image"), bed.path("mount"));
        remove(&image)?;
        std::fs::create_dir_all(&dir)?;
        bed.parext4("mkfs").arg(&image).arg("--size").arg(format!("{MIB}M")).run()?;
        let mounted = Mounted::new(bed, &image, &dir, &format!("allow_other,suid,dev,{options}"))?;
        let mut memory = Vec::new();
        for name in &self.names {
            let case = format!("stress-ng {name}, {options}");
            let end = self.run(name, mounted.dir())?;
            match kernel.get(name) {
                Some(same) if !end.passed() && same.status == end.status => {
                    let status = end.status.unwrap_or(-1);
                    report.skip_allowed(
                        &case,
                        &format!("as on the kernel's ext4: status {status}: {}", end.why),
                    );
                }
                other => report.case(&case, || {
                    ensure!(end.passed(), "{end:?}, and on the kernel's ext4 {other:?}");
                    Ok(())
                }),
            }
            memory.push(mounted.memory().context("the server has ended")?);
        }
        println!("  {options}: {}", in_quarters(&memory));
        report.case(&format!("stress-ng, {options}: e2fsck"), || {
            mounted.unmount()?;
            image::check(&image)
        });
        remove(&image)
    }
}

/// Returns a message of stress-ng without its prefix, such as `stress-ng: fail:  [123] chattr: `.
fn message(line: &str) -> String {
    line.split_once("] ").map_or(line, |(_, message)| message).to_owned()
}

/// Describes the memory of a server, in KiB, after the stressors.
fn in_quarters(memory: &[u64]) -> String {
    let len = memory.len();
    let peak = |part: usize| memory[len * part / 4..len * (part + 1) / 4].iter().max().unwrap_or(&0) >> 10;
    format!(
        "the server has {} MiB in the quarters of the stressors",
        (0..4).map(peak).map(|mib| mib.to_string()).collect::<Vec<_>>().join(" ")
    )
}
