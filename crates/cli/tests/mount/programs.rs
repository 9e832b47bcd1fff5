//! Real programs on a mount.

use std::path::Path;
use std::process::Command;

use testkit::command::text;
use testkit::fuse_mount::{FuseMount, tool};

/// Runs a shell script in a directory. Prints a notice and returns `None` if a program that it
/// needs is not installed.
fn run(dir: &Path, needs: &[&str], script: &str) -> Option<String> {
    for program in needs {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
        if !found.status.success() {
            testkit::skipped(&format!("{program} is not installed"));
            return None;
        }
    }
    tool(Command::new("sh").args(["-e", "-c", script]).current_dir(dir))
}

fn with_each_cache(needs: &[&str], script: &str) {
    for options in ["cache=kernel", "cache=writeback", "cache=direct"] {
        let Some(fuse) = FuseMount::mounted(&["--block-size", "4096"], options) else { return };
        if run(fuse.dir(), needs, script).is_none() {
            return;
        }
        fuse.finish();
    }
}

#[test]
fn git_keeps_a_repository() {
    with_each_cache(
        &["git"],
        "export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
        git init -q here; cd here
        for n in $(seq 12); do mkdir -p d$((n % 5)); seq $n 200 > d$((n % 5))/f$n; git add .; git commit -qm $n; done
        git gc -q; git fsck --strict
        git clone -q . ../there; cd ../there; test -z \"$(git status --porcelain)\"
        diff -r -x .git . ../here",
    );
}

#[test]
fn tar_extracts_its_archive() {
    with_each_cache(
        &["tar"],
        "mkdir a; cd a; for n in $(seq 300); do seq $n > f$n; ln f$n h$n; ln -s f$n s$n; done; mkfifo p
        truncate -s 1M sparse; cd ..
        tar cf a.tar a; mkdir b; tar xf a.tar -C b; diff -r -x p --no-dereference a b/a; test -p b/a/p
        test $(stat -c %h b/a/f7) = 2; tar df a.tar",
    );
}

#[test]
fn sqlite_commits_in_both_modes() {
    for mode in ["wal", "delete"] {
        with_each_cache(
            &["python3"],
            &format!(
                "python3 -c \"
import sqlite3
c = sqlite3.connect('db')
c.execute('pragma journal_mode={mode}')
c.execute('create table t(a, b)')
for n in range(40):
    c.execute('insert into t values(?, ?)', (n, 'x' * n * 50))
    c.commit()
c.execute('delete from t where a % 3 = 0')
c.commit()
assert c.execute('pragma integrity_check').fetchone() == ('ok',)
\""
            ),
        );
    }
}

/// Processes concurrently create, rename and remove the same names. Afterwards all names that are
/// left can be removed.
#[test]
fn many_processes_change_the_same_names() {
    let script = "for n in $(seq 60); do
            mkdir -p d$((n % 3)) 2>/dev/null; (echo $0 > d$((n % 3))/f$((n % 7))) 2>/dev/null
            mv d$((n % 3))/f$((n % 7)) d$((n % 2))/g$((n % 5)) 2>/dev/null
            ln d$((n % 3))/f$((n % 7)) h$((n % 11)) 2>/dev/null; rm -f h$((n % 9)); rmdir d$((n % 3)) 2>/dev/null
            ls -lR > /dev/null 2>&1
        done; true";
    for options in ["cache=kernel", "cache=direct,threads=1"] {
        let Some(fuse) = FuseMount::mounted(&[], options) else { return };
        let start = |n: u32| {
            Command::new("sh").args(["-c", script, &n.to_string()]).current_dir(fuse.dir()).spawn().unwrap()
        };
        let processes: Vec<_> = (0..8).map(start).collect();
        for mut process in processes {
            assert!(process.wait().unwrap().success());
        }
        fuse.umount();
        fuse.scratch().fsck();
        fuse.mount(options);
        tool(Command::new("rm").args([
            "-rf",
            &text(&fuse.path("d0")),
            &text(&fuse.path("d1")),
            &text(&fuse.path("d2")),
        ]));
        fuse.finish();
    }
}
