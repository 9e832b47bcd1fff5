//! Running the program, and others' programs, on images in a temporary directory.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A temporary directory with an image in it.
pub struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    /// No image.
    pub fn empty() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// An empty volume.
    pub fn new(mkfs_options: &[&str]) -> Self {
        let bench = Self::empty();
        let image = text(&bench.image());
        let mut arguments = vec!["mkfs", &image, "--size", "64M"];
        arguments.extend(mkfs_options);
        bench.ok(&arguments);
        bench
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn image(&self) -> PathBuf {
        self.path("test.img")
    }

    /// `IMAGE:` and a path in it.
    pub fn inside(&self, path: &str) -> String {
        format!("{}:{path}", self.image().display())
    }

    /// Runs the program, which must succeed, and returns what it prints.
    pub fn ok(&self, arguments: &[impl AsRef<OsStr>]) -> String {
        let output = run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", output.status);
        assert_eq!(errors, "");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs the program, which must fail with exit code 1 and one line, which it returns.
    pub fn fails(&self, arguments: &[impl AsRef<OsStr>]) -> String {
        let output = run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.starts_with("parext4: ") && errors.lines().count() == 1, "{errors}");
        errors
    }

    /// e2fsck finds nothing.
    pub fn fsck(&self) {
        let output = match Command::new("/usr/sbin/e2fsck").args(["-f", "-n"]).arg(self.image()).output() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                eprintln!("SKIPPED: e2fsck is not installed");
                return;
            }
            output => output.unwrap(),
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

/// Runs the program.
pub fn run(arguments: &[impl AsRef<OsStr>]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_parext4")).args(arguments).output().unwrap()
}

/// A path as an argument.
pub fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
