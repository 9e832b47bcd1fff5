//! An image and a directory to mount it on.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::common::{Bench, run, text};

/// A call on a mount that takes longer counts as a hang.
const HANGS: Duration = Duration::from_secs(60);

/// An image that is or can be mounted; unmounted in the end.
pub struct Bed {
    bench: Bench,
    dir: PathBuf,
}

impl Bed {
    /// `None`, with a loud word, if nothing can be mounted here.
    pub fn new(mkfs_options: &[&str]) -> Option<Self> {
        if std::fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
            eprintln!("SKIPPED: /dev/fuse cannot be used");
            return None;
        }
        let bench = Bench::new(mkfs_options);
        let dir = bench.path("mount");
        std::fs::create_dir(&dir).unwrap();
        Some(Self { bench, dir })
    }

    /// An image that is mounted with the given options.
    pub fn mounted(mkfs_options: &[&str], options: &str) -> Option<Self> {
        let bed = Self::new(mkfs_options)?;
        bed.mount(options);
        Some(bed)
    }

    pub fn bench(&self) -> &Bench {
        &self.bench
    }

    /// Where the image is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A path below that.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The command that mounts the image.
    pub fn mount_command(&self, options: &str) -> Vec<String> {
        ["mount", "-o", options, &text(&self.bench.image()), &text(&self.dir)].map(str::to_owned).to_vec()
    }

    pub fn mount(&self, options: &str) {
        self.bench.ok(&self.mount_command(options));
    }

    /// Starts the server in the foreground and waits until it has mounted.
    pub fn serve(&self, options: &str) -> Child {
        let mut arguments = self.mount_command(options);
        arguments.insert(1, "--foreground".to_owned());
        let mut command = Command::new(env!("CARGO_BIN_EXE_parext4"));
        let server = command.args(arguments).stdout(Stdio::null()).spawn().unwrap();
        assert!(until(|| self.is_mounted()), "not mounted");
        server
    }

    /// Runs `work`. Should that hang, aborts the connection after a minute, so that every call on the mount fails, and
    /// then fails.
    pub fn watched<T>(&self, work: impl FnOnce() -> T) -> T {
        let device = std::fs::metadata(&self.dir).unwrap().dev();
        let connection = rustix::fs::minor(device).to_string();
        let (over, is_over) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let watchdog = scope.spawn(move || {
                let hangs = is_over.recv_timeout(HANGS) == Err(mpsc::RecvTimeoutError::Timeout);
                if hangs {
                    parext4_mount::control::abort(&connection).unwrap();
                }
                hangs
            });
            let done = work();
            drop(over);
            assert!(!watchdog.join().unwrap(), "the mount hung until its connection was aborted");
            done
        })
    }

    pub fn is_mounted(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.lines().any(|line| line.split(' ').nth(1) == self.dir.to_str())
    }

    /// Another test may just be starting a program: until that has replaced the forked process, it holds this
    /// process's files, and so the mount.
    pub fn umount(&self) {
        let unmounted = until(|| {
            let output = run(&["umount", &text(&self.dir)]);
            let busy = errors(&output).contains("in use");
            assert!(output.status.success() || busy, "{}", errors(&output));
            !busy
        });
        assert!(unmounted && !self.is_mounted());
    }

    /// Unmounts, and e2fsck finds nothing.
    pub fn finish(self) {
        self.umount();
        self.bench.fsck();
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if self.is_mounted() {
            let output = run(&["umount", "--lazy", &text(&self.dir)]);
            if !output.status.success() && !std::thread::panicking() {
                panic!("{}", errors(&output));
            }
        }
    }
}

/// Waits up to a minute until `is_so` returns true.
pub fn until(is_so: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// A command that another user runs.
pub fn as_user(user: u32, program: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={user}")]);
    command.args(["--clear-groups", "--"]).args(program);
    command
}

/// What a program prints on its error output.
pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a tool, which must succeed. `None`, with a loud word, if it is not there.
pub fn tool(command: &mut Command) -> Option<String> {
    let Ok(output) = command.env("LC_ALL", "C").output() else {
        eprintln!("SKIPPED: {} is not installed", command.get_program().to_string_lossy());
        return None;
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {said}{}", errors(&output));
    Some(said)
}
