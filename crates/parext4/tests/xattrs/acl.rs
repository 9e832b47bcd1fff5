//! Access control lists: their effect on permissions, and their inheritance by new inodes.

use testkit::access_list::{GROUP, MASK, OTHER, OWNER, USER};

use super::{assert_fails, file, list, names, new, on_each_kind};
use parext4::{InodeRef, SetAttributes, XattrMode};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

fn permissions(node: &InodeRef) -> u16 {
    node.metadata().permissions
}

#[test]
fn an_access_list_and_the_permissions_agree() {
    on_each_kind(|volume| {
        let node = file(volume, "file");
        let acl = list(&[(OWNER, 7), (USER, 6), (GROUP, 5), (MASK, 4), (OTHER, 1)]);
        node.set_xattr(ACCESS, &acl, XattrMode::Any).unwrap();
        assert_eq!(permissions(&node), 0o741);
        assert_eq!(node.get_xattr(ACCESS).unwrap().unwrap(), acl);
        assert_eq!(names(&node), ["system.posix_acl_access"]);

        let set = SetAttributes::new().permissions(0o4620);
        node.set_attributes(&set).unwrap();
        let changed = list(&[(OWNER, 6), (USER, 6), (GROUP, 5), (MASK, 2), (OTHER, 0)]);
        assert_eq!(node.get_xattr(ACCESS).unwrap().unwrap(), changed);
        assert_eq!(permissions(&node), 0o4620);

        // The part that the permissions express is not stored.
        node.set_xattr(ACCESS, &list(&[(OWNER, 6), (GROUP, 4), (OTHER, 0)]), XattrMode::Any).unwrap();
        assert_eq!((node.get_xattr(ACCESS).unwrap(), permissions(&node)), (None, 0o4640));

        node.set_xattr(ACCESS, &acl, XattrMode::Create).unwrap();
        node.set_xattr(ACCESS, &list(&[]), XattrMode::Any).unwrap();
        assert_eq!((names(&node).len(), permissions(&node)), (0, 0o4741));
        node.set_xattr(ACCESS, &acl, XattrMode::Create).unwrap();
        node.remove_xattr(ACCESS).unwrap();
        assert_eq!(names(&node).len(), 0);
    });
}

#[test]
fn an_invalid_list_is_refused() {
    on_each_kind(|volume| {
        let node = file(volume, "file");
        let set = |name, value: &[u8]| node.set_xattr(name, value, XattrMode::Any);
        let minimal = list(&[(OWNER, 6), (GROUP, 4), (OTHER, 0)]);
        assert_fails!(set(ACCESS, b"abc"), Invalid);
        assert_fails!(set(ACCESS, &minimal[..minimal.len() - 1]), Invalid);
        assert_fails!(set(ACCESS, &list(&[(OWNER, 6), (OTHER, 0)])), Invalid);
        assert_fails!(set(ACCESS, &list(&[(OWNER, 6), (USER, 6), (GROUP, 4), (OTHER, 0)])), Invalid);
        assert_fails!(set(DEFAULT, &minimal), Unsupported);
        let link = volume.symlink("/link", "file").unwrap();
        assert_fails!(link.set_xattr(ACCESS, &minimal, XattrMode::Any), Unsupported);
        assert_eq!(permissions(&node), 0o644);
    });
}

#[test]
fn new_inodes_inherit_the_default_list() {
    on_each_kind(|volume| {
        let dir = volume.root().unwrap().mkdir(b"dir", &new()).unwrap();
        let default = list(&[(OWNER, 7), (USER, 7), (GROUP, 5), (MASK, 6), (OTHER, 0)]);
        dir.set_xattr(DEFAULT, &default, XattrMode::Any).unwrap();
        assert_eq!(permissions(&dir), 0o644, "a default list does not apply to its own directory");
        let with_umask = |permissions| new().permissions(permissions).umask(0o077);

        let child = dir.create(b"file", &with_umask(0o666)).unwrap();
        assert_eq!(permissions(&child), 0o660);
        let access = list(&[(OWNER, 6), (USER, 7), (GROUP, 5), (MASK, 6), (OTHER, 0)]);
        assert_eq!(child.get_xattr(ACCESS).unwrap().unwrap(), access);
        assert_eq!(names(&child), ["system.posix_acl_access"]);

        let child = dir.mkdir(b"dir", &with_umask(0o751)).unwrap();
        assert_eq!(permissions(&child), 0o740);
        assert_eq!(child.get_xattr(DEFAULT).unwrap().unwrap(), default);
        let access = list(&[(OWNER, 7), (USER, 7), (GROUP, 5), (MASK, 4), (OTHER, 0)]);
        assert_eq!(child.get_xattr(ACCESS).unwrap().unwrap(), access);
        assert_eq!(child.create(b"x", &new()).unwrap().list_xattr().unwrap().len(), 1);

        let link = dir.symlink(b"link", b"file", &new()).unwrap();
        assert_eq!((permissions(&link), names(&link).len()), (0o777, 0));

        // A list that equals the permissions is not stored.
        dir.set_xattr(DEFAULT, &list(&[(OWNER, 7), (GROUP, 5), (OTHER, 4)]), XattrMode::Any).unwrap();
        let child = dir.create(b"plain", &with_umask(0o666)).unwrap();
        assert_eq!((permissions(&child), names(&child).len()), (0o644, 0));

        dir.remove_xattr(DEFAULT).unwrap();
        assert_eq!(permissions(&dir.create(b"masked", &with_umask(0o4666)).unwrap()), 0o4600);
    });
}
