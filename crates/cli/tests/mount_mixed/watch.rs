//! Detects calls that hang: prints what every thread waits for, and aborts the connection to the
//! server, so that the kernel fails all calls instead of leaving threads that cannot be killed.
//! Also samples the memory of the servers.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parext4_mount::control;
use parking_lot::Mutex;
use rustix::fs::minor;
use testkit::slowest;

use crate::usage::Usage;

/// How often the watch checks.
const INTERVAL: Duration = Duration::from_millis(500);
/// Consecutive checks that one call may last, a minute. Checks are counted, not time, because no
/// check is made while the machine is stopped.
const LIMIT: u32 = 120;
/// Number of checks within which calls must return once the connection is aborted.
const GRACE: u32 = 20;

/// The connection of a mount to its server.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The kernel's number of the connection.
    number: String,
    server: u32,
    dir: PathBuf,
}

impl Connection {
    /// Returns the connection of the mount on `dir`.
    pub fn of(dir: &Path) -> Self {
        let device = std::fs::metadata(dir).unwrap().dev();
        let number = minor(device).to_string();
        let server = parext4_mount::report::report(dir).unwrap().mount.pid;
        control::waiting(&number).expect("a connection that can be aborted, should a call hang");
        Self { number, server, dir: dir.to_owned() }
    }

    fn abort(&self) {
        let aborted = control::abort(&self.number);
        say(&format!("aborting the connection of {}: {aborted:?}\n", self.dir.display()));
    }

    /// Unmounts when the process ends without cleaning up.
    fn detach(&self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.dir).output();
    }
}

/// Watches the calls of a number of threads. Stops when dropped.
pub struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    name: String,
    connections: Mutex<Vec<Connection>>,
    usage: Mutex<Vec<Usage>>,
    slots: Vec<Slot>,
    stop: AtomicBool,
    aborted: AtomicBool,
}

#[derive(Default)]
struct Slot {
    /// Incremented when a call starts and when it ends, so it is odd during a call.
    count: AtomicU64,
    call: Mutex<String>,
}

impl Watch {
    /// Watches `threads` threads that use these connections. `name` is the test that repeats the
    /// run.
    pub fn start(name: &str, connections: Vec<Connection>, threads: usize) -> Self {
        let slots = (0..threads).map(|_| Slot::default()).collect();
        let (stop, aborted) = (AtomicBool::new(false), AtomicBool::new(false));
        let usage = Mutex::new(connections.iter().map(|_| Usage::default()).collect());
        let connections = Mutex::new(connections);
        let shared = Arc::new(Shared { name: name.to_owned(), connections, usage, slots, stop, aborted });
        let watched = Arc::clone(&shared);
        let thread = std::thread::spawn(move || watched.watch());
        Self { shared, thread: Some(thread) }
    }

    /// Watches other connections from now on, because the volumes were mounted again. Asserts that
    /// the servers of the former ones did not grow, and returns their memory in words.
    pub fn reconnect(&self, connections: Vec<Connection>) -> String {
        let usage = connections.iter().map(|_| Usage::default()).collect();
        let former = {
            let mut current = self.shared.connections.lock();
            *current = connections;
            std::mem::replace(&mut *self.shared.usage.lock(), usage)
        };
        former.iter().for_each(|usage| usage.assert_plateau(&self.shared.name));
        former.iter().map(Usage::describe).collect::<Vec<_>>().join("; ")
    }

    /// Runs a call of a thread under the watch.
    pub fn call<R>(&self, thread: usize, name: impl FnOnce() -> String, call: impl FnOnce() -> R) -> R {
        let slot = &self.shared.slots[thread];
        *slot.call.lock() = name();
        // Relaxed: the counts order nothing.
        slot.count.fetch_add(1, Ordering::Relaxed);
        let result = slowest::request(call);
        slot.count.fetch_add(1, Ordering::Relaxed);
        assert!(!self.shared.aborted.load(Ordering::Relaxed), "{}: calls hung, see above", self.shared.name);
        result
    }
}

impl Shared {
    fn watch(&self) {
        // The last value of each thread, and the number of consecutive checks that saw it.
        let mut seen = vec![(0, 0); self.slots.len()];
        let mut grace = None;
        while !self.stop.load(Ordering::Relaxed) {
            std::thread::park_timeout(INTERVAL);
            self.sample();
            for (slot, seen) in self.slots.iter().zip(&mut seen) {
                let now = slot.count.load(Ordering::Relaxed);
                *seen = (now, if seen.0 == now { seen.1 + 1 } else { 1 });
            }
            let hung: Vec<usize> = (0..seen.len()).filter(|&nth| is_hung(seen[nth])).collect();
            grace = match grace {
                None if hung.is_empty() => None,
                None => {
                    self.tell(&hung);
                    self.aborted.store(true, Ordering::Relaxed);
                    self.connections.lock().iter().for_each(Connection::abort);
                    Some(GRACE)
                }
                Some(_) if hung.is_empty() => None,
                Some(0) => {
                    say(&format!("{}: calls do not return although the connection is aborted\n", self.name));
                    self.connections.lock().iter().for_each(Connection::detach);
                    std::process::abort();
                }
                Some(left) => Some(left - 1),
            };
        }
    }

    fn sample(&self) {
        let connections = self.connections.lock();
        for (connection, usage) in connections.iter().zip(&mut *self.usage.lock()) {
            usage.sample(connection.server);
        }
    }

    /// Prints which calls hang, and what the threads of this process and of the servers wait for.
    fn tell(&self, hung: &[usize]) {
        let mut text = format!("\n{}: calls have not returned for {:?}:\n", self.name, INTERVAL * LIMIT);
        for &nth in hung {
            let _ = writeln!(text, "  thread {nth}: {}", self.slots[nth].call.lock());
        }
        text += &threads(std::process::id());
        for connection in &*self.connections.lock() {
            let waiting = control::waiting(&connection.number);
            let _ = writeln!(text, "requests that the kernel waits for: {waiting:?}");
            text += &threads(connection.server);
        }
        say(&text);
    }
}

fn is_hung((count, checks): (u64, u32)) -> bool {
    count % 2 == 1 && checks > LIMIT
}

/// Describes what the threads of a process wait for in the kernel, grouped by kernel stack.
fn threads(pid: u32) -> String {
    let mut places = std::collections::BTreeMap::<String, Vec<String>>::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let stack: String = read("stack").lines().map(|line| format!("      {line}\n")).collect();
        let place = if stack.is_empty() { format!("      {}\n", read("wchan")) } else { stack };
        let name = format!("{}:{}", read("comm").trim(), task.file_name().to_string_lossy());
        places.entry(place).or_default().push(name);
    }
    let mut text = format!("process {pid}:\n");
    for (place, mut names) in places {
        let count = names.len();
        names.truncate(8);
        let _ = write!(text, "    {count} threads, as {}:\n{place}", names.join(" "));
    }
    text
}

/// Prints at once. `eprintln` does not: the test harness keeps its output until the test ends, and
/// a hanging test does not end.
fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
