//! Trees copied in and out over the network, and the bytes on the server checked by e2fsck and
//! mounted by the kernel.

use std::path::Path;

use anyhow::{Context, Result};

use super::server::Server;
use super::server::kinds::{self, Kind};
use super::server::nbd::NbdServer;
use super::server::rbd::{self, RbdServer};
use super::{Campaign, Part};
use crate::image;
use crate::kernel_mount::Mount;
use crate::report::Report;
use crate::testbed::{TestBed, inside, remove};
use crate::tree::generate::{Plan, generate};
use crate::tree::manifest::Manifest;

const SERVERS: [&Kind; 9] = [
    &kinds::MEMORY,
    &kinds::FILE,
    &kinds::DELAY,
    &kinds::LIMIT,
    &kinds::CUT,
    &kinds::CACHE,
    &kinds::TLS,
    &kinds::QEMU,
    &kinds::QCOW2,
];

/// Copies a tree to and from each server.
pub fn run(campaign: &Campaign<'_>, report: &mut Report) -> Result<()> {
    let source = campaign.bed.path("source");
    let plan = campaign.scope.pick(Plan::small(campaign.seed), Plan::full(campaign.seed));
    let size = campaign.scope.pick(96 << 20, 768 << 20);
    generate(&source, &plan)?;
    let wanted = Manifest::read(&source)?;
    for kind in SERVERS {
        campaign.case(Part::Trees, kind.name, "", report, || {
            let server = NbdServer::new(campaign.bed, kind, size, campaign.seed)?;
            // By default, multi-mount protection makes each command wait.
            let options = if kind.name == kinds::FILE.name { "" } else { "-O ^mmp" };
            campaign.bed.parext4("mkfs").args(options).arg(server.url("")).run()?;
            copy(campaign.bed, &server, &source, &wanted)
        });
    }
    campaign.case(Part::Trees, rbd::MEMORY, "", report, || {
        let server = RbdServer::new(campaign.bed, rbd::MEMORY, size)?;
        campaign.bed.parext4("mkfs").arg(server.url("")).run()?;
        copy(campaign.bed, &server, &source, &wanted)
    });
    remove(&source)
}

fn copy(bed: &TestBed, server: &dyn Server, source: &Path, wanted: &Manifest) -> Result<()> {
    let url = server.url("");
    let tree = inside(Path::new(&url), "/tree");
    bed.parext4("put --quiet").arg(source).arg(&tree).run()?;
    let got = bed.path("got");
    remove(&got)?;
    bed.parext4("get --quiet").arg(&tree).arg(&got).run()?;
    let found = Manifest::read(&got);
    remove(&got)?;
    wanted.compare(&found?).context("get")?;
    let found = kernel_view(bed, server, "tree")?;
    wanted.compare(&found).context("the kernel's view")?;
    bed.parext4("rm -r").arg(&tree).run()?;
    image::check(&server.bytes()?).context("after rm -r")
}

/// Checks the bytes of the image with e2fsck, and returns a tree in them as the kernel shows it.
pub fn kernel_view(bed: &TestBed, server: &dyn Server, tree: &str) -> Result<Manifest> {
    let mut manifest = Manifest::default();
    with_kernel_mount(bed, server, |dir| {
        manifest = Manifest::read(&dir.join(tree))?;
        Ok(())
    })?;
    Ok(manifest)
}

/// Checks the bytes of the image with e2fsck, mounts them read-only by the kernel, and calls `look`
/// with the folder.
pub fn with_kernel_mount(
    bed: &TestBed,
    server: &dyn Server,
    look: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    let bytes = server.bytes()?;
    image::check(&bytes)?;
    let mount = Mount::new(&bytes, &bed.path("kernel"), "ro")?;
    look(mount.dir()).context("mounted by the kernel")?;
    mount.unmount()
}
