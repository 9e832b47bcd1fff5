//! Sources without a size: standard input, and files that the kernel makes up. `put` that is
//! interrupted while it waits for input.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use testkit::command::{ScratchImage, program, text};
use testkit::tool;

use crate::archives::header;

fn start(arguments: &[&str]) -> Child {
    let mut put = Command::new(program());
    put.arg("put").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    put.spawn().unwrap()
}

#[test]
fn standard_input_becomes_a_file() {
    let scratch = ScratchImage::new(&[]);
    let bytes: Vec<u8> = (0..5_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
    for (name, len) in [("/empty", 0), ("/one", 1), ("/large", bytes.len())] {
        let mut put = start(&["-q", "--owner", "5:6", "--mode", "600", "-", &scratch.inside(name)]);
        // In two writes, of which the reader gets parts.
        let mut input = put.stdin.take().unwrap();
        input.write_all(&bytes[..len / 2]).unwrap();
        input.write_all(&bytes[len / 2..len]).unwrap();
        drop(input);
        let output = put.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", testkit::tool::text(&output));
        let out = scratch.path("out");
        scratch.ok(&["get", "-q", &scratch.inside(name), &text(&out)]);
        assert!(fs::read(&out).unwrap() == bytes[..len], "{name}");
        let line = scratch.ok(&["ls", "-l", &scratch.inside(name)]);
        assert!(line.starts_with("-rw------- 1 5 6 "), "{line}");
    }
    for arguments in [&["-", &scratch.inside("/")][..], &["-", "-", &scratch.inside("/f")]] {
        let output = start(&[&["-q"], arguments].concat()).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
    }
    scratch.fsck();
}

#[test]
fn files_that_the_kernel_makes_up_are_read_to_their_end() {
    let scratch = ScratchImage::new(&[]);
    // A file of size 0; one of size 0 that may be sought in; one of 4096 bytes; and a hole.
    let hole = scratch.path("hole");
    fs::File::create(&hole).unwrap().set_len(10_000).unwrap();
    let sources = ["/proc/version", "/proc/sys/kernel/ostype", "/sys/kernel/mm/transparent_hugepage/enabled"];
    for source in sources.iter().map(std::path::Path::new).chain([hole.as_path()]) {
        let Ok(expected) = fs::read(source) else { continue };
        scratch.ok(&["put", "-q", &text(source), &scratch.inside("/copy")]);
        assert_eq!(scratch.ok(&["cat", &scratch.inside("/copy")]).into_bytes(), expected);
    }
    assert!(!scratch.ok(&["fiemap", &scratch.inside("/copy")]).contains("last"), "the hole has blocks");
    scratch.fsck();
}

/// Unpacks standard input in a process that begins with default or ignored signals, whatever the
/// signals of the test are.
fn start_with_signals(signals: &str, dest: &str) -> Option<Child> {
    tool(Command::new("env").args([signals, "true"])).filter(|output| output.status.success())?;
    let mut put = Command::new("env");
    put.arg(signals).arg(program()).args(["put", "-q", "--tar", "--sync-every", "1", "--report", "-", dest]);
    Some(put.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

#[test]
fn a_signal_that_is_ignored_does_not_interrupt_put() {
    let scratch = ScratchImage::new(&[]);
    let Some(mut put) = start_with_signals("--ignore-signal=HUP", &scratch.inside("/")) else { return };
    let mut input = put.stdin.take().unwrap();
    input.write_all(header("first").as_bytes()).unwrap();
    let mut out = BufReader::new(put.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    kill_process(Pid::from_child(&put), Signal::HUP).unwrap();
    input.write_all(header("second").as_bytes()).unwrap();
    input.write_all(&[0; 1024]).unwrap();
    drop(input);
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "synced /first\nsynced /second\n");
    assert!(put.wait_with_output().unwrap().status.success());
}

#[test]
fn an_interrupted_put_leaves_complete_files_on_a_closed_volume() {
    let mut second = header("second");
    second.set_size(4 << 20);
    second.set_cksum();
    interrupt_within(&[&second.as_bytes()[..], &vec![7; MORE_THAN_BUFFERS]].concat());
}

#[test]
fn a_put_that_is_interrupted_within_the_map_of_a_sparse_file_names_the_file() {
    let records = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n31 GNU.sparse.realsize=2000000\n";
    let mut extended = header("extended");
    extended.set_entry_type(tar::EntryType::XHeader);
    extended.set_size(records.len() as u64);
    extended.set_cksum();
    let mut block = records.to_vec();
    block.resize(512, 0);
    let mut second = header("second");
    second.set_size(2 * MORE_THAN_BUFFERS as u64);
    second.set_cksum();
    // A number with many zeros, which is the count of runs and the place of each.
    let number = format!("{:020}\n", 200_000);
    let map = number.repeat(MORE_THAN_BUFFERS.div_ceil(number.len()));
    interrupt_within(&[&extended.as_bytes()[..], &block, second.as_bytes(), map.as_bytes()].concat());
}

/// More bytes than a pipe and the buffer of the reader hold: the command has begun to read what
/// they belong to when they are written.
const MORE_THAN_BUFFERS: usize = 3 << 20;

/// Interrupts `put` after it has unpacked an empty file `first`, and has begun to unpack `second`,
/// whose rest never comes.
fn interrupt_within(second: &[u8]) {
    let scratch = ScratchImage::new(&[]);
    let dest = scratch.inside("/");
    let Some(mut put) = start_with_signals("--default-signal", &dest) else { return };
    let mut input = put.stdin.take().unwrap();
    input.write_all(header("first").as_bytes()).unwrap();
    input.write_all(second).unwrap();
    let mut line = String::new();
    BufReader::new(put.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "synced /first\n");
    // The rest of the second file never comes.
    kill_process(Pid::from_child(&put), Signal::INT).unwrap();
    let output = put.wait_with_output().unwrap();
    drop(input);
    let said = testkit::tool::text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted; 1 files are complete and durable"), "{said}");
    assert!(said.contains("/second: incomplete"), "{said}");
    // Nothing is left to recover.
    scratch.fetch();
    let dump = testkit::tool(Command::new("/usr/sbin/dumpe2fs").arg("-h").arg(scratch.image()));
    assert!(dump.is_none_or(|output| !String::from_utf8_lossy(&output.stdout).contains("needs_recovery")));
    scratch.fsck();
}
