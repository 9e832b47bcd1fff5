//! Real programs on a mount, some of them with the server killed under them.

mod stressors;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::command::path;
use crate::debian::{self, Tool};
use crate::parext4_mount::Mounted;
use crate::report::Report;
use crate::scope::Scope;
use crate::testbed::{TestBed, remove};
use crate::{image, interrupt, parext4_mount, workspace};

/// A program, and the scripts that use it. They run in the root of the mount; `$OUT` is a folder
/// elsewhere, `$ROOT` the sources of the project.
struct Program {
    name: &'static str,
    needs: &'static [Tool],
    size: &'static str,
    /// True if each run of the tests includes the program.
    is_cheap: bool,
    script: &'static str,
    /// A script that checks the files after a kill of the server and of `script`. The kill follows
    /// soon after `script` creates `$OUT/ready`.
    check: Option<&'static str>,
}

const fn tool(program: &'static str, package: &'static str) -> Tool {
    Tool { program, package }
}

const GIT: Tool = tool("git", "git");
const SQLITE: &[Tool] = &[tool("python3", "python3"), tool("sqlite3", "sqlite3")];
const POSTGRES: &[Tool] = &[
    tool("initdb", "postgresql"),
    tool("pgbench", "postgresql"),
    tool("pg_amcheck", "postgresql"),
    tool("setpriv", "util-linux"),
];

const PROGRAMS: &[Program] = &[
    Program {
        name: "sqlite, write-ahead log, killed",
        needs: SQLITE,
        size: "64M",
        is_cheap: true,
        script: concat!("MODE=wal\n", include_str!("sqlite.sh")),
        check: Some(include_str!("sqlite-check.sh")),
    },
    Program {
        name: "sqlite, rollback journal, killed",
        needs: SQLITE,
        size: "64M",
        is_cheap: true,
        script: concat!("MODE=delete\n", include_str!("sqlite.sh")),
        check: Some(include_str!("sqlite-check.sh")),
    },
    Program {
        name: "git",
        needs: &[GIT],
        size: "512M",
        is_cheap: true,
        script: include_str!("git.sh"),
        check: None,
    },
    Program {
        name: "tar",
        needs: &[tool("tar", "tar")],
        size: "256M",
        is_cheap: true,
        script: include_str!("tar.sh"),
        check: None,
    },
    Program {
        name: "rsync",
        needs: &[tool("rsync", "rsync")],
        size: "256M",
        is_cheap: false,
        script: include_str!("rsync.sh"),
        check: None,
    },
    Program {
        name: "gcc",
        needs: &[tool("gcc", "gcc"), tool("ar", "binutils"), tool("python3", "python3")],
        size: "256M",
        is_cheap: false,
        script: include_str!("gcc.sh"),
        check: None,
    },
    Program {
        name: "fio",
        needs: &[tool("fio", "fio")],
        size: "1G",
        is_cheap: false,
        script: include_str!("fio.sh"),
        check: None,
    },
    Program {
        name: "fio, one file",
        needs: &[tool("fio", "fio")],
        size: "256M",
        is_cheap: false,
        script: include_str!("fio-one-file.sh"),
        check: None,
    },
    Program {
        name: "fio, each engine",
        needs: &[tool("fio", "fio")],
        size: "256M",
        is_cheap: false,
        script: include_str!("fio-engines.sh"),
        check: None,
    },
    Program {
        name: "stress-ng",
        needs: &[tool("stress-ng", "stress-ng")],
        size: "1G",
        is_cheap: false,
        script: include_str!("stress-ng.sh"),
        check: None,
    },
    Program {
        name: "qemu-img",
        needs: &[tool("qemu-img", "qemu-utils")],
        size: "1G",
        is_cheap: false,
        script: include_str!("qemu-img.sh"),
        check: None,
    },
    Program {
        name: "postgresql",
        needs: POSTGRES,
        size: "1G",
        is_cheap: false,
        script: concat!(include_str!("postgresql.sh"), include_str!("postgresql-run.sh")),
        check: None,
    },
    Program {
        name: "postgresql, killed",
        needs: POSTGRES,
        size: "1G",
        is_cheap: false,
        script: concat!(include_str!("postgresql.sh"), include_str!("postgresql-load.sh")),
        check: Some(concat!(include_str!("postgresql.sh"), include_str!("postgresql-check.sh"))),
    },
];

/// Runs the campaign.
pub fn run(scope: Scope, report: &mut Report) -> Result<()> {
    run_some(scope, &[], report)
}

/// Runs the programs whose names begin with an item of `only`, or all if `only` is empty.
pub fn run_some(scope: Scope, only: &[String], report: &mut Report) -> Result<()> {
    if let Err(why) = parext4_mount::check() {
        report.skip("mount-programs", &format!("{why:#}"));
        return Ok(());
    }
    let bed = TestBed::new()?;
    let is_chosen = |name: &str| only.is_empty() || only.iter().any(|start| name.starts_with(start));
    let is_wanted =
        |program: &&Program| (program.is_cheap || scope == Scope::Long) && is_chosen(program.name);
    let programs: Vec<_> = PROGRAMS.iter().filter(is_wanted).collect();
    for program in scope.first(&programs) {
        let missing = debian::install(program.needs);
        if !missing.is_empty() {
            report.skip(program.name, &format!("programs are missing: {}", missing.join(" ")));
            continue;
        }
        for options in scope.first(&["cache=kernel", "cache=writeback", "cache=direct"]) {
            report.case(&format!("{}, {options}", program.name), || {
                let image = bed.path("image");
                remove(&image)?;
                bed.parext4("mkfs").arg(&image).arg("--size").arg(program.size).run()?;
                Run::new(&bed, program, options, &image)?.run(scope.pick(1, 15), &|| Ok(()))?;
                image::check(&image).context("afterwards")?;
                remove(&image)
            });
        }
    }
    if scope == Scope::Long && is_chosen("stress-ng") {
        stressors::run(&bed, report)?;
    }
    Ok(())
}

/// Runs the program `name` on a mount of the volume `image`, which has space for it. If the program
/// is one that is killed, that is after `seconds`, and `release` then makes the storage forget the
/// killed server.
pub fn run_on(
    bed: &TestBed,
    name: &str,
    options: &str,
    image: &Path,
    seconds: u64,
    release: &dyn Fn() -> Result<()>,
) -> Result<()> {
    let program = PROGRAMS.iter().find(|program| program.name == name).context("no such program")?;
    let missing = debian::install(program.needs);
    ensure!(missing.is_empty(), "programs are missing: {}", missing.join(" "));
    Run::new(bed, program, options, image)?.run(seconds, release)
}

/// One run of a program on a mount.
struct Run<'a> {
    bed: &'a TestBed,
    program: &'a Program,
    options: String,
    image: PathBuf,
    /// Holds the mount and the output of the scripts. Programs of every user may enter it.
    dir: TempDir,
}

impl<'a> Run<'a> {
    fn new(bed: &'a TestBed, program: &'a Program, options: &str, image: &Path) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;
        for name in ["mount", "out"] {
            std::fs::create_dir(dir.path().join(name))?;
        }
        let allow_other = if debian::is_root() { "allow_other," } else { "" };
        Ok(Self { bed, program, options: format!("{allow_other}{options}"), image: image.into(), dir })
    }

    fn run(&self, seconds: u64, release: &dyn Fn() -> Result<()>) -> Result<()> {
        match self.program.check {
            None => self.undisturbed(),
            Some(check) => self.killed(check, seconds, release),
        }
    }

    fn mount(&self) -> Result<Mounted<'a>> {
        Mounted::new(self.bed, &self.image, &self.path("mount"), &self.options)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start(&self, script: &str) -> Result<Script> {
        Script::start(script, &self.path("mount"), &self.path("out"))
    }

    fn undisturbed(&self) -> Result<()> {
        let mounted = self.mount()?;
        self.start(self.program.script)?.succeed()?;
        mounted.unmount()
    }

    /// Kills the server, and then the program, `seconds` after the program has reported that it is
    /// ready.
    fn killed(&self, check: &str, seconds: u64, release: &dyn Fn() -> Result<()>) -> Result<()> {
        let mounted = self.mount()?;
        let mut script = self.start(self.program.script)?;
        while !self.path("out/ready").exists() {
            ensure!(script.is_running()?, "the load has ended: {}", script.output_end()?);
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(Duration::from_secs(seconds));
        ensure!(script.is_running()?, "the load has ended: {}", script.output_end()?);
        kill(mounted, script)?;
        release()?;
        let mounted = self.mount().context("after the kill")?;
        self.start(check)?.succeed().context("after the kill")?;
        mounted.unmount()
    }
}

/// Kills the server and then the program.
fn kill(mounted: Mounted<'_>, script: Script) -> Result<()> {
    // Listed now: when the shell has exited, nothing leads to the processes that it has started.
    let started = descendants(script.shell.id());
    thread::scope(|scope| {
        scope.spawn(|| {
            // The program must lose its server first.
            thread::sleep(Duration::from_millis(200));
            kill_all(started);
            drop(script);
        });
        mounted.kill()
    })
}

/// A running script. Drop kills it and all processes that it has started.
struct Script {
    shell: Child,
    log: PathBuf,
}

impl Script {
    fn start(script: &str, dir: &Path, out: &Path) -> Result<Self> {
        let log = out.join("log");
        let output = std::fs::File::create(&log)?;
        let mut command = Command::new("sh");
        command
            .args(["-e", "-u", "-c", script])
            .current_dir(dir)
            .env("OUT", out)
            .env("ROOT", workspace::root());
        command.env("PATH", path()).env("LC_ALL", "C.UTF-8").env("HOME", out);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        Ok(Self { shell: command.spawn().context("cannot start sh")?, log })
    }

    fn is_running(&mut self) -> Result<bool> {
        interrupt::check()?;
        Ok(self.shell.try_wait()?.is_none())
    }

    /// Returns the last 30 lines of its output.
    fn output_end(&self) -> Result<String> {
        let text = String::from_utf8_lossy(&std::fs::read(&self.log)?).into_owned();
        let lines: Vec<_> = text.lines().collect();
        Ok(lines[lines.len().saturating_sub(30)..].join("\n"))
    }

    fn succeed(mut self) -> Result<()> {
        while self.is_running()? {
            thread::sleep(Duration::from_millis(20));
        }
        let status = self.shell.wait()?;
        if !status.success() {
            bail!("{status}\n{}", self.output_end()?);
        }
        Ok(())
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // PostgreSQL's processes leave the process group, and some wait for ever for processes that
        // were killed.
        kill_all(descendants(self.shell.id()));
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn kill_all(processes: Vec<Pid>) {
    for pid in processes {
        // A process that has exited already is no error.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The children of a process, their children, and so on.
fn descendants(pid: u32) -> Vec<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse::<u32>().ok());
    let pid_of = |child: u32| i32::try_from(child).ok().and_then(Pid::from_raw);
    children.flat_map(|child| pid_of(child).into_iter().chain(descendants(child))).collect()
}
