//! Line coverage: of the workspace by all tests, and of the formats by the inputs of the fuzz
//! targets.
//!
//! The compiler instruments the programs (`-Cinstrument-coverage`); each run adds its counts to
//! profiles, and llvm-cov turns them into lines. Programs that are killed, such as servers of the
//! campaigns, leave no counts.

mod lines;
mod llvm;
mod modules;
mod programs;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::Result;

use crate::cargo_test;
use crate::command::Cmd;
use crate::report::Report;
use crate::workspace::{cargo, root, target};

use llvm::Llvm;
pub use modules::Floor;
pub use programs::executables;

/// Percent of the lines of each of these modules that the tests run.
const FLOORS: &[Floor] = &[
    Floor { module: "allocator", percent: 90.0 },
    Floor { module: "extent_map", percent: 90.0 },
    Floor { module: "journal", percent: 90.0 },
    Floor { module: "mount", percent: 90.0 },
    Floor { module: "namespace", percent: 90.0 },
    Floor { module: "page_cache", percent: 90.0 },
    Floor { module: "rangelock", percent: 90.0 },
];

/// The tests of a workspace, in the profile that the engine's tests use.
const TESTS: &str = "test --workspace --profile stress --no-fail-fast --lib --bins --tests";

/// The programs of another user cannot add to the profiles of this one, and say so, where this test
/// expects one line only.
const SKIPPED: &str = "permission_is_denied_by_name";

/// Runs all tests, prints the coverage of each module, and fails below its floor.
pub fn tests(report: &mut Report) -> Result<()> {
    let coverage = Coverage::new("tests")?;
    let programs = executables(coverage.build(cargo(TESTS), "").args("--no-run --message-format=json"))?;
    cargo_test::run(coverage.build(cargo(TESTS), "").args("-- --skip").arg(SKIPPED), "coverage", report)?;
    coverage.report(&programs, FLOORS, report)
}

/// The profiles of one set of programs.
pub struct Coverage {
    llvm: Llvm,
    folder: PathBuf,
}

impl Coverage {
    /// Finds the tools, and begins without counts. `name` is that of the set.
    ///
    /// # Errors
    /// If LLVM's tools are missing and cannot be installed.
    pub fn new(name: &str) -> Result<Self> {
        let folder = target().join("coverage").join(name);
        let profiles = folder.join("profiles");
        if profiles.exists() {
            fs::remove_dir_all(&profiles)?;
        }
        fs::create_dir_all(&profiles)?;
        // Tests run programs as other users, too.
        fs::set_permissions(&profiles, Permissions::from_mode(0o777))?;
        Ok(Self { llvm: Llvm::find()?, folder })
    }

    /// Has a cargo command build instrumented programs, also with other `flags`, and the programs
    /// that it runs add counts.
    pub fn build(&self, command: Cmd, flags: &str) -> Cmd {
        self.run(command)
            .env("RUSTFLAGS", format!("-Cinstrument-coverage {flags}"))
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_TARGET_DIR", self.folder.join("build"))
    }

    /// Has an instrumented program add counts.
    pub fn run(&self, command: Cmd) -> Cmd {
        // Processes of one program share up to four files.
        command.env("LLVM_PROFILE_FILE", self.folder.join("profiles").join("%4m.profraw"))
    }

    /// Prints the coverage of each module by the counts so far. A module below its floor is a
    /// failure.
    pub fn report(&self, programs: &[PathBuf], floors: &[Floor], report: &mut Report) -> Result<()> {
        let profile = self.folder.join("profile");
        self.llvm.merge(&self.folder.join("profiles"), &profile)?;
        let files = lines::of_files(&self.llvm.tracefile(&profile, programs)?, root())?;
        let modules = modules::sum(&files);
        modules.print();
        floors.iter().for_each(|floor| report.case(floor.module, || modules.check(floor)));
        Ok(())
    }
}
