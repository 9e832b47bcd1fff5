//! A process that aborts the connection of a mount whose server was killed.
//!
//! When a server ends, the kernel closes its files of `/dev/fuse` and fails all requests of the
//! mount. A thread of a killed server that blocks on a page in the kernel keeps these files open.
//! The page is locked by a request that the killed server will never answer, so the mount and the
//! server would hang. The guard has no file of `/dev/fuse` open. Once a second it checks whether
//! the server's main thread has ended while the process still exists, and then aborts the
//! connection, which wakes the blocked thread.

use std::io::{Write, stdin};
use std::os::unix::process::{CommandExt, parent_id};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use parext4_mount::control::Abort;

/// How often the guard checks the server.
const INTERVAL: Duration = Duration::from_secs(1);

/// The server's handle to its guard process. Dropping it ends the guard.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Starts the guard. Must be called before the server opens `/dev/fuse`, because the guard must
    /// not inherit that file.
    pub fn start() -> Result<Self> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command.arg("guard").current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().context("starting the guard of the mount")?))
    }

    /// Tells the guard which connection to abort if the calling process is killed.
    pub fn watch(&mut self, connection: &str) -> Result<()> {
        let mut input = self.0.stdin.take().context("the guard has been told")?;
        writeln!(input, "{} {connection}", std::process::id()).context("telling the guard of the mount")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the guard process; its parent is the server.
pub fn run() -> Result<()> {
    // A signal to every process (a shutdown) makes the server unmount. The guard ignores it and
    // ends after the server.
    ctrlc::set_handler(|| ()).context("catching signals")?;
    let mut line = String::new();
    stdin().read_line(&mut line).context("reading what to guard")?;
    let Some((server, connection)) = line.trim().split_once(' ') else { return Ok(()) };
    let server: u32 = server.parse().context("the server's process")?;
    // Opened while the connection exists: once it has ended, its number may be another mount's.
    let connection = Abort::open(connection).context("opening the control file of the connection")?;
    while parent_id() == server {
        if has_lost_main_thread(server) {
            return connection.abort().context("aborting the connection");
        }
        sleep(INTERVAL);
    }
    Ok(())
}

/// Returns true if the main thread of a process has ended while other threads run.
fn has_lost_main_thread(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name, in parentheses, may hold anything.
    stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('Z'))
}
