//! A server that does not come back in time: the volume stops, programs get an error, nothing
//! hangs, and what a sync has covered is there when the server is.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;

use super::load::Load;
use super::restarts::new_mount;
use super::server::Server;
use super::server::kinds::{self, Kind};
use super::server::nbd::NbdServer;
use super::server::rbd::{self, RbdServer};
use super::{Campaign, Part, trees};
use crate::interrupt;
use crate::report::Report;
use crate::testbed::{TestBed, remove};

const SERVERS: [&Kind; 2] = [&kinds::CACHE, &kinds::QEMU];
const SIZE: u64 = 128 << 20;
/// The time that the client waits for the server, in seconds.
const RECONNECT: u64 = 2;
/// Longest time after that until all programs have their error, and until `umount` returns.
const SLACK: Duration = Duration::from_mins(2);

/// Runs the part.
pub fn run(campaign: &Campaign<'_>, report: &mut Report) -> Result<()> {
    let servers = campaign.scope.pick(&SERVERS[..1], &SERVERS);
    for kind in servers {
        for cache in campaign.scope.pick(&["writeback"][..], &["kernel", "writeback", "direct"]) {
            campaign.case(Part::Gone, kind.name, &format!(", cache={cache}"), report, || {
                let mut server = NbdServer::new(campaign.bed, kind, SIZE, campaign.seed)?;
                campaign.mkfs(&server)?;
                gone(campaign.bed, &mut server, cache, campaign.seed)
            });
        }
    }
    if campaign.scope.pick(false, true) {
        campaign.case(Part::Gone, rbd::FILE, ", cache=writeback", report, || {
            let mut server = RbdServer::new(campaign.bed, rbd::FILE, SIZE)?;
            campaign.mkfs(&server)?;
            gone(campaign.bed, &mut server, "writeback", campaign.seed)
        });
    }
    Ok(())
}

fn gone(bed: &TestBed, server: &mut dyn Server, cache: &str, seed: u64) -> Result<()> {
    let load = Load::new(seed);
    let url = server.url(&format!("reconnect={RECONNECT}"));
    let log = bed.path("mount.log");
    remove(&log)?;
    let mut mounted = new_mount(bed, &url, &format!("cache={cache},log={}", log.display()))?;
    load.run(&mut mounted, |_| {
        load.progress(50, SLACK)?;
        // The client may meet the loss before `kill` has returned.
        let start = Instant::now();
        server.kill()?;
        while load.errors().len() < Load::WRITERS {
            interrupt::check()?;
            let waited = start.elapsed();
            let limit = Duration::from_secs(RECONNECT) + SLACK;
            ensure!(waited < limit, "after {waited:?} only {} programs have an error", load.errors().len());
            thread::sleep(Duration::from_millis(5));
        }
        println!("        all programs have their error after {:.1} s", start.elapsed().as_secs_f64());
        ensure!(start.elapsed() >= Duration::from_secs(RECONNECT), "the client gave up too early");
        Ok(())
    })?;
    let errors = load.errors();
    // A thread of the volume may meet the lost device first. Programs then find the volume stopped.
    let is_clear = |error: &Errno| [Errno::IO, Errno::ROFS].contains(error);
    ensure!(errors.iter().all(is_clear), "not EIO or EROFS: {errors:?}");
    let start = Instant::now();
    let said = mounted.unmount_stopped()?;
    ensure!(start.elapsed() < SLACK, "umount took {:?}", start.elapsed());
    let is_clear = ["may be lost", "did not answer"].iter().any(|words| said.contains(words));
    ensure!(is_clear, "umount says only: {said}");
    let logged = std::fs::read_to_string(&log)?;
    let is_named = logged
        .lines()
        .any(|line| line.contains("ERROR") && (line.contains("nbd") || line.contains("cluster")));
    ensure!(is_named, "the log does not name the server that is gone:\n{logged}");

    server.start()?;
    server.release()?;
    let mounted = new_mount(bed, &url, &format!("cache={cache}")).context("after the server is back")?;
    load.check(mounted.dir(), false)?;
    mounted.unmount()?;
    trees::with_kernel_mount(bed, server, |dir| load.check(dir, false))
}
