//! Runs a program with limits of its time, until it has ended, has exceeded a limit, or the user
//! interrupts.

use std::fs;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Limit of the address space of a test program, in KiB, because a change can make it allocate
/// without end.
const MEMORY_KIB: u64 = 8 << 20;

/// Time between two checks whether a program has ended.
const POLL: Duration = Duration::from_millis(1);

/// A program that has used no processor for this long waits for ever, if it also runs longer than
/// expected.
const IDLE: Duration = Duration::from_secs(4);

/// Limits of the time of a program.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A program that runs longer is ended.
    pub longest: Duration,
    /// A program that runs longer is ended if it is idle.
    pub idle: Duration,
}

/// Ends running programs on SIGINT, SIGTERM and SIGHUP. Called once, at the start.
pub fn end_on_signals() -> Result<()> {
    // Relaxed: the flag publishes nothing but itself.
    Ok(ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed))?)
}

/// Returns the command that runs `program` with limited memory.
pub fn limited(program: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v $0; exec \"$@\"", &MEMORY_KIB.to_string(), program]);
    command
}

/// Runs a command. Returns its exit status, or `None` if it was ended because it exceeded its
/// limits.
///
/// # Errors
/// If the command cannot be started, or the user interrupts.
pub fn run(mut command: Command, limits: Limits) -> Result<Option<ExitStatus>> {
    let start = Instant::now();
    let (mut used, mut worked) = (None, start);
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > limits.idle && used != processor_time(child.id()) {
            (used, worked) = (processor_time(child.id()), Instant::now());
        }
        let is_idle = start.elapsed() > limits.idle && worked.elapsed() > IDLE;
        let is_interrupted = INTERRUPTED.load(Ordering::Relaxed);
        if is_interrupted || is_idle || start.elapsed() > limits.longest {
            // Fails only if the program has ended meanwhile.
            let _ = child.kill();
            child.wait()?;
            if is_interrupted {
                bail!("interrupted");
            }
            return Ok(None);
        }
        thread::sleep(POLL);
    }
}

/// Returns the time for which a process has used processors, in ticks; `None` if it has ended.
fn processor_time(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The fields after the name, which is in parentheses: state, and 10 more before the time in
    // user mode and in the kernel.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::{Limits, limited, run};
    use std::time::Duration;

    #[test]
    fn programs_that_wait_or_run_too_long_are_ended() {
        let limits =
            |longest, idle| Limits { longest: Duration::from_secs(longest), idle: Duration::from_secs(idle) };
        let end = |program: &str, argument: &str, limits| {
            let mut command = limited(program);
            command.arg(argument);
            run(command, limits).unwrap().map(|status| status.success())
        };
        assert_eq!(
            (end("true", "", limits(500, 500)), end("false", "", limits(500, 500))),
            (Some(true), Some(false))
        );
        assert_eq!(end("sleep", "600", limits(1, 9)), None);
        assert_eq!(end("sleep", "600", limits(500, 0)), None);
        assert_eq!(end("sleep", "5", limits(500, 20)), Some(true));
    }
}
