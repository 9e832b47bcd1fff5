//! The guard of a mount aborts the connection of its own server only.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::fuse_mount::{FuseMount, until};

/// A server whose main thread ends at the end of its input, while another thread runs until the
/// guard has ended. Prints the process id of the guard.
const SERVER: &str = r#"
import ctypes, os, platform, subprocess, sys, threading
guard = subprocess.Popen([sys.argv[1], "guard"], stdin=subprocess.PIPE)
guard.stdin.write(f"{os.getpid()} {sys.argv[2]}\n".encode())
guard.stdin.close()
print(guard.pid, flush=True)
sys.stdin.read()
def last_thread():
    guard.wait()
    os._exit(0)
threading.Thread(target=last_thread).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"#;

/// Number of attempts to get the number of an ended connection for the next mount. Other tests
/// mount as well.
const ATTEMPTS: u32 = 10;

fn connection(dir: &Path) -> u32 {
    rustix::fs::minor(std::fs::metadata(dir).unwrap().dev())
}

/// Returns true if a process has the control file of a connection open.
fn has_opened_abort(process: &str) -> bool {
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
    files.flatten().any(|file| std::fs::read_link(file.path()).is_ok_and(|path| path.ends_with("abort")))
}

#[test]
fn a_guard_leaves_a_later_mount_with_the_same_number_alone() {
    let Some(fuse) = FuseMount::mounted(&[], "defaults") else { return };
    for _ in 0..ATTEMPTS {
        let number = connection(fuse.dir());
        let mut command = Command::new("python3");
        command.args(["-c", SERVER, env!("CARGO_BIN_EXE_parext4"), &number.to_string()]);
        let Ok(mut server) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
            testkit::skipped("python3 is not installed");
            return;
        };
        let mut guard = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut guard).unwrap();
        let guards = until(|| has_opened_abort(guard.trim()));
        fuse.umount();
        fuse.mount("defaults");
        let is_same = connection(fuse.dir()) == number;
        drop(server.stdin.take());
        fuse.watched(|| server.wait()).unwrap();
        assert!(guards, "the guard has not opened its connection");
        assert!(fuse.is_mounted() && fuse.path("lost+found").exists(), "another mount was aborted");
        if is_same {
            return fuse.finish();
        }
    }
    testkit::skip_allowed("other mounts took the connection's number each time");
}
