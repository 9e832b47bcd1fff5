//! Runs the command `parext4` on an image in a temporary directory.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::served::Served;
use crate::tool;

/// A temporary directory with an image.
pub struct ScratchImage {
    // Ended before the directory is removed.
    served: Option<Served>,
    dir: tempfile::TempDir,
}

impl ScratchImage {
    /// Makes the directory without an image.
    pub fn empty() -> Self {
        Self { served: None, dir: tempfile::tempdir().unwrap() }
    }

    /// Makes an image with an empty volume by `parext4 mkfs`, on the server that the environment
    /// names.
    pub fn new(mkfs_options: &[&str]) -> Self {
        let mut scratch = Self::empty();
        scratch.served = Served::new(&scratch.image(), 64 << 20);
        let image = scratch.name();
        let mut arguments = vec!["mkfs", &image];
        // Multi-mount protection makes each open wait.
        arguments.extend(if scratch.served.is_some() { ["-O", "^mmp"] } else { ["--size", "64M"] });
        arguments.extend(mkfs_options);
        scratch.ok(&arguments);
        scratch
    }

    /// Returns a path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the path of the image.
    pub fn image(&self) -> PathBuf {
        self.path("test.img")
    }

    /// Returns the name of the image for commands: its path, or the URL of its server.
    pub fn name(&self) -> String {
        self.served.as_ref().map_or_else(|| text(&self.image()), Served::url)
    }

    /// Returns `IMAGE:` followed by a path in the image.
    pub fn inside(&self, path: &str) -> String {
        format!("{}:{path}", self.image().display())
    }

    /// Makes the image free for the next opener, after the process that had it open was killed. A
    /// cluster keeps the lock of a killed client until its watch expires.
    pub fn release(&self) {
        if let Some(Served::Rbd(_)) = self.served {
            self.ok(&["takeover", &self.name()]);
        }
    }

    /// Makes the file [`image`](Self::image) hold the bytes of the image, as a crash would leave
    /// them now.
    pub fn fetch(&self) {
        if let Some(served) = &self.served {
            served.fetch(&self.image());
        }
    }

    /// Runs the command, which must succeed without messages. Returns its output.
    pub fn ok(&self, arguments: &[impl AsRef<OsStr>]) -> String {
        success(&run(arguments))
    }

    /// Runs the command, which must fail with exit code 1 and one line of message. Returns the
    /// line.
    pub fn fails(&self, arguments: &[impl AsRef<OsStr>]) -> String {
        failure(&run(arguments))
    }

    /// Asserts that e2fsck finds no error in the image.
    pub fn fsck(&self) {
        self.fetch();
        let Some(output) = tool(Command::new("/usr/sbin/e2fsck").args(["-f", "-n"]).arg(self.image())) else {
            return;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Runs the command.
pub fn run(arguments: &[impl AsRef<OsStr>]) -> Output {
    Command::new(program()).args(arguments).output().unwrap()
}

/// Asserts that a command succeeded without messages. Returns its output.
pub fn success(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    assert_eq!(errors, "");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Asserts that a command failed with exit code 1 and one line of message. Returns the line.
pub fn failure(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.starts_with("parext4: ") && errors.lines().count() == 1, "{errors}");
    errors
}

/// Returns a path as a command line argument.
pub fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Returns the path of the program `parext4`, which cargo builds beside the directory of the test
/// programs.
pub fn program() -> PathBuf {
    let test = std::env::current_exe().expect("the path of the test program");
    test.ancestors().nth(2).expect("a build directory").join("parext4")
}
