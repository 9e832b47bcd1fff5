//! A machine: a process that owns a volume or stands by for it, and writes.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::interrupt;

/// Longest wait for a line.
const PATIENCE: Duration = Duration::from_mins(3);
/// Time between two checks for an interrupt.
const POLL: Duration = Duration::from_millis(100);

/// A running machine; killed when dropped.
pub struct Node {
    name: String,
    process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Node {
    /// Starts a machine whose blocks carry the letter `name`.
    pub fn start(program: &Path, name: &str, url: &str, standby: bool) -> Result<Self> {
        let mut command = Command::new(program);
        command.args([name, url]).args(standby.then_some("--standby"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().context("starting a node")?;
        let output = BufReader::new(process.stdout.take().context("no output")?);
        let (sender, lines) = channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let input = process.stdin.take();
        Ok(Self { name: name.to_owned(), process, input, lines, said: Vec::new() })
    }

    /// Waits for a line that begins with `start`, and returns it.
    pub fn says(&mut self, start: &str) -> Result<String> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            interrupt::check()?;
            let line = match self.lines.recv_timeout(POLL) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => continue,
                // The end of the output, not of the process: its last lines may be read after its
                // end.
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("{}", self.story()?)
                }
            };
            self.said.push(line.clone());
            if line.starts_with(start) {
                return Ok(line);
            }
        }
        bail!("node {} does not say {start:?}: {:?}", self.name, self.said)
    }

    /// Returns the status of a machine that has ended, with all that it has printed.
    fn story(&mut self) -> Result<String> {
        let status = self.process.wait()?;
        let mut errors = String::new();
        self.process.stderr.take().map(|mut stderr| stderr.read_to_string(&mut errors)).transpose()?;
        Ok(format!("node {} has ended: {status}, {:?}, {errors}", self.name, self.said))
    }

    /// Stops the process.
    pub fn stop(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Continues the process.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.process), signal)?)
    }

    /// Has the machine close its volume and end.
    pub fn end(mut self) -> Result<()> {
        drop(self.input.take());
        self.says("closed")?;
        self.finish()
    }

    /// Waits for the end of a machine that has failed or is closing.
    pub fn finish(mut self) -> Result<()> {
        self.process.wait()?;
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
