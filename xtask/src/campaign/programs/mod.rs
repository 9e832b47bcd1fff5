//! Real programs on a mount, some of them with the server killed under them.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{Bench, Scope, remove};
use crate::debian::{self, Tool};
use crate::fuse::{self, Mounted};
use crate::report::Report;
use crate::sh::path;
use crate::{image, interrupt, workspace};

/// A program, and the scripts that use it. They run in the root of the mount; `$OUT` is a folder elsewhere, `$ROOT` the
/// sources of the project.
struct Program {
    name: &'static str,
    needs: &'static [Tool],
    size: &'static str,
    /// Belongs to each run of the tests.
    is_cheap: bool,
    script: &'static str,
    /// What finds everything in order after the script, which makes `$OUT/ready` when it is well under way, and the server
    /// have been killed.
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

/// Runs those programs whose names begin with one of `only`, if there are such; else all.
pub fn run_some(scope: Scope, only: &[String], report: &mut Report) -> Result<()> {
    if let Err(why) = fuse::check() {
        report.skip("mount-programs", &format!("{why:#}"));
        return Ok(());
    }
    let bench = Bench::new()?;
    let is_wanted = |program: &&Program| {
        (program.is_cheap || scope == Scope::Long)
            && (only.is_empty() || only.iter().any(|name| program.name.starts_with(name)))
    };
    for program in PROGRAMS.iter().filter(is_wanted) {
        let missing = debian::install(program.needs);
        if !missing.is_empty() {
            report.skip(program.name, &format!("programs are missing: {}", missing.join(" ")));
            continue;
        }
        for options in ["cache=kernel", "cache=writeback", "cache=direct"] {
            report.case(&format!("{}, {options}", program.name), || {
                let place = Place::new(&bench, program, options)?;
                let result = match program.check {
                    None => place.undisturbed(),
                    Some(check) => place.killed(check, scope.pick(1, 15)),
                };
                result.and_then(|()| image::check(&place.image).context("afterwards"))?;
                remove(&place.image)
            });
        }
    }
    Ok(())
}

/// Where a program works.
struct Place<'a> {
    bench: &'a Bench,
    program: &'a Program,
    options: String,
    image: PathBuf,
    /// Everybody may enter it: it has what the scripts put aside, and the mount.
    dir: TempDir,
}

impl<'a> Place<'a> {
    fn new(bench: &'a Bench, program: &'a Program, options: &str) -> Result<Self> {
        let image = bench.path("image");
        remove(&image)?;
        bench.parext4("mkfs").arg(&image).arg("--size").arg(program.size).run()?;
        let dir = tempfile::tempdir()?;
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755))?;
        for name in ["mount", "out"] {
            std::fs::create_dir(dir.path().join(name))?;
        }
        let allow_other = if debian::is_root() { "allow_other," } else { "" };
        Ok(Self { bench, program, options: format!("{allow_other}{options}"), image, dir })
    }

    fn mount(&self) -> Result<Mounted<'a>> {
        Mounted::new(self.bench, &self.image, &self.path("mount"), &self.options)
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

    /// Kills the server, and then the program, some seconds after that is well under way.
    fn killed(&self, check: &str, seconds: u64) -> Result<()> {
        let mounted = self.mount()?;
        let mut script = self.start(self.program.script)?;
        while !self.path("out/ready").exists() {
            ensure!(script.is_running()?, "the load has ended: {}", script.said()?);
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(Duration::from_secs(seconds));
        ensure!(script.is_running()?, "the load has ended: {}", script.said()?);
        kill(mounted, script)?;
        let mounted = self.mount().context("after the kill")?;
        self.start(check)?.succeed().context("after the kill")?;
        mounted.unmount()
    }
}

/// Kills the server and then the program.
fn kill(mounted: Mounted<'_>, script: Script) -> Result<()> {
    // Those that it has started stay behind when it ends by itself.
    let started = descendants(script.shell.id());
    thread::scope(|scope| {
        scope.spawn(|| {
            // The program is to see the server go first.
            thread::sleep(Duration::from_millis(200));
            kill_all(started);
            drop(script);
        });
        mounted.kill()
    })
}

/// A script. It and all that it has started are killed when this is dropped.
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

    /// The end of what it has printed.
    fn said(&self) -> Result<String> {
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
            bail!("{status}\n{}", self.said()?);
        }
        Ok(())
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // PostgreSQL's processes leave the group, and some wait for ever for others that are gone.
        kill_all(descendants(self.shell.id()));
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn kill_all(processes: Vec<Pid>) {
    for pid in processes {
        // Some are gone.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// The processes that a process has started, and those that they have.
fn descendants(pid: u32) -> Vec<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse::<u32>().ok());
    let pid_of = |child: u32| i32::try_from(child).ok().and_then(Pid::from_raw);
    children.flat_map(|child| pid_of(child).into_iter().chain(descendants(child))).collect()
}
