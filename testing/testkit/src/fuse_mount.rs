//! Mounts an image with `parext4 mount`.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::command::{ScratchImage, program, run, text};
pub use crate::poll::until;
use crate::skipped;

/// Time between two checks whether the work on a mount has ended.
const WATCH: Duration = Duration::from_millis(500);
/// Number of checks after which the work counts as hung: at least five minutes. On an idle machine
/// the longest work takes seconds.
const WATCHES: u32 = 600;

/// What `umount` says if another mount namespace holds the volume.
const HELD: &str = "the volume is still held by ";

/// An image, and a directory on which it can be mounted; unmounted when dropped.
pub struct FuseMount {
    scratch: ScratchImage,
    dir: PathBuf,
}

impl FuseMount {
    /// Makes an image. `None`, after a call of [`skipped`], if FUSE cannot be used.
    pub fn new(mkfs_options: &[&str]) -> Option<Self> {
        if File::options().read(true).write(true).open("/dev/fuse").is_err() {
            skipped("/dev/fuse cannot be used");
            return None;
        }
        let scratch = ScratchImage::new(mkfs_options);
        let dir = scratch.path("mount");
        std::fs::create_dir(&dir).unwrap();
        Some(Self { scratch, dir })
    }

    /// Makes an image and mounts it with the given options.
    pub fn mounted(mkfs_options: &[&str], options: &str) -> Option<Self> {
        let fuse = Self::new(mkfs_options)?;
        fuse.mount(options);
        Some(fuse)
    }

    /// Returns the image.
    pub fn scratch(&self) -> &ScratchImage {
        &self.scratch
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns a path below the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns the arguments of the command that mounts the image.
    pub fn mount_command(&self, options: &str) -> Vec<String> {
        ["mount", "-o", options, &self.scratch.name(), &text(&self.dir)].map(str::to_owned).to_vec()
    }

    /// Mounts the image.
    pub fn mount(&self, options: &str) {
        self.scratch.ok(&self.mount_command(options));
    }

    /// Starts the server in the foreground and waits until it has mounted.
    pub fn serve(&self, options: &str) -> Child {
        let mut arguments = self.mount_command(options);
        arguments.insert(1, "--foreground".to_owned());
        let mut command = Command::new(program());
        let server = command.args(arguments).stdout(Stdio::null()).spawn().unwrap();
        assert!(until(|| self.is_mounted()), "not mounted");
        server
    }

    /// Runs `work`. If it hangs, aborts the FUSE connection after five minutes, so that every call
    /// on the mount fails, and panics.
    pub fn watched<T>(&self, work: impl FnOnce() -> T) -> T {
        let device = std::fs::metadata(&self.dir).unwrap().dev();
        let connection = rustix::fs::minor(device).to_string();
        let (over, is_over) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let watchdog = scope.spawn(move || {
                let is_running = |_| is_over.recv_timeout(WATCH) == Err(mpsc::RecvTimeoutError::Timeout);
                let hangs = (0..WATCHES).all(is_running);
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

    /// Returns true if the image is mounted.
    pub fn is_mounted(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        mounts.lines().any(|line| line.split(' ').nth(1) == self.dir.to_str())
    }

    /// Unmounts the image.
    pub fn umount(&self) {
        let output = umount(&self.dir);
        assert!(output.status.success(), "{}", errors(&output));
        self.assert_ended(&errors(&output));
    }

    /// Unmounts the image, of which the server may have refused data that the kernel wrote back,
    /// for one of `reasons`.
    pub fn umount_after_refusals(&self, reasons: &[&str]) {
        let output = umount(&self.dir);
        let said = errors(&output);
        assert!(output.status.success() || reasons.iter().any(|reason| said.contains(reason)), "{said}");
        self.assert_ended(&said);
    }

    /// Asserts that the image is not mounted. If `umount` has said that another mount namespace
    /// holds the volume, waits for the server to end: a test that makes a namespace detaches the
    /// copies of the mounts of other tests first.
    fn assert_ended(&self, said: &str) {
        assert!(!self.is_mounted());
        let is_closed =
            || File::open(self.scratch.image()).is_ok_and(|image| image.try_lock_shared().is_ok());
        assert!(!said.contains(HELD) || until(is_closed), "{said}");
    }

    /// Unmounts the image; the command must fail because changes may be lost. Returns the line of
    /// message.
    pub fn umount_loses_changes(&self) -> String {
        let output = umount(&self.dir);
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        self.assert_ended(&said);
        let error = said.lines().filter(|line| !line.contains(HELD)).collect::<Vec<_>>().join("\n");
        assert!(error.starts_with("parext4: ") && error.lines().count() == 1, "{error}");
        assert!(error.contains("is unmounted, but data that was not synced may be lost"), "{error}");
        error
    }

    /// Unmounts the image, and asserts that e2fsck finds no error.
    pub fn finish(self) {
        self.umount();
        self.scratch.fsck();
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        if self.is_mounted() {
            let output = run(&["umount", "--lazy", &text(&self.dir)]);
            assert!(output.status.success() || std::thread::panicking(), "{}", errors(&output));
        }
    }
}

/// Unmounts a directory, and returns what the command printed. Retries while another test is
/// starting a program: between fork and exec, the child still holds copies of this process's files,
/// and with them the mount.
pub fn umount(dir: &Path) -> Output {
    let mut output = None;
    until(|| {
        let attempt = run(&["umount", &text(dir)]);
        let is_over = !errors(&attempt).contains("in use");
        output = Some(attempt);
        is_over
    });
    output.expect("at least one attempt was made")
}

/// Start of each script of [`in_mount_namespace`]: detaches the copies of the mounts of all tests.
/// A copy keeps a volume in use after its unmount, so that the server of another test would run
/// until the script has ended.
const DETACH_COPIES: &str = r#"
while read -r _ mount _; do
    case "$mount" in */.tmp*/*) umount -c -i -l "$mount" ;; esac
done < /proc/mounts
"#;

/// Returns a command that runs a script of sh(1) in a mount namespace of its own. The arguments
/// that the caller adds are the script's.
pub fn in_mount_namespace(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c"]);
    command.arg(format!("{DETACH_COPIES}{script}")).arg("sh");
    command
}

/// Returns a command that runs a program as another user.
pub fn as_user(user: u32, program: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={user}")]);
    command.args(["--clear-groups", "--"]).args(program);
    command
}

/// Returns what a program wrote to standard error.
pub fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a program, which must succeed, and returns its output. `None`, after a call of [`skipped`],
/// if it is not installed.
pub fn tool(command: &mut Command) -> Option<String> {
    let output = crate::tool(command)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {said}{}", errors(&output));
    Some(said)
}
