//! POSIX semantics of names and attributes, by the subjects of pjdfstest. Each case of the tables
//! in `cases` runs on a mount and on the kernel's ext4, as root and as another user, and must have
//! the same results.
//!
//! A line of a table is a case, which runs in its own directory: the setup by root, `|`, and the
//! tested operations. Operations are separated by `;` and are in `operation.rs`. A line with
//! `{a,b}` stands for one line with each choice. A line that starts with `~` may have another
//! result through FUSE; the comment above it gives the reason.

mod operation;
mod snapshot;
mod table;

use std::path::{Path, PathBuf};
use std::time::Duration;

use operation::{Outcome, run_as_root};
use rustix::fs::Mode;
use rustix::process::umask;
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use snapshot::Snapshot;
use table::Case;
use testkit::fuse_mount::FuseMount;
use testkit::kernel_mount::KernelMount;

/// The user that runs the tested operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Actor {
    Root,
    /// A user without privileges, with one supplementary group.
    User,
}

const USER: u32 = 65534;
const ALSO_GROUP: u32 = 1000;
const ACTORS: [Actor; 2] = [Actor::Root, Actor::User];

impl Actor {
    /// Makes the calling thread act as this user for the rest of its life.
    fn enter(self) {
        if self == Self::User {
            let (uid, gid) = (Uid::from_raw(USER), Gid::from_raw(USER));
            set_thread_groups(&[gid, Gid::from_raw(ALSO_GROUP)]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
        }
    }
}

/// The results of all cases on one side, as one user.
struct Done {
    actor: Actor,
    root: PathBuf,
    /// The snapshot before the operations, by case.
    before: Vec<Snapshot>,
    /// The results of the operations, by case.
    outcomes: Vec<Vec<Outcome>>,
}

impl Done {
    /// Runs all cases below a root.
    fn new(root: &Path, cases: &[Case], actor: Actor) -> Self {
        let mut done = Self { actor, root: root.to_owned(), before: Vec::new(), outcomes: Vec::new() };
        for (nth, case) in cases.iter().enumerate() {
            case.set_up(&done.dir(nth));
        }
        // Later than the setup, by any clock.
        std::thread::sleep(Duration::from_millis(50));
        done.before = (0..cases.len()).map(|nth| Snapshot::take(&done.dir(nth))).collect();
        let act = || {
            actor.enter();
            cases.iter().enumerate().map(|(nth, case)| case.act(&done.dir(nth))).collect::<Vec<_>>()
        };
        done.outcomes = std::thread::scope(|scope| scope.spawn(act).join().unwrap());
        done
    }

    fn dir(&self, nth: usize) -> PathBuf {
        self.root.join(format!("{:?}{nth}", self.actor))
    }

    /// Describes the current state that a case has left.
    fn left(&self, nth: usize) -> Vec<String> {
        self.before[nth].compare(&Snapshot::take(&self.dir(nth)))
    }

    /// Prints each difference from the kernel's ext4, and returns the number of differences that
    /// FUSE does not explain.
    fn differences(&self, kernel: &Self, cases: &[Case], when: &str) -> usize {
        let differs = |(nth, case): (usize, &Case)| {
            let (left, expected) = (self.left(nth), kernel.left(nth));
            if self.outcomes[nth] == kernel.outcomes[nth] && left == expected {
                return 0;
            }
            let reason = if case.may_differ { ", as FUSE has it" } else { "" };
            println!("{}, as {:?}, {when}{reason}:", case.line, self.actor);
            println!("    {:?}, the kernel {:?}", self.outcomes[nth], kernel.outcomes[nth]);
            left.iter()
                .filter(|line| !expected.contains(line))
                .for_each(|line| println!("    left:       {line}"));
            expected
                .iter()
                .filter(|line| !left.contains(line))
                .for_each(|line| println!("    the kernel: {line}"));
            usize::from(!case.may_differ)
        };
        cases.iter().enumerate().map(differs).sum()
    }
}

/// Returns the number of differences, at once and after mounting again.
fn differences(options: &str, cases: &[Case]) -> usize {
    let options = format!("allow_other,dev,suid,noatime,{options}");
    let Some(kernel) = KernelMount::mounted(&["-b", "1024"], "noatime") else { return 0 };
    let Some(fuse) = FuseMount::mounted(&["--block-size", "1024"], &options) else { return 0 };
    for dir in [fuse.scratch().path("."), kernel.path().join("..")] {
        run_as_root("chmod . 755", &dir);
    }
    let done =
        ACTORS.map(|actor| (Done::new(fuse.dir(), cases, actor), Done::new(&kernel.path(), cases, actor)));
    let count = |when: &str| -> usize {
        done.iter().map(|(ours, kernel)| ours.differences(kernel, cases, when)).sum()
    };
    let mut differences = count(&options);
    fuse.umount();
    fuse.scratch().fsck();
    fuse.mount(&options);
    differences += count(&format!("{options}, mounted again"));
    fuse.finish();
    println!("{options}: {} cases, {differences} differences", cases.len() * ACTORS.len());
    differences
}

#[test]
fn operations_have_the_same_results_as_with_the_kernel() {
    umask(Mode::empty());
    let cases = table::all();
    let differences: usize = ["cache=kernel", "cache=writeback", "cache=direct"]
        .map(|options| differences(options, &cases))
        .iter()
        .sum();
    assert_eq!(differences, 0);
}
