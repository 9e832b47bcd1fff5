//! Two machines contend for a volume on a network: its owner is stopped at a random moment under
//! load, a standby takes over and writes every block, and the owner is continued. None of the
//! owner's later writes may arrive, and it must say why.
//!
//! On Ceph RBD the cluster refuses them. On NBD only multi-mount protection keeps the owner from
//! sending them; what arrives nevertheless is counted.

mod node;
mod storage;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ceph_cluster::{Cluster, Options, Pace, Store};
use fastrand::Rng;

use crate::command::cmd;
use crate::image;
use crate::interrupt;
use crate::quantile::quantile;
use crate::report::Report;
use crate::scope::Scope;
use crate::testbed::TestBed;
use node::Node;
use storage::{NbdExport, RbdImage, Storage};

/// Rounds at a time. Each waits most of its time.
const PARALLEL: u32 = 4;
/// Largest number of writes of one stopped owner that may reach an NBD server after the takeover:
/// the owner may be stopped between a check and the system call that sends a request, on each of
/// its connections.
const LATE_ON_NBD: u64 = 4;

/// How the standby learns that the owner is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takeover {
    /// By the owner's silence.
    Waited,
    /// By `parext4 takeover`.
    Forced,
}

/// Runs the campaign, on RBD and on NBD at the same time.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    let bed = TestBed::new()?;
    let report = Mutex::new(report);
    let node = bed.beside("examples/node");
    let contest = Contest { bed: &bed, node, report: &report };
    thread::scope(|threads| {
        // A cluster takes longer to start than a round.
        let on_rbd = threads.spawn(|| if scope == Scope::Quick { Ok(()) } else { contest.on_rbd(scope) });
        let on_nbd = contest.on_nbd(scope);
        on_rbd.join().expect("no thread of the campaign panics").and(on_nbd)
    })
}

/// The programs of a contest.
struct Contest<'a> {
    bed: &'a TestBed,
    node: PathBuf,
    report: &'a Mutex<&'a mut Report>,
}

/// What a round has shown.
struct Round {
    /// Number of blocks that the old owner has written last.
    late: u64,
    /// Time from the stop of the owner until the standby had written every block.
    takeover: Duration,
}

impl<'a> Contest<'a> {
    fn on_rbd(&self, scope: Scope) -> Result<()> {
        let missing = Cluster::missing();
        if !missing.is_empty() {
            self.report().skip("split brain on RBD", &format!("missing packages: {}", missing.join(" ")));
            return Ok(());
        }
        let cluster = Cluster::start(&Options::default())?;
        let make = |number| RbdImage::new(&cluster, number);
        self.case("on RBD, without a command", || self.rounds(scope.pick(1, 20), Takeover::Waited, 0, make));
        self.case("on RBD, by takeover", || self.rounds(scope.pick(2, 20), Takeover::Forced, 0, make));
        if scope.pick(false, true) {
            let stock = Options { store: Store::File, pace: Pace::Stock, ..Options::default() };
            let stock = Cluster::start(&stock)?;
            self.case("on RBD, killed, with Ceph's settings", || {
                self.killed(10, |n| RbdImage::new(&stock, n))
            });
        }
        Ok(())
    }

    fn on_nbd(&self, scope: Scope) -> Result<()> {
        if NbdExport::is_missing() {
            self.report().skip("split brain on NBD", "nbdkit is not installed");
            return Ok(());
        }
        // Every other one has TLS, where a thread of its own sends.
        let make = |number| NbdExport::new(&self.bed.path(&format!("nbd{number}")), number % 2 == 1);
        let rounds = |count, takeover| self.rounds(count, takeover, LATE_ON_NBD, make);
        self.case("on NBD, by takeover", || rounds(scope.quick_or(1, scope.pick(2, 20)), Takeover::Forced));
        if scope.pick(false, true) {
            self.case("on NBD, without a command", || rounds(20, Takeover::Waited));
        }
        Ok(())
    }

    fn report(&self) -> MutexGuard<'_, &'a mut Report> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a case. Other cases may run at the same time.
    fn case(&self, name: &str, case: impl FnOnce() -> Result<()>) {
        let start = Instant::now();
        let result = interrupt::check().and_then(|()| case());
        self.report().done(name, start.elapsed(), result);
    }

    /// Runs rounds, [`PARALLEL`] at a time, each on a device of its own. At most `allowed` late
    /// writes are no error.
    fn rounds<S: Storage>(
        &self,
        rounds: u32,
        takeover: Takeover,
        allowed: u64,
        make: impl Fn(u32) -> Result<S> + Sync,
    ) -> Result<()> {
        let one = |number| -> Result<Round> {
            let round =
                self.round(&make(number)?, number, takeover).with_context(|| format!("round {number}"))?;
            ensure!(
                round.late <= allowed,
                "round {number}: {} writes of the old owner arrived late",
                round.late
            );
            Ok(round)
        };
        let worker =
            |first: u32| (first..rounds).step_by(PARALLEL as usize).map(one).collect::<Result<Vec<_>>>();
        let done = thread::scope(|scope| {
            let workers: Vec<_> = (0..PARALLEL).map(|first| scope.spawn(move || worker(first))).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().expect("no worker panics"))
                .collect::<Result<Vec<_>>>()
        })?;
        let done: Vec<_> = done.into_iter().flatten().collect();
        println!("        {}", summary(takeover, &done));
        Ok(())
    }

    /// Runs one contest.
    fn round(&self, storage: &impl Storage, number: u32, takeover: Takeover) -> Result<Round> {
        let url = storage.url();
        self.bed.parext4("mkfs --force --size 128M -E mmp_update_interval=1").arg(&url).run()?;
        let mut owner = Node::start(&self.node, "A", &url, false)?;
        owner.says("covered")?;
        let mut standby = Node::start(&self.node, "B", &url, true)?;
        standby.says("standing by")?;
        thread::sleep(Duration::from_millis(Rng::new().u64(0..1500)));
        owner.stop()?;
        let stopped = Instant::now();
        if takeover == Takeover::Forced {
            self.bed.parext4("takeover").arg(&url).run()?;
        }
        standby.says("covered").context("the standby")?;
        let time = stopped.elapsed();
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
        Ok(Round { late, takeover: time })
    }

    /// Kills the owners of volumes with the default settings, and prints when the standby has
    /// written.
    fn killed<S: Storage>(&self, rounds: u32, make: impl Fn(u32) -> Result<S>) -> Result<()> {
        let mut times = Vec::new();
        for number in 0..rounds {
            let storage = make(number)?;
            let url = storage.url();
            self.bed.parext4("mkfs --size 128M").arg(&url).run()?;
            let mut owner = Node::start(&self.node, "A", &url, false)?;
            owner.says("covered")?;
            let mut standby = Node::start(&self.node, "B", &url, true)?;
            standby.says("standing by")?;
            // The owner changes the MMP block every 5 seconds.
            thread::sleep(Duration::from_millis(5000 + Rng::new().u64(0..5000)));
            drop(owner);
            let killed = Instant::now();
            standby.says("covered").context("the standby")?;
            times.push(killed.elapsed().as_secs_f64());
            standby.end()?;
        }
        let [least, median, most] = [0.0, 0.5, 1.0].map(|part| quantile(&times, part));
        println!(
            "        {rounds} rounds; all blocks written by the standby after {least:.1} s, {median:.1} s, {most:.1} s (least, \
             median, most)"
        );
        Ok(())
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

/// Describes rounds in one line.
fn summary(how: Takeover, rounds: &[Round]) -> String {
    let late: u64 = rounds.iter().map(|round| round.late).sum();
    let times: Vec<_> = rounds.iter().map(|round| round.takeover.as_secs_f64()).collect();
    let (count, [least, median, most]) = (rounds.len(), [0.0, 0.5, 1.0].map(|part| quantile(&times, part)));
    format!(
        "{how:?}: {count} rounds, {late} writes of old owners arrived late; all blocks written by the standby after \
         {least:.1} s, {median:.1} s, {most:.1} s (least, median, most)"
    )
}
