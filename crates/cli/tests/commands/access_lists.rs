//! Access control lists of copies.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};
use rustix::io::Errno;
use testkit::access_list::{GROUP, MASK, OTHER, OWNER, USER, access_list, full_access_list};
use testkit::command::{ScratchImage, text};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

/// Returns an access control list; `None` if the file has none.
fn list(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 1024];
    match lgetxattr(path, name, &mut value[..]) {
        Err(Errno::NODATA | Errno::NOTSUP) => None,
        len => Some(value[..len.unwrap()].to_vec()),
    }
}

/// A directory of an earlier run that failed counts as one that was there before.
#[test]
fn directories_of_a_failed_run_have_no_inherited_access_lists() {
    let scratch = ScratchImage::new(&[]);
    let dest = scratch.path("dest");
    let inherited = access_list(1001, &[(OWNER, 7), (USER, 7), (GROUP, 5), (MASK, 7), (OTHER, 5)]);
    fs::create_dir(&dest).unwrap();
    if lsetxattr(&dest, DEFAULT, &inherited, XattrFlags::empty()).is_err() {
        return testkit::skipped("no access control lists here");
    }
    let too_deep = format!("/{}", "d".repeat(250)).repeat(17);
    scratch.ok(&["mkdir", "-p", &scratch.inside(&format!("/tree{too_deep}"))]);
    let get = ["get".to_owned(), "-q".to_owned(), scratch.inside("/tree"), text(&dest)];
    let has_none = |name: &str| {
        for kind in [ACCESS, DEFAULT] {
            assert_eq!(list(&dest.join(name), kind), None, "{kind} of {name}");
        }
    };
    assert!(scratch.fails(&get).contains("the path is too long"));
    let below = format!("tree{}", &too_deep[..251]);
    has_none("tree");
    has_none(&below);
    scratch.ok(&["rm", "-r", &scratch.inside(&format!("/tree{}", &too_deep[..502]))]);
    scratch.ok(&get);
    has_none("tree");
    has_none(&below);
    assert_eq!(list(&dest, DEFAULT), Some(inherited));
}

/// The default list of the directory outside is not that of the copies: another user could read
/// them.
#[test]
fn copies_do_not_inherit_access_lists() {
    let scratch = ScratchImage::new(&[]);
    let [source, dest] = ["source", "dest"].map(|name| scratch.path(name));
    let inherited = access_list(1001, &[(OWNER, 7), (USER, 7), (GROUP, 5), (MASK, 7), (OTHER, 5)]);
    fs::create_dir_all(source.join("dir/below")).unwrap();
    fs::create_dir_all(source.join("kept")).unwrap();
    for name in ["file", "dir/file", "listed"] {
        fs::write(source.join(name), "x").unwrap();
        fs::set_permissions(source.join(name), Permissions::from_mode(0o640)).unwrap();
    }
    symlink("file", source.join("link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        source.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let own = full_access_list(1002);
    if lsetxattr(source.join("listed"), ACCESS, &own, XattrFlags::empty()).is_err() {
        return testkit::skipped("no access control lists here");
    }
    lsetxattr(source.join("dir"), DEFAULT, &own, XattrFlags::empty()).unwrap();
    scratch.ok(&["put", "-q", &text(&source.join(".")), &scratch.inside("/")]);
    fs::create_dir_all(dest.join("kept")).unwrap();
    lsetxattr(&dest, DEFAULT, &inherited, XattrFlags::empty()).unwrap();
    lsetxattr(dest.join("kept"), DEFAULT, &inherited, XattrFlags::empty()).unwrap();
    scratch.ok(&["get", "-q", &scratch.inside("/"), &text(&dest)]);
    for name in ["file", "dir", "dir/file", "dir/below", "fifo", "link", "lost+found"] {
        assert_eq!(list(&dest.join(name), ACCESS), None, "{name}");
    }
    for (name, expected) in [("dir/below", None), ("lost+found", None), ("dir", Some(own.clone()))] {
        assert_eq!(list(&dest.join(name), DEFAULT), expected, "{name}");
    }
    assert_eq!(list(&dest.join("listed"), ACCESS), Some(own));
    assert_eq!(dest.join("file").metadata().unwrap().permissions().mode() & 0o7777, 0o640);
    // Directories that were there before.
    for name in ["", "kept"] {
        assert_eq!(list(&dest.join(name), DEFAULT).as_ref(), Some(&inherited), "{name:?}");
    }
}
