//! Requests that the server refuses, and an image that is smaller than its volume.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;

use super::load::Load;
use super::restarts::new_mount;
use super::server::Server;
use super::server::kinds;
use super::server::nbd::NbdServer;
use super::{Campaign, Part, trees};
use crate::interrupt;
use crate::report::Report;
use crate::testbed::{TestBed, remove};

const SIZE: u64 = 128 << 20;
/// Longest time until a program has its error.
const LIMIT: Duration = Duration::from_mins(2);

/// Runs the part.
pub fn run(campaign: &Campaign<'_>, report: &mut Report) -> Result<()> {
    let bed = campaign.bed;
    for (kind, error) in [(&kinds::FULL, Errno::NOSPC), (&kinds::ERRORS, Errno::IO)] {
        campaign.case(Part::Refused, kind.name, "", report, || {
            let server = NbdServer::new(bed, kind, SIZE, campaign.seed)?;
            campaign.mkfs(&server)?;
            fails(bed, &server, error, campaign.seed)
        });
    }
    campaign.case(Part::Refused, kinds::SHORT.name, "", report, || {
        let mut server = NbdServer::new(bed, &kinds::FILE, SIZE, campaign.seed)?;
        campaign.mkfs(&server)?;
        server.replace(&kinds::SHORT)?;
        too_small(bed, &server)
    });
    Ok(())
}

/// While the server fails requests, the volume stops and programs get an error. What a sync covered
/// before is there.
fn fails(bed: &TestBed, server: &NbdServer, wanted: Errno, seed: u64) -> Result<()> {
    let (load, url) = (Load::new(seed), server.url(""));
    let log = bed.path("mount.log");
    remove(&log)?;
    let mut mounted = new_mount(bed, &url, &format!("cache=writeback,log={}", log.display()))?;
    load.run(&mut mounted, |_| {
        load.progress(50, LIMIT)?;
        server.set_trigger(true)?;
        let start = Instant::now();
        while load.errors().len() < Load::WRITERS {
            interrupt::check()?;
            ensure!(start.elapsed() < LIMIT, "the programs have only the errors {:?}", load.errors());
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    })?;
    let errors = load.errors();
    // A thread of the volume may meet the failing device first. Programs then find the volume
    // stopped.
    let is_clear = |error: &Errno| [wanted, Errno::IO, Errno::ROFS].contains(error);
    ensure!(errors.iter().all(is_clear), "not {wanted} or EROFS: {errors:?}");
    let logged = std::fs::read_to_string(&log)?;
    let is_named = logged.lines().any(|line| line.contains("ERROR") && line.contains(&wanted.to_string()));
    ensure!(is_named, "the log does not say {wanted}:\n{logged}");
    let said = mounted.unmount_stopped()?;
    ensure!(said.contains("may be lost"), "umount says only: {said}");
    server.set_trigger(false)?;
    let mounted = new_mount(bed, &url, "cache=writeback").context("after the failures")?;
    load.check(mounted.dir(), false)?;
    mounted.unmount()?;
    trees::with_kernel_mount(bed, server, |dir| load.check(dir, false))
}

/// A volume that is larger than its device is refused with the reason, and not changed.
fn too_small(bed: &TestBed, server: &NbdServer) -> Result<()> {
    let before = std::fs::read(server.bytes()?)?;
    for words in ["ls", "recover"] {
        let output = bed.parext4(words).arg(server.url("")).output()?;
        ensure!(output.status.code() == Some(1), "{words}: {}: {}", output.status, output.text);
        let is_clear = output.text.lines().count() == 1 && output.text.contains("device");
        ensure!(is_clear, "{words} says only: {}", output.text);
    }
    ensure!(new_mount(bed, &server.url(""), "cache=kernel").is_err(), "the volume is mounted");
    ensure!(std::fs::read(server.bytes()?)? == before, "the image has changed");
    Ok(())
}
