//! The log of a server: its error output until the starting command returns, then a file or the
//! system's log.

mod bounded_file;

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use log::{Level, LevelFilter, Log, Metadata, Record};
use parext4_mount::runtime_dir;
use parking_lot::Mutex;

use bounded_file::BoundedFile;

/// The socket of the system's log.
const SYSLOG: &str = "/dev/log";
/// The facility of daemons, as defined by syslog(3).
const DAEMON: u8 = 3 << 3;
/// The number of lines that a report shows, and the limit of one, in characters.
const RECENT: usize = 10;
const MAX_RECENT: usize = 300;

/// The destination of messages.
#[derive(Debug)]
enum Sink {
    ErrorOutput,
    File(PathBuf, File),
    System(UnixDatagram),
    /// A file in the runtime directory, because the system has no log.
    Runtime(BoundedFile),
    /// Messages are dropped.
    Nowhere,
}

struct Logger(Mutex<LoggerState>);

struct LoggerState {
    sink: Sink,
    /// The directory of the mount.
    dir: PathBuf,
    /// The last messages.
    recent: VecDeque<String>,
}

static LOGGER: Logger =
    Logger(Mutex::new(LoggerState { sink: Sink::ErrorOutput, dir: PathBuf::new(), recent: VecDeque::new() }));

/// Opens a log to append to.
pub fn open(path: &Path) -> Result<(PathBuf, File)> {
    let file = File::options().append(true).create(true).open(path);
    Ok((path.to_owned(), file.with_context(|| format!("log {}", path.display()))?))
}

/// Starts logging to `file`, which has a path, or else to the error output, for a mount on `dir`.
pub fn start(file: Option<(PathBuf, File)>, dir: &Path) {
    {
        let mut state = LOGGER.0.lock();
        dir.clone_into(&mut state.dir);
        if let Some((path, file)) = file {
            state.sink = Sink::File(path, file);
        }
    }
    // Fails only if this was called before.
    let _ = log::set_logger(&LOGGER);
    log::set_max_level(LevelFilter::Info);
}

/// Switches from the error output to the system's log, because the starting command has returned.
/// Without one, to a file in the runtime directory.
pub fn leave_error_output() {
    let state = &mut *LOGGER.0.lock();
    if matches!(state.sink, Sink::ErrorOutput) {
        let in_runtime_dir = || Some(Sink::Runtime(BoundedFile::open(&runtime_file(&state.dir)?).ok()?));
        let sink = system(Path::new(SYSLOG)).map(Sink::System).or_else(in_runtime_dir);
        state.sink = sink.unwrap_or(Sink::Nowhere);
    }
}

fn runtime_file(dir: &Path) -> Option<PathBuf> {
    Some(runtime_dir::make().ok()?.join(runtime_dir::file_name(dir, ".log")))
}

/// Ends the log of a server that has ended as it should. Removes a log in the runtime directory
/// unless it has a warning or an error, of this server or of one before.
pub fn end() {
    let state = &mut *LOGGER.0.lock();
    if let Sink::Runtime(file) = std::mem::replace(&mut state.sink, Sink::Nowhere) {
        // A log that stays does no harm.
        let _ = file.remove_if(has_normal_lines_only);
    }
}

/// Returns true if each line of a log says only what a server does.
fn has_normal_lines_only(log: &str) -> bool {
    let is_normal = |line: &str| {
        let level = line.split_once("]: ").map(|(_, rest)| rest.split(':').next().unwrap_or_default());
        level == Some(Level::Info.as_str())
    };
    log.lines().all(is_normal)
}

/// Returns where the log is, and its last lines.
pub fn recent() -> (String, Vec<String>) {
    let state = LOGGER.0.lock();
    let place = match &state.sink {
        Sink::ErrorOutput => "the error output".to_owned(),
        Sink::File(path, _) => path.display().to_string(),
        Sink::System(_) => "the system's log".to_owned(),
        Sink::Runtime(file) => file.path().display().to_string(),
        Sink::Nowhere => "nowhere".to_owned(),
    };
    (place, state.recent.iter().cloned().collect())
}

fn system(path: &Path) -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    // Rather loses a message than blocks on a full log.
    socket.set_nonblocking(true).ok()?;
    socket.connect(path).ok()?;
    Some(socket)
}

impl LoggerState {
    /// Writes a message; drops it if that fails.
    fn say(&mut self, level: Level, text: &str) {
        let now = jiff::Zoned::now().strftime("%Y-%m-%d %H:%M:%S").to_string();
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(format!("{now} {level}: {text}").chars().take(MAX_RECENT).collect());
        self.sink.say(level, &now, text);
    }
}

impl Sink {
    fn say(&mut self, level: Level, now: &str, text: &str) {
        let pid = std::process::id();
        let line = || format!("{now} parext4[{pid}]: {level}: {text}\n");
        match self {
            Self::ErrorOutput => crate::error::say(text),
            Self::File(_, file) => {
                let _ = file.write_all(line().as_bytes());
            }
            Self::System(socket) => {
                let _ =
                    socket.send(format!("<{}>parext4[{pid}]: {text}", DAEMON | severity(level)).as_bytes());
            }
            Self::Runtime(file) => {
                let _ = file.append(line().as_bytes());
            }
            Self::Nowhere => {}
        }
    }
}

/// Returns the severity, as defined by syslog(3).
fn severity(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // The FUSE library logs some normal events as errors, such as an unmount by another
        // process.
        metadata.target().starts_with("parext4") && metadata.level() <= Level::Info
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            self.0.lock().say(record.level(), &record.args().to_string());
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_log_hears_what_syslog_says() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert!(system(&path).is_none());
        let heard = UnixDatagram::bind(&path).unwrap();
        Sink::System(system(&path).unwrap()).say(Level::Error, "now", "it burns");
        let mut bytes = [0; 100];
        let len = heard.recv(&mut bytes).unwrap();
        let expected = format!("<27>parext4[{}]: it burns", std::process::id());
        assert_eq!(str::from_utf8(&bytes[..len]).unwrap(), expected);
    }

    #[test]
    fn a_log_with_a_warning_or_an_error_is_kept() {
        let normal = "2026-01-01 00:00:00 parext4[1]: INFO: a.img is mounted on /mnt\n";
        assert!(has_normal_lines_only("") && has_normal_lines_only(&normal.repeat(2)));
        for line in
            ["2026-01-01 00:00:00 parext4[1]: ERROR: it burns: INFO: no\n", "the second line of a panic\n"]
        {
            assert!(!has_normal_lines_only(&[normal, line, normal].concat()), "{line}");
        }
    }
}
