//! Programs on mounts of network block devices, and the tests of mounts that exist for images in
//! files.

use std::path::Path;

use anyhow::Result;
use ceph_cluster::{Cluster, Options, Store};

use super::server::Server;
use super::server::kinds::{self, Kind};
use super::server::nbd::NbdServer;
use super::server::rbd::{self, RbdServer};
use super::{Campaign, Part, trees};
use crate::campaign::programs;
use crate::cargo_test;
use crate::report::Report;
use crate::scope::Scope;
use crate::workspace::cargo;

/// The servers of NBD, and what the tests of mounts call them.
const SERVERS: [(&Kind, &str); 2] = [(&kinds::FILE, "nbdkit"), (&kinds::QEMU, "qemu-nbd")];
/// Programs of the long form.
const PROGRAMS: [&str; 4] = ["fio, one file", "fio", "stress-ng", "postgresql, killed"];
/// Size of the volume for programs, and of the one for short runs.
const SIZES: (u64, u64) = (128 << 20, 1 << 30);

/// Tests of mounts: target, test, and the number of operations or kills in the short form and in
/// the long one.
const TESTS: [(&str, &str, u64, u64); 2] =
    [("mount_fsx", "blocks_of_4k", 400, 100_000), ("mount", "synced_data_survives", 3, 30)];

/// Runs the part.
pub fn run(campaign: &Campaign<'_>, report: &mut Report) -> Result<()> {
    for (kind, name) in campaign.scope.pick(&SERVERS[..1], &SERVERS) {
        if campaign.wants(kind.name) {
            tests(campaign, name, report)?;
        }
        let size = campaign.scope.pick(SIZES.0, SIZES.1);
        for program in campaign.scope.pick(&PROGRAMS[..1], &PROGRAMS) {
            campaign.case(Part::Programs, kind.name, &format!(", {program}"), report, || {
                let server = NbdServer::new(campaign.bed, kind, size, campaign.seed)?;
                on_mount(campaign, &server, program)
            });
        }
    }
    if campaign.scope == Scope::Long && campaign.wants(rbd::FILE) {
        let cluster = Cluster::start(&Options { store: Store::File, ..Options::default() })?;
        tests(campaign, &cluster.conf().display().to_string(), report)?;
    }
    for program in campaign.scope.pick(&[][..], &PROGRAMS) {
        campaign.case(Part::Programs, rbd::FILE, &format!(", {program}"), report, || {
            on_mount(campaign, &RbdServer::new(campaign.bed, rbd::FILE, SIZES.1)?, program)
        });
    }
    Ok(())
}

/// Runs a program on a mount of a server's image.
fn on_mount(campaign: &Campaign<'_>, server: &dyn Server, program: &str) -> Result<()> {
    campaign.mkfs(server)?;
    let url = server.url("");
    programs::run_on(campaign.bed, program, "cache=writeback", Path::new(&url), 15, &|| server.release())?;
    trees::with_kernel_mount(campaign.bed, server, |_| Ok(()))
}

/// Runs [`TESTS`] with the images on a server.
fn tests(campaign: &Campaign<'_>, server: &str, report: &mut Report) -> Result<()> {
    for (target, only, short, long) in TESTS {
        test(target, only, server, campaign.scope.pick(short, long), report)?;
    }
    Ok(())
}

/// Runs the tests of a target whose names contain `only` with the images on a server. `amount` is
/// the number of operations, or of kills.
fn test(target: &str, only: &str, server: &str, amount: u64, report: &mut Report) -> Result<()> {
    // All packages, as in the steps with tests, so that nothing is built again.
    let words = format!("test --workspace --profile stress --no-fail-fast --test {target} {only}");
    let command = cargo(&words).env("PAREXT4_TEST_SERVER", server);
    let (ops, kills) = ("PAREXT4_FSX_OPS", "PAREXT4_KILL_ROUNDS");
    let command = command.env(ops, amount.to_string()).env(kills, amount.to_string());
    cargo_test::run(command, &format!("{target} on {server}"), report)
}
