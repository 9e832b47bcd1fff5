//! The log of a server: its error output until the starting command returns, then a file or the system's log.

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use anyhow::{Context, Result};
use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::Mutex;

/// The socket of the system's log.
const SYSLOG: &str = "/dev/log";
/// The facility of daemons, as defined by syslog(3).
const DAEMON: u8 = 3 << 3;

/// The destination of messages.
#[derive(Debug)]
enum Sink {
    ErrorOutput,
    File(File),
    System(UnixDatagram),
    /// Messages are dropped.
    Nowhere,
}

struct Logger(Mutex<Sink>);

static LOGGER: Logger = Logger(Mutex::new(Sink::ErrorOutput));

/// Opens a log to append to.
pub fn open(path: &Path) -> Result<File> {
    File::options().append(true).create(true).open(path).with_context(|| format!("log {}", path.display()))
}

/// Starts logging to `file`, or else to the error output.
pub fn start(file: Option<File>) {
    if let Some(file) = file {
        *LOGGER.0.lock() = Sink::File(file);
    }
    // Fails only if this was called before.
    let _ = log::set_logger(&LOGGER);
    log::set_max_level(LevelFilter::Info);
}

/// Switches from the error output to the system's log, because the starting command has returned.
pub fn leave_error_output() {
    let mut sink = LOGGER.0.lock();
    if matches!(*sink, Sink::ErrorOutput) {
        *sink = system(Path::new(SYSLOG)).map_or(Sink::Nowhere, Sink::System);
    }
}

fn system(path: &Path) -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    // Rather loses a message than blocks on a full log.
    socket.set_nonblocking(true).ok()?;
    socket.connect(path).ok()?;
    Some(socket)
}

impl Sink {
    /// Writes a message; drops it if that fails.
    fn say(&mut self, level: Level, text: &str) {
        let pid = std::process::id();
        match self {
            Self::ErrorOutput => eprintln!("parext4: {text}"),
            Self::File(file) => {
                let now = jiff::Zoned::now().strftime("%Y-%m-%d %H:%M:%S");
                let _ = file.write_all(format!("{now} parext4[{pid}]: {level}: {text}\n").as_bytes());
            }
            Self::System(socket) => {
                let _ =
                    socket.send(format!("<{}>parext4[{pid}]: {text}", DAEMON | severity(level)).as_bytes());
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
        // The FUSE library logs some normal events as errors, such as an unmount by another process.
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
        Sink::System(system(&path).unwrap()).say(Level::Error, "it burns");
        let mut bytes = [0; 100];
        let len = heard.recv(&mut bytes).unwrap();
        let expected = format!("<27>parext4[{}]: it burns", std::process::id());
        assert_eq!(str::from_utf8(&bytes[..len]).unwrap(), expected);
    }
}
