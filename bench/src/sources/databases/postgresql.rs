//! PostgreSQL and pgbench.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use parext4_cli::interrupt;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::outcome::{OpStats, Outcome};
use crate::sources::command::{command, run as run_command};

/// Rows of the table of accounts at scale 1.
const ROWS: u64 = 100_000;
const CLIENTS: &str = "4";
const THREADS: &str = "2";

/// What PostgreSQL does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PgTask {
    /// `initdb`.
    Init,
    /// `pgbench -i`.
    Load,
    /// The default transactions of pgbench: three updates, a query and an insertion, each made
    /// durable.
    ReadWrite,
    /// `pgbench -S`: a query by key.
    Select,
}

impl PgTask {
    pub const ALL: [Self; 4] = [Self::Init, Self::Load, Self::ReadWrite, Self::Select];

    pub fn name(self) -> &'static str {
        match self {
            Self::Init => "postgresql-initdb",
            Self::Load => "pgbench-load",
            Self::ReadWrite => "pgbench-read-write",
            Self::Select => "pgbench-select-only",
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Self::Init => "runs/s",
            Self::Load => "rows/s",
            Self::ReadWrite | Self::Select => "transactions/s",
        }
    }
}

/// Runs `task` on a new database cluster in `root`. Only the task is measured.
pub fn run(task: PgTask, scale: u32, runtime: Duration, root: &Path) -> Result<Outcome> {
    let cluster = Cluster::new(root)?;
    let initialized = cluster.initialize()?;
    if task == PgTask::Init {
        return Outcome::of_program(1, initialized);
    }
    let mut server = cluster.start()?;
    let loaded = cluster.load(scale)?;
    let outcome = match task {
        PgTask::Init | PgTask::Load => Outcome::of_program(ROWS * u64::from(scale), loaded),
        PgTask::ReadWrite => cluster.transactions(&[], runtime),
        PgTask::Select => cluster.transactions(&["--select-only"], runtime),
    };
    server.stop()?;
    outcome
}

/// A database cluster.
struct Cluster {
    data: PathBuf,
    /// Holds the socket and the logs. Not on the file system that is measured.
    dir: TempDir,
}

impl Cluster {
    fn new(root: &Path) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("parext4-postgresql-").tempdir()?;
        // The server refuses to be root's. The user that it becomes writes here.
        for open in [root, dir.path()] {
            fs::set_permissions(open, Permissions::from_mode(0o777))
                .with_context(|| open.display().to_string())?;
        }
        Ok(Self { data: root.join("data"), dir })
    }

    /// Returns the time that it took.
    fn initialize(&self) -> Result<Duration> {
        let mut initdb = unprivileged("initdb", ["-A", "trust", "-U", "bench", "-D"]);
        initdb.arg(&self.data);
        timed(initdb)
    }

    fn start(&self) -> Result<Server> {
        let mut program =
            unprivileged("postgres", ["-c", "listen_addresses=", "-c", "shared_buffers=128MB", "-D"]);
        program.arg(&self.data).arg("-k").arg(self.dir.path());
        let process =
            program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().context("starting postgres")?;
        let mut server = Server { process };
        let started = Instant::now();
        while run_command(self.client("pg_isready", &["-q", "-d", "postgres"])).is_err() {
            interrupt::check()?;
            ensure!(server.process.try_wait()?.is_none(), "postgres has ended at its start");
            ensure!(started.elapsed() < Duration::from_mins(1), "postgres does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Makes and fills the tables. Returns the time that it took.
    fn load(&self, scale: u32) -> Result<Duration> {
        timed(self.client("pgbench", &["-i", "-q", "-s", &scale.to_string(), "postgres"]))
    }

    fn transactions(&self, options: &[&str], runtime: Duration) -> Result<Outcome> {
        interrupt::check()?;
        let log = self.dir.path().join("latency");
        let seconds = runtime.as_secs().max(1);
        let time = seconds.to_string();
        let fixed = ["-n", "-c", CLIENTS, "-j", THREADS, "-T", &time, "--log", "postgres"];
        let mut pgbench = self.client("pgbench", &[options, &fixed].concat());
        pgbench.arg(format!("--log-prefix={}", log.display()));
        run_command(pgbench)?;
        Ok(Outcome::of_one_job(self.latencies()?, Duration::from_secs(seconds), Duration::ZERO))
    }

    /// Reads the time of each transaction from the logs of pgbench's threads.
    fn latencies(&self) -> Result<OpStats> {
        let mut stats = OpStats::new()?;
        for entry in fs::read_dir(self.dir.path())? {
            let path = entry?.path();
            let is_log = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"latency"));
            if !is_log {
                continue;
            }
            for line in fs::read_to_string(&path)?.lines() {
                let took = microseconds(line).with_context(|| format!("pgbench has logged {line:?}"))?;
                stats.add(0, Duration::from_micros(took));
            }
        }
        ensure!(stats.ops > 0, "pgbench has completed no transaction");
        Ok(stats)
    }

    /// Returns the command for a client of the server.
    fn client(&self, program: &str, arguments: &[&str]) -> Command {
        let mut client = unprivileged(program, arguments);
        client.env("PGHOST", self.dir.path()).env("PGUSER", "bench");
        client
    }
}

/// Returns the microseconds of a transaction from a line of pgbench's log, whose fields are:
/// client, number, microseconds, script, ...
fn microseconds(line: &str) -> Option<u64> {
    line.split(' ').nth(2)?.parse().ok()
}

/// Returns the command for a program that refuses to run as root: by an unprivileged user, if this
/// process is root's.
fn unprivileged(program: &str, arguments: impl IntoIterator<Item = impl AsRef<str>>) -> Command {
    let mut command = match rustix::process::geteuid().is_root() {
        true => command("setpriv", ["--reuid=nobody", "--regid=nogroup", "--clear-groups", program]),
        false => command(program, [""; 0]),
    };
    command.args(arguments.into_iter().map(|argument| argument.as_ref().to_owned()));
    // The directory of the caller need not exist for the user.
    command.current_dir("/").env("LC_ALL", "C.UTF-8");
    command
}

/// Runs a command and returns the time that it took.
fn timed(program: Command) -> Result<Duration> {
    interrupt::check()?;
    let start = Instant::now();
    run_command(program)?;
    Ok(start.elapsed())
}

/// A running server; stopped when dropped.
struct Server {
    process: Child,
}

impl Server {
    /// Has the server write a checkpoint, and waits until it has ended.
    fn stop(&mut self) -> Result<()> {
        self.signal(Signal::INT);
        let status = self.process.wait()?;
        if !status.success() {
            bail!("postgres: {status}");
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        // A server that has ended already is waited for below.
        let _ = kill_process(Pid::from_child(&self.process), signal);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            self.signal(Signal::QUIT);
            let _ = self.process.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::microseconds;

    #[test]
    fn the_log_of_pgbench_is_parsed() {
        assert_eq!(microseconds("0 199 2241 0 1175850568 995598"), Some(2241));
        assert_eq!(microseconds("0 199"), None);
        assert_eq!(microseconds(""), None);
    }
}
