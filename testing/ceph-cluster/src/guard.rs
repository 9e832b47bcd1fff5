//! [`Guard`]: a shell that is the parent of all daemons of a cluster, and ends them when this process ends.
//!
//! The shell reads commands from a pipe and runs each in the background. The pipe closes when
//! [`Guard`] is dropped, or when this process is killed. Then the shell kills them by their ids,
//! waits for them, and removes the directory of the cluster. Only a parent can do that safely:
//! until it has waited for a child, no other process gets the child's id.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// Lines are `NAME COMMAND...`; the shell answers each with the id of the process. `$1` is the
/// directory. Signals of the terminal reach the shell too, which ignores them: it ends with the
/// process that started it.
const SCRIPT: &str = r#"
trap '' INT TERM HUP QUIT
while read -r name command; do
    $command </dev/null >>"$1/$name.out" 2>&1 &
    ids="$ids $!"
    echo "$!"
done
kill -KILL $ids 2>/dev/null
wait
rm -rf "$1"
"#;

/// The parent of the daemons.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Child,
    // `None` once the guard is being dropped.
    commands: Option<ChildStdin>,
    ids: BufReader<ChildStdout>,
}

/// A daemon that the guard has started.
#[derive(Debug)]
pub(crate) struct Daemon(Pid);

impl Guard {
    /// Starts the shell. It removes `dir` in the end.
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting sh")?;
        let commands = shell.stdin.take();
        let ids = BufReader::new(shell.stdout.take().context("the shell has a pipe")?);
        Ok(Self { shell, commands, ids })
    }

    /// Starts a daemon. `command` has no quotes: the shell splits it at spaces. Its output goes to
    /// `NAME.out`.
    pub(crate) fn spawn(&mut self, name: &str, command: &str) -> Result<Daemon> {
        let commands = self.commands.as_mut().context("the guard is open")?;
        writeln!(commands, "{name} {command}").context("the shell has ended")?;
        let mut id = String::new();
        self.ids.read_line(&mut id)?;
        let id = id.trim().parse().with_context(|| format!("starting {command}: {id:?}"))?;
        Ok(Daemon(Pid::from_raw(id).context("a process id is positive")?))
    }
}

impl Daemon {
    /// Kills the daemon without notice.
    pub(crate) fn kill(&self) -> Result<()> {
        Ok(kill_process(self.0, Signal::KILL)?)
    }

    /// Fails if the daemon has ended.
    pub(crate) fn check(&self) -> Result<()> {
        // A child that has ended and was not waited for is a zombie, state Z.
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.0.as_raw_nonzero())).unwrap_or_default();
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        ensure!(state.is_some_and(|state| state != 'Z'), "a daemon has ended");
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.commands.take());
        let _ = self.shell.wait();
    }
}
