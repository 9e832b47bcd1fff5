//! What POSIX has to say of names and attributes, after the subjects of pjdfstest: each case of the tables in `cases` is
//! done on a mount and on the kernel's ext4, as root and as somebody else, and must come to the same.
//!
//! A line of a table is a case: what root sets up, `|`, and what is done then, all in a directory of its own. Operations
//! are separated by `;` and are in `operation.rs`. A line with `{a,b}` stands for one with each of them. A line that begins
//! with `~` may come to something else through FUSE; the comment above it says why.

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
use testkit::fuse_mount::Bed;
use testkit::kernel_mount::Kernel;

/// Who does what a case is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Actor {
    Root,
    /// Without privileges, and in one more group than their own.
    User,
}

const USER: u32 = 65534;
const ALSO_GROUP: u32 = 1000;
const ACTORS: [Actor; 2] = [Actor::Root, Actor::User];

impl Actor {
    /// Makes the calling thread act as this one, for ever.
    fn enter(self) {
        if self == Self::User {
            let (uid, gid) = (Uid::from_raw(USER), Gid::from_raw(USER));
            set_thread_groups(&[gid, Gid::from_raw(ALSO_GROUP)]).unwrap();
            set_thread_res_gid(gid, gid, gid).unwrap();
            set_thread_res_uid(uid, uid, uid).unwrap();
        }
    }
}

/// What cases came to on one side, as one actor.
struct Done {
    actor: Actor,
    root: PathBuf,
    /// What things looked like before, by case.
    before: Vec<Snapshot>,
    /// What its operations came to, by case.
    outcomes: Vec<Vec<Outcome>>,
}

impl Done {
    /// Does all cases below a root.
    fn new(root: &Path, cases: &[Case], actor: Actor) -> Self {
        let mut done = Self { actor, root: root.to_owned(), before: Vec::new(), outcomes: Vec::new() };
        for (nth, case) in cases.iter().enumerate() {
            case.set_up(&done.dir(nth));
        }
        // Later than what was set up, by any clock.
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

    /// What a case has left, as it is seen now.
    fn left(&self, nth: usize) -> Vec<String> {
        self.before[nth].compare(&Snapshot::take(&self.dir(nth)))
    }

    /// Prints each difference from what the kernel has done, and returns how many there are that FUSE is no reason for.
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

/// How many differences there are, at once and when it is mounted again.
fn differences(options: &str, cases: &[Case]) -> usize {
    let options = format!("allow_other,dev,suid,noatime,{options}");
    let Some(kernel) = Kernel::mounted(&["-b", "1024"], "noatime") else { return 0 };
    let Some(bed) = Bed::mounted(&["--block-size", "1024"], &options) else { return 0 };
    for dir in [bed.bench().path("."), kernel.path().join("..")] {
        run_as_root("chmod . 755", &dir);
    }
    let done =
        ACTORS.map(|actor| (Done::new(bed.dir(), cases, actor), Done::new(&kernel.path(), cases, actor)));
    let count = |when: &str| -> usize {
        done.iter().map(|(ours, kernel)| ours.differences(kernel, cases, when)).sum()
    };
    let mut differences = count(&options);
    bed.umount();
    bed.bench().fsck();
    bed.mount(&options);
    differences += count(&format!("{options}, mounted again"));
    bed.finish();
    println!("{options}: {} cases, {differences} differences", cases.len() * ACTORS.len());
    differences
}

#[test]
fn operations_come_to_what_the_kernel_makes_of_them() {
    umask(Mode::empty());
    let cases = table::all();
    let differences: usize = ["cache=kernel", "cache=writeback", "cache=direct"]
        .map(|options| differences(options, &cases))
        .iter()
        .sum();
    assert_eq!(differences, 0);
}
