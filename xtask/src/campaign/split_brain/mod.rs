//! Two machines contend for a volume on a network: its owner is stopped at a random moment under load, a standby takes over and
//! writes every block, and the owner is continued. None of the owner's later writes may arrive, and it must say why.
//!
//! On Ceph RBD the cluster refuses them. On NBD only multi-mount protection keeps the owner from sending them; what arrives
//! nevertheless is counted.

mod node;
mod storage;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ceph_cluster::{Cluster, Options};
use fastrand::Rng;

use crate::command::cmd;
use crate::image;
use crate::report::Report;
use crate::scope::Scope;
use crate::testbed::TestBed;
use crate::workspace::{cargo, target};
use node::Node;
use storage::{NbdExport, RbdImage, Storage};

/// Rounds at a time. Each waits most of its time.
const PARALLEL: u32 = 4;
/// Largest number of writes of one stopped owner that may reach an NBD server after the takeover: the owner may be stopped
/// between a check and the system call that sends a request, on each of its connections.
const LATE_ON_NBD: u64 = 4;

/// How the standby learns that the owner is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takeover {
    /// By the owner's silence.
    Waited,
    /// By `parext4 takeover`.
    Forced,
}

/// Runs the campaign.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    let bed = TestBed::new()?;
    cargo("build --quiet --release -p parext4-standby --example node").run().context("building the node")?;
    let contest = Contest { bed: &bed, node: target().join("release/examples/node") };
    let missing = Cluster::missing();
    if missing.is_empty() {
        let cluster = Cluster::start(&Options::default())?;
        let make = |number| RbdImage::new(&cluster, number);
        report.case("on RBD, without a command", || {
            contest.rounds(scope.pick(1, 20), Takeover::Waited, 0, make)
        });
        report.case("on RBD, by takeover", || contest.rounds(scope.pick(2, 20), Takeover::Forced, 0, make));
    } else {
        report.skip("split brain on RBD", &format!("missing packages: {}", missing.join(" ")));
    }
    if NbdExport::is_missing() {
        report.skip("split brain on NBD", "nbdkit is not installed");
        return Ok(());
    }
    let make = |number| NbdExport::new(&bed.path(&format!("nbd{number}")));
    report.case("on NBD, by takeover", || {
        contest.rounds(scope.pick(1, 20), Takeover::Forced, LATE_ON_NBD, make)
    });
    if scope.pick(false, true) {
        report.case("on NBD, without a command", || contest.rounds(20, Takeover::Waited, LATE_ON_NBD, make));
    }
    Ok(())
}

/// The programs of a contest.
struct Contest<'a> {
    bed: &'a TestBed,
    node: PathBuf,
}

impl Contest<'_> {
    /// Runs rounds, [`PARALLEL`] at a time, each on a device of its own. At most `allowed` late writes are no error.
    fn rounds<S: Storage>(
        &self,
        rounds: u32,
        takeover: Takeover,
        allowed: u64,
        make: impl Fn(u32) -> Result<S> + Sync,
    ) -> Result<()> {
        let one = |number| -> Result<u64> {
            let late =
                self.round(&make(number)?, number, takeover).with_context(|| format!("round {number}"))?;
            ensure!(late <= allowed, "round {number}: {late} writes of the old owner arrived late");
            Ok(late)
        };
        let worker = |first: u32| (first..rounds).step_by(PARALLEL as usize).map(one).sum::<Result<u64>>();
        let late = thread::scope(|scope| {
            let workers: Vec<_> = (0..PARALLEL).map(|first| scope.spawn(move || worker(first))).collect();
            workers.into_iter().map(|worker| worker.join().expect("no worker panics")).sum::<Result<u64>>()
        })?;
        println!("        {rounds} rounds, {late} writes of old owners arrived late");
        Ok(())
    }

    /// Runs one contest. Returns the number of blocks that the old owner has written last.
    fn round(&self, storage: &impl Storage, number: u32, takeover: Takeover) -> Result<u64> {
        let url = storage.url();
        self.bed.parext4("mkfs --force --size 128M -E mmp_update_interval=1").arg(&url).run()?;
        let mut owner = Node::start(&self.node, "A", &url, false)?;
        owner.says("covered")?;
        let mut standby = Node::start(&self.node, "B", &url, true)?;
        standby.says("standing by")?;
        thread::sleep(Duration::from_millis(Rng::new().u64(0..1500)));
        owner.stop()?;
        if takeover == Takeover::Forced {
            self.bed.parext4("takeover").arg(&url).run()?;
        }
        standby.says("covered").context("the standby")?;
        owner.resume()?;
        let why = owner.says("failed: ").context("the old owner")?;
        ensure!(why.contains(storage.reason()), "the old owner does not say why it stopped: {why}");
        owner.says("not closed: ")?;
        owner.finish()?;
        standby.end()?;
        let copy = self.bed.path(&format!("copy{number}"));
        storage.copy_to(&copy)?;
        let late = self.late_writes(&copy)?;
        if late == 0 {
            image::check(&copy)?;
        }
        std::fs::remove_file(&copy)?;
        Ok(late)
    }

    /// Returns the number of blocks that are not the standby's.
    fn late_writes(&self, image: &Path) -> Result<u64> {
        let counts = cmd(&self.node).arg("--check").arg(image).run()?;
        let words: Vec<&str> = counts.split_whitespace().collect();
        let of =
            |name: &str| words.chunks(2).find(|pair| pair[0] == name).map_or(Ok(0), |pair| pair[1].parse());
        ensure!(of("B")? > 0, "the standby wrote nothing: {counts}");
        Ok(of("A")?)
    }
}
