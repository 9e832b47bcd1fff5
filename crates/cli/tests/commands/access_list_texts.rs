//! Access control lists as text in the records of archives: of GNU tar and bsdtar, for them, and
//! ones that cannot be applied.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};
use testkit::access_list::{GROUP, MASK, OTHER, OWNER, USER, access_list};
use testkit::command::{ScratchImage, run, text};
use testkit::tool;

use crate::archives::header;

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

fn list(path: &Path, name: &str) -> Vec<u8> {
    let mut value = vec![0; 1024];
    let len = lgetxattr(path, name, &mut value[..]).unwrap_or(0);
    value[..len].to_vec()
}

/// Makes a tree of a directory with a default list and a file whose list gives its group no right.
/// Returns the list; `None` if there are no lists here.
fn tree(dir: &Path) -> Option<Vec<u8>> {
    let sub = dir.join("sub");
    fs::create_dir_all(&sub).unwrap();
    let file = dir.join("file");
    fs::write(&file, "secret").unwrap();
    // 0 has a name on each machine, and 4_000_000 has none.
    let own = access_list(4_000_000, &[(OWNER, 6), (USER, 6), (GROUP, 0), (MASK, 6), (OTHER, 0)]);
    let named = access_list(0, &[(OWNER, 7), (USER, 7), (GROUP, 5), (MASK, 7), (OTHER, 5)]);
    let set = lsetxattr(&file, ACCESS, &own, XattrFlags::empty())
        .and_then(|()| lsetxattr(&sub, DEFAULT, &named, XattrFlags::empty()));
    if set.is_err() {
        testkit::skipped("no access control lists here");
        return None;
    }
    Some(own)
}

#[test]
fn lists_of_gnu_tar_and_bsdtar_are_applied_and_theirs_are_written() {
    let scratch = ScratchImage::new(&[]);
    let source = scratch.path("source");
    if tree(&source).is_none() {
        return;
    }
    for program in ["tar", "bsdtar"] {
        let archive = text(&scratch.path(&format!("{program}.tar")));
        let pack = ["--acls", "-C", &text(&source), "-cf", &archive, "."];
        let Some(output) = tool(Command::new(program).args(pack)) else { continue };
        assert!(output.status.success(), "{}", testkit::tool::text(&output));
        let (dir, out) = (scratch.inside(&format!("/{program}")), scratch.path(&format!("{program}.out")));
        scratch.ok(&["mkdir", &dir]);
        scratch.ok(&["put", "-q", "--tar", &archive, &dir]);
        scratch.ok(&["get", "-q", &dir, &text(&out)]);
        let ours = text(&scratch.path(&format!("{program}.ours.tar")));
        scratch.ok(&["get", "-q", &format!("{dir}/."), "--tar", &ours]);
        let theirs = scratch.path(&format!("{program}.theirs"));
        fs::create_dir(&theirs).unwrap();
        let unpack = ["--acls", "-C", &text(&theirs), "-xpf", &ours];
        let output = tool(Command::new(program).args(unpack)).unwrap();
        assert!(output.status.success(), "{}", testkit::tool::text(&output));
        for copy in [&out, &theirs] {
            let of = |name: &str, kind: &str| (list(&copy.join(name), kind), list(&source.join(name), kind));
            for (copied, original) in [of("file", ACCESS), of("sub", DEFAULT), of("sub", ACCESS)] {
                assert_eq!(copied, original, "{program}: {}", copy.display());
            }
        }
    }
    scratch.fsck();
}

/// The group bits of the mode are the upper bound of the list, which the group alone does not have.
#[test]
fn without_its_list_a_file_gives_its_group_no_rights() {
    let scratch = ScratchImage::new(&[]);
    let archive = text(&scratch.path("in.tar"));
    let put = |records: &[(&str, &str)]| {
        let mut builder = tar::Builder::new(fs::File::create(&archive).unwrap());
        builder.append_pax_extensions(records.iter().map(|(key, value)| (*key, value.as_bytes()))).unwrap();
        let mut header = header("file");
        header.set_mode(0o664);
        header.set_cksum();
        builder.append(&header, std::io::empty()).unwrap();
        builder.finish().unwrap();
        ["put", "-q", "--tar", &archive, &scratch.inside("/")].map(str::to_owned)
    };
    let mode = || scratch.ok(&["ls", "-l", &scratch.inside("/file")])[..10].to_owned();
    for (text, wrong) in [
        ("user::rw-,user:no-such-name:rw-,group::---,mask::rw-,other::r--", "no user no-such-name"),
        ("user::rw-,group:no-such-name:rw-,group::---,mask::rw-,other::r--", "no group no-such-name"),
        ("user::rw-,user:7:rw-,group::---,other::r--", "invalid argument"),
        ("user::rw-,user:7:rwq", "expected 1 to 3 of the letters r, w, x and -"),
    ] {
        let error = scratch.fails(&put(&[("SCHILY.acl.access", text)]));
        assert!(error.contains("file: attribute system.posix_acl_access is left out"), "{error}");
        assert!(error.contains(wrong), "{error}");
        assert_eq!(mode(), "-rw----r--", "{text}");
    }
    // A number counts more than a name, and the attribute more than the text.
    let named = "user::rw-,user:no-such-name:rw-:7,group::---,mask::rw-,other::r--";
    scratch.ok(&put(&[("SCHILY.acl.access", named)]));
    let out = scratch.path("out");
    scratch.ok(&["get", "-q", &scratch.inside("/file"), &text(&out)]);
    assert_eq!(out.metadata().unwrap().permissions().mode() & 0o777, 0o664);
    let expected = access_list(7, &[(OWNER, 6), (USER, 6), (GROUP, 0), (MASK, 6), (OTHER, 4)]);
    let found = list(&out, ACCESS);
    assert!(found == expected || found.is_empty(), "{found:?}");
    let records = run(&["get", "-q", "--tar", "-", &scratch.inside("/file")]).stdout;
    let record = b" SCHILY.acl.access=user::rw-,user:7:rw-,group::---,mask::rw-,other::r--\n";
    assert!(records.windows(record.len()).any(|bytes| bytes == record));
    scratch.fsck();
}

#[test]
fn flags_of_bsdtar_are_set() {
    let scratch = ScratchImage::new(&[]);
    let archive = text(&scratch.path("in.tar"));
    let mut builder = tar::Builder::new(fs::File::create(&archive).unwrap());
    for (name, flags) in [("one", "nodump,noatime"), ("two", "schg")] {
        builder.append_pax_extensions([("SCHILY.fflags", flags.as_bytes())]).unwrap();
        builder.append(&header(name), std::io::empty()).unwrap();
    }
    builder.finish().unwrap();
    scratch.ok(&["put", "-q", "--tar", &archive, &scratch.inside("/")]);
    scratch.fetch();
    for (name, flags) in [("one", "0x800c0"), ("two", "0x80010")] {
        let stat = ["-R", &format!("stat /{name}")];
        let Some(output) = tool(Command::new("/usr/sbin/debugfs").args(stat).arg(scratch.image())) else {
            return;
        };
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(shown.contains(&format!("Flags: {flags}")), "{shown}");
    }
    // An immutable file stays, and the archive goes on.
    let error = scratch.fails(&["put", "-q", "--tar", &archive, &scratch.inside("/")]);
    assert!(error.contains("two: operation not permitted"), "{error}");
}
