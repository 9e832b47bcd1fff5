//! A file mapped into the memory of another program, because mapping needs unsafe code, which this
//! crate does not have.

use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Maps the first bytes of a file, as many as its second argument says, and executes a command from
/// each line of its input: read, write or sync.
const SCRIPT: &str = "
import mmap, os, sys
memory = mmap.mmap(os.open(sys.argv[1], os.O_RDWR), int(sys.argv[2]))
requests = sys.stdin.buffer
def answer(data):
    # Not by sys.stdout, which forgets the rest when the program is stopped in the middle.
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(1, rest):]
answer(b'.')
for line in iter(requests.readline, b''):
    what, at, length = line.split()
    at, length = int(at), int(length)
    if what == b'read':
        answer(memory[at:at + length])
    else:
        if what == b'write':
            memory[at:at + length] = requests.read(length)
        else:
            memory.flush()
        answer(b'.')
";

/// A program that has a file mapped. Dropping it ends the program.
pub struct Mapping {
    program: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Mapping {
    /// Returns true if Python is installed. Prints a notice otherwise.
    pub fn is_possible() -> bool {
        let found = Command::new("python3").arg("-V").output().is_ok_and(|output| output.status.success());
        if !found {
            testkit::skipped("python3 is not installed");
        }
        found
    }

    /// Maps the first `len` bytes of a file, which must have at least that length.
    pub fn new(path: &Path, len: u64) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT]).arg(path).arg(len.to_string());
        let mut program = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (requests, answers) = (program.stdin.take(), BufReader::new(program.stdout.take().unwrap()));
        let mut mapping = Self { program, requests, answers };
        mapping.done();
        mapping
    }

    fn ask(&mut self, what: &str, at: u64, len: u64) -> &mut ChildStdin {
        let requests = self.requests.as_mut().unwrap();
        requests.write_all(format!("{what} {at} {len}\n").as_bytes()).unwrap();
        requests
    }

    fn done(&mut self) {
        let mut answer = [0];
        self.answers.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b".");
    }

    pub fn read(&mut self, at: u64, len: u64) -> Vec<u8> {
        self.ask("read", at, len);
        let mut bytes = vec![0; usize::try_from(len).unwrap()];
        self.answers.read_exact(&mut bytes).unwrap();
        bytes
    }

    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        self.ask("write", at, bytes.len() as u64).write_all(bytes).unwrap();
        self.done();
    }

    /// Writes dirty pages of the mapping back to the server.
    pub fn sync(&mut self) {
        self.ask("sync", 0, 0);
        self.done();
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        drop(self.requests.take());
        let _ = self.program.wait();
    }
}
