//! The storage's server killed and restarted under load: no program sees an error, and nothing that
//! was synced is lost.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fastrand::Rng;

use super::load::Load;
use super::server::Server;
use super::server::kinds::{self, Kind};
use super::server::nbd::NbdServer;
use super::server::rbd::{self, RbdServer};
use super::{Campaign, Part, trees};
use crate::command::cmd;
use crate::parext4_mount::Mounted;
use crate::process::Process;
use crate::report::Report;
use crate::testbed::TestBed;

/// Servers that keep and that lose what no flush has covered.
const SERVERS: [&Kind; 5] = [&kinds::FILE, &kinds::QEMU, &kinds::CACHE, &kinds::QCOW2, &kinds::CUT];
/// Servers that lose what no flush has covered.
const FORGETFUL: [&Kind; 2] = [&kinds::CACHE, &kinds::QCOW2];
const SIZE: u64 = 128 << 20;
/// Longest time without a sync after a restart.
const STANDSTILL: Duration = Duration::from_secs(40);

/// Runs the part.
pub fn run(campaign: &Campaign<'_>, report: &mut Report) -> Result<()> {
    for kind in FORGETFUL {
        campaign.case(Part::Restarts, kind.name, " loses writes before a flush", report, || {
            let mut server = NbdServer::new(campaign.bed, kind, SIZE, campaign.seed)?;
            loses_writes(campaign.bed, &mut server)
        });
    }
    for kind in SERVERS {
        campaign.case(Part::Restarts, kind.name, " under load", report, || {
            let mut server = NbdServer::new(campaign.bed, kind, SIZE, campaign.seed)?;
            under_load(campaign, &mut server, campaign.scope.pick(3, 10))
        });
    }
    campaign.case(Part::Restarts, rbd::FILE, " under load", report, || {
        let mut server = RbdServer::new(campaign.bed, rbd::FILE, SIZE)?;
        // An OSD needs seconds to start.
        under_load(campaign, &mut server, campaign.scope.pick(1, 10))
    });
    Ok(())
}

/// Shows that a kill of the server loses a write that was answered, if no flush was answered after
/// it.
fn loses_writes(bed: &TestBed, server: &mut NbdServer) -> Result<()> {
    let url = server.url("");
    let found = |pattern: &str| -> Result<bool> {
        let read = format!("read -P {pattern} 1M 64k");
        let output = cmd("qemu-io").args("-f raw -r -c").arg(read).arg(&url).output()?;
        Ok(output.text.contains("65536/65536") && !output.text.contains("failed"))
    };
    ensure!(found("0")?, "the image does not begin with zeros");
    // It flushes when it ends, so it must not end.
    let writer = cmd("qemu-io").args("-f raw -t writeback -c").arg("write -P 2 1M 64k");
    let writer = writer.arg("-c").arg("sleep 1000000").arg(&url);
    let mut writer = Process::start("qemu-io", writer, bed.path("qemu-io.log"))?;
    writer.wait_until(|| found("2").unwrap_or(false)).context("writing")?;
    server.kill()?;
    drop(writer);
    server.start()?;
    ensure!(found("0")?, "the server has kept a write that no flush covered");
    Ok(())
}

fn under_load(campaign: &Campaign<'_>, server: &mut dyn Server, kills: u32) -> Result<()> {
    let (bed, mut rng) = (campaign.bed, Rng::with_seed(campaign.seed));
    campaign.mkfs(server)?;
    for cache in campaign.scope.pick(&["writeback"][..], &["kernel", "writeback", "direct"]) {
        let options = format!("cache={cache}");
        restart_often(bed, server, &options, kills, &mut rng).context(options.clone())?;
        // Both at once: what a sync has covered must be on the storage, not in the client.
        if kills > 1 {
            kill_both(bed, server, &options, &mut rng).with_context(|| format!("{options}, both killed"))?;
        }
    }
    Ok(())
}

/// Kills and restarts the server of the storage; its clients notice nothing.
fn restart_often(
    bed: &TestBed,
    server: &mut dyn Server,
    options: &str,
    kills: u32,
    rng: &mut Rng,
) -> Result<()> {
    let load = Load::new(rng.u64(..));
    let url = server.url("reconnect=60");
    let mut mounted = new_mount(bed, &url, options)?;
    load.run(&mut mounted, |_| {
        for kill in 0..kills {
            load.progress(rng.u64(1..300), STANDSTILL).with_context(|| format!("before kill {kill}"))?;
            server.kill()?;
            thread::sleep(Duration::from_millis(rng.u64(0..700)));
            server.start()?;
        }
        load.progress(Load::WRITERS as u64 * 2, STANDSTILL).context("after the last kill")
    })?;
    load.check_no_errors()?;
    load.check(mounted.dir(), true).context("before the unmount")?;
    mounted.unmount()?;
    trees::with_kernel_mount(bed, server, |dir| load.check(dir, true))?;
    println!("        {kills} kills, {} syncs, {options}", load.syncs());
    Ok(())
}

/// Kills the server of the storage and the server of the mount.
fn kill_both(bed: &TestBed, server: &mut dyn Server, options: &str, rng: &mut Rng) -> Result<()> {
    let load = Load::new(rng.u64(..));
    let url = server.url("reconnect=60");
    let mut mounted = new_mount(bed, &url, options)?;
    load.run(&mut mounted, |mounted| {
        load.progress(rng.u64(20..200), STANDSTILL)?;
        server.kill()?;
        mounted.kill_server()
    })?;
    mounted.kill()?;
    server.start()?;
    server.release()?;
    let mounted = new_mount(bed, &url, options)?;
    load.check(mounted.dir(), false).context("on the next mount")?;
    mounted.unmount()?;
    trees::with_kernel_mount(bed, server, |dir| load.check(dir, false))
}

/// Mounts the image at the usual folder.
pub fn new_mount<'a>(bed: &'a TestBed, url: &str, options: &str) -> Result<Mounted<'a>> {
    let dir = bed.path("mount");
    std::fs::create_dir_all(&dir)?;
    Mounted::new(bed, Path::new(url), &dir, options)
}
