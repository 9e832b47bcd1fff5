//! Processes that are killed in the middle of their requests.
//!
//! A client is this test program, started again, with workers on a file of its own. It keeps the
//! versions of its sectors in a file that outlives it. After SIGKILL each sector must have a
//! version that had begun, and none older than the last one that was over.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use testkit::rng::Rng;

use super::versions::Versions;
use super::worker::Worker;
use super::{Shape, TestRun};
use crate::side::Kind;
use crate::watch::Watch;

/// The test that a client runs, and the variables that tell it of its run.
const TEST: &str = "client_that_is_killed";
const DIR: &str = "PAREXT4_MIXED_CLIENT_DIR";
const NUMBER: &str = "PAREXT4_MIXED_CLIENT_NUMBER";
const TABLE: &str = "PAREXT4_MIXED_CLIENT_TABLE";
const OPTIONS: &str = "PAREXT4_MIXED_CLIENT_OPTIONS";
const SEED: &str = "PAREXT4_MIXED_CLIENT_SEED";

/// Workers of a client, and its file.
const SHAPE: Shape = Shape { workers: 3, depth: 48, files: 1, region: 64, free: None, clients: 0 };
const SECTORS: u64 = SHAPE.region * SHAPE.workers as u64;
/// Files of killed clients that are kept until the volume is mounted again.
const KEPT: usize = 6;
/// The longest life of a client, in milliseconds.
const LIFE: u64 = 400;

/// Starts and kills clients until the run is over. Returns the last of their files.
pub fn run(run: &TestRun<'_>, nth: usize, seed: u64, tables: &TempDir) -> Vec<Killed> {
    let (mut rng, mut kept) = (Rng::new(seed, 1_000 + nth as u64), VecDeque::new());
    let thread = run.shape.workers + nth;
    while run.is_running() {
        // The numbers of several clients at once, and of several rounds, differ.
        let number = run.clients.fetch_add(1, Ordering::Relaxed);
        let mut client = Client::start(run, number, rng.next(), tables);
        std::thread::sleep(Duration::from_millis(rng.below(LIFE)));
        let killed = run.watch.call(thread, || format!("killing client {number}"), || client.kill());
        let checked = killed.and_then(|()| {
            run.watch.call(thread, || format!("checking client {number}"), || client.killed.check("killed"))
        });
        checked.unwrap_or_else(|error| {
            run.stop.store(true, Ordering::Relaxed);
            panic!("{error}");
        });
        kept.push_back(client.killed);
        if kept.len() > KEPT {
            kept.pop_front().expect("one is kept").remove();
        }
    }
    kept.into()
}

struct Client {
    process: Child,
    killed: Killed,
}

/// The file of a client that was killed.
pub struct Killed {
    dir: PathBuf,
    number: u64,
    table: PathBuf,
    versions: Versions,
}

impl Client {
    fn start(run: &TestRun<'_>, number: u64, seed: u64, tables: &TempDir) -> Self {
        let table = tables.path().join(number.to_string());
        let file = File::options().read(true).write(true).create_new(true).open(&table).unwrap();
        let versions = Versions::shared(0, SECTORS, SHAPE.region, &file);
        let made = TestRun::make_file(&run.dir.join(shared(number)), versions.len());
        made.expect("root may make files");
        let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
        command.args(["--exact", TEST, "--ignored", "--nocapture"]);
        command.env(DIR, &run.dir).env(NUMBER, number.to_string()).env(TABLE, &table);
        command.env(SEED, seed.to_string());
        // Its workers are users who may not open the log of slow calls.
        command.env_remove("PAREXT4_SLOWEST");
        if let Kind::Ours(options) = run.kind {
            command.env(OPTIONS, options);
        }
        let process =
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("this program starts");
        Self { process, killed: Killed { dir: run.dir.clone(), number, table, versions } }
    }

    /// Kills the client.
    ///
    /// # Errors
    /// What the client has printed, or that it has ended by itself.
    fn kill(&mut self) -> Result<(), String> {
        let ended = self.process.try_wait().expect("its status");
        self.process.kill().expect("it is a child");
        self.process.wait().expect("it ends");
        // A client that finds a difference prints it, and may be killed before it ends.
        let mut errors = String::new();
        let stderr = self.process.stderr.as_mut().expect("it is a pipe");
        stderr.read_to_string(&mut errors).expect("errors are text");
        if ended.is_some() || !errors.is_empty() {
            return Err(format!("client {} has failed, {ended:?}: {errors}", self.killed.number));
        }
        Ok(())
    }
}

impl Killed {
    /// Checks that reads return what the client may have left.
    ///
    /// # Errors
    /// A description of the difference.
    pub fn check(&self, when: &str) -> Result<(), String> {
        let len = usize::try_from(SECTORS).unwrap() * testkit::sector::SECTOR;
        let oldest = self.versions.oldest(0, SECTORS);
        // A truncation may have no later extension.
        let mut bytes = std::fs::read(self.dir.join(shared(self.number))).expect("root may read");
        let describe = |what: String| format!("client {}, {when}: {what}", self.number);
        if bytes.len() > len {
            return Err(describe(format!("{} bytes", bytes.len())));
        }
        bytes.resize(len, 0);
        self.versions.check(&bytes, &oldest).map_err(describe)
    }

    /// Removes the files.
    pub fn remove(self) {
        std::fs::remove_file(self.dir.join(shared(self.number))).expect("root may remove it");
        std::fs::remove_file(&self.table).expect("it is there");
        for nth in 0..SHAPE.workers {
            // The client may have been killed before it made them, or while one had its other name.
            let own = self.dir.join(own(self.number)(nth));
            let _ = std::fs::remove_file(other_name(&own));
            let _ = std::fs::remove_file(own);
        }
    }
}

fn shared(number: u64) -> String {
    format!("client{number}-shared0")
}

fn own(number: u64) -> impl Fn(usize) -> String {
    move |nth| format!("client{number}-own{nth}")
}

/// Returns the name of a worker's own file while it is renamed.
pub fn other_name(own: &Path) -> PathBuf {
    own.with_extension("renamed")
}

/// Runs the workers of a client until it is killed. Does nothing if this process is none.
pub fn work_until_killed() {
    let variable = |name| std::env::var(name).ok();
    let (Some(dir), Some(number), Some(table)) = (variable(DIR), variable(NUMBER), variable(TABLE)) else {
        return;
    };
    let file = File::options().read(true).write(true).open(table).expect("the table of its versions");
    let kind = variable(OPTIONS).map_or(Kind::Kernel, |options| Kind::Ours(options.leak()));
    let seed = variable(SEED).and_then(|seed| seed.parse().ok()).expect("a number");
    let watch = Watch::start(TEST, Vec::new(), SHAPE.workers);
    let run = TestRun {
        prefix: format!("client{number}-"),
        files: vec![Versions::shared(0, SECTORS, SHAPE.region, &file)],
        deadline: Instant::now() + Duration::from_hours(1),
        ..TestRun::new(kind, SHAPE, dir.into(), &watch)
    };
    std::thread::scope(|scope| {
        for nth in 0..SHAPE.workers {
            let run = &run;
            scope.spawn(move || Worker::new(run, nth, seed).work());
        }
    });
}
