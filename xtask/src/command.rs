//! Other programs: run one, wait for it, and end it when the user interrupts.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::{interrupt, slowest};

/// The time between two checks whether a program has exited.
const POLL: Duration = Duration::from_millis(2);

/// A command line under construction.
pub struct Cmd {
    command: Command,
    line: String,
    interruptible: bool,
    is_noted: bool,
}

/// Exit status and output of a program.
pub struct Output {
    /// Its exit status.
    pub status: ExitStatus,
    /// Its standard output and, after it, its standard error.
    pub text: String,
}

/// Starts the command line of `program`, found in [`path`].
pub fn cmd(program: impl AsRef<OsStr>) -> Cmd {
    let mut command = Command::new(program.as_ref());
    command.env("PATH", path()).stdin(Stdio::null());
    Cmd {
        command,
        line: program.as_ref().to_string_lossy().into_owned(),
        interruptible: true,
        is_noted: false,
    }
}

/// The search path for programs: `PATH`, the administrator's folders, which a plain user's `PATH`
/// lacks and mke2fs and losetup live in, and PostgreSQL's.
pub fn path() -> String {
    let mut path = std::env::var("PATH").unwrap_or_default() + ":/usr/local/sbin:/usr/sbin:/sbin";
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    for version in versions {
        path += &format!(":{}", version.path().join("bin").display());
    }
    path
}

impl Cmd {
    /// Adds one argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.line.push(' ');
        self.line.push_str(&arg.as_ref().to_string_lossy());
        self.command.arg(arg);
        self
    }

    /// Adds the words of `words`, split at spaces.
    pub fn args(self, words: &str) -> Self {
        words.split_whitespace().fold(self, Cmd::arg)
    }

    /// Adds an option and its value, if there is one.
    pub fn option(self, name: &str, value: Option<impl AsRef<OsStr>>) -> Self {
        match value {
            Some(value) => self.arg(name).arg(value),
            None => self,
        }
    }

    /// Sets an environment variable.
    pub fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    /// Removes an environment variable.
    pub fn env_remove(mut self, key: impl AsRef<OsStr>) -> Self {
        self.command.env_remove(key);
        self
    }

    /// Sets the folder to run in.
    pub fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// For clean-up: runs to its end also after an interrupt.
    pub fn always(mut self) -> Self {
        self.interruptible = false;
        self
    }

    /// Counts its time among the slow commands of the step.
    pub fn noted(mut self) -> Self {
        self.is_noted = true;
        self
    }

    /// The command line, to show.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Runs it; any exit status but 0 is an error that shows what the program said.
    pub fn run(self) -> Result<String> {
        let line = self.line.clone();
        let output = self.output()?;
        if !output.status.success() {
            bail!("`{line}`: {}\n{}", output.status, output.text.trim_end());
        }
        Ok(output.text)
    }

    /// Runs it and collects what it prints, whatever its exit status.
    pub fn output(mut self) -> Result<Output> {
        let start = Instant::now();
        let mut child = self.spawn(Stdio::piped(), Stdio::piped())?;
        let out = collect(child.stdout.take());
        let err = collect(child.stderr.take());
        let status = self.wait(&mut child);
        let text = out.join().unwrap_or_default() + &err.join().unwrap_or_default();
        if self.is_noted {
            slowest::note_command(start.elapsed());
        }
        Ok(Output { status: status?, text })
    }

    /// Runs it, hands each line of its standard output to `line`; its standard error is the
    /// caller's.
    pub fn each_line(mut self, line: impl FnMut(&str) + Send) -> Result<ExitStatus> {
        let mut child = self.spawn(Stdio::piped(), Stdio::inherit())?;
        let stdout = child.stdout.take();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut line = line;
                if let Some(stdout) = stdout {
                    BufReader::new(stdout).lines().map_while(Result::ok).for_each(|text| line(&text));
                }
            });
            self.wait(&mut child)
        })
    }

    /// Starts it with its standard output in a pipe and nothing else shown; the caller ends it.
    pub fn start(mut self) -> Result<Child> {
        self.spawn(Stdio::piped(), Stdio::null())
    }

    /// Starts it with its output at the end of the file `log`; the caller ends it.
    pub fn start_logged(mut self, log: &Path) -> Result<Child> {
        let log = File::options().create(true).append(true).open(log)?;
        self.spawn(log.try_clone()?.into(), log.into())
    }

    fn spawn(&mut self, stdout: Stdio, stderr: Stdio) -> Result<Child> {
        if self.interruptible {
            interrupt::check()?;
        }
        self.command.stdout(stdout).stderr(stderr);
        self.command.spawn().with_context(|| format!("cannot start `{}`", self.line))
    }

    fn wait(&self, child: &mut Child) -> Result<ExitStatus> {
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if self.interruptible && interrupt::requested() {
                // Not SIGKILL: on SIGTERM, cargo ends the processes that it has started.
                kill_process(Pid::from_child(child), Signal::TERM)?;
                child.wait()?;
                bail!("`{}`: interrupted", self.line);
            }
            thread::sleep(POLL);
        }
    }
}

fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // The text before an error is still worth showing.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
