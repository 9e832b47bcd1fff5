//! Attributes, extended attributes, access control lists, flags and quotas.

use parext4::{
    Credentials, InodeFlags, NewInode, OpenOptions, QuotaKind, QuotaKinds, QuotaLimits, SetAttributes,
    Timestamp, XattrMode,
};
use testkit::access_list::full_access_list;
use testkit::volume::{DirectFiles as _, Shape, untimed};

use super::{LARGE, SMALL, bytes, volume, with_file, workload};

workload!(extended_attributes, with_file(SMALL, 1024), untimed(), |run| {
    let file = run.look("open", |volume| volume.resolve("/file"))?;
    let set = |name: &str, len| file.set_xattr(name.as_bytes(), &bytes(2, len), XattrMode::Any);
    run.step("set in the inode", |_| set("user.a", 20))?;
    run.step("set in a block", |_| set("user.b", 300))?;
    run.sync()?;
    run.step("change in the block", |_| set("user.b", 500))?;
    run.step("set another", |_| set("trusted.c", 200))?;
    run.step("remove from the inode", |_| file.remove_xattr(b"user.a"))?;
    let value = run.look("read", |_| file.get_xattr(b"user.b"))?;
    assert_eq!(value, Some(bytes(2, 500)));
    run.sync()?;
    run.step("remove", |_| file.remove_xattr(b"user.b"))?;
    run.step("remove the last of the block", |_| file.remove_xattr(b"trusted.c"))?;
    run.step("remove the file", |volume| volume.remove_file("/file"))
});

const VALUES_IN_INODES: Shape = Shape { features: "ea_inode", ..Shape::new(8, 1024, true) };

workload!(attribute_values_in_inodes, with_file(VALUES_IN_INODES, 1024), untimed(), |run| {
    let file = run.look("open", |volume| volume.resolve("/file"))?;
    run.step("set", |_| file.set_xattr(b"user.large", &bytes(2, 5000), XattrMode::Create))?;
    run.sync()?;
    run.step("replace", |_| file.set_xattr(b"user.large", &bytes(3, 9000), XattrMode::Replace))?;
    run.step("set another", |_| file.set_xattr(b"user.other", &bytes(4, 3000), XattrMode::Any))?;
    let value = run.look("read", |_| file.get_xattr(b"user.large"))?;
    assert_eq!(value, Some(bytes(3, 9000)));
    run.sync()?;
    run.step("remove", |_| file.remove_xattr(b"user.other"))?;
    // e2fsck 1.47.0 deletes an orphan without the values of its attributes.
    run.step("remove the larger value", |_| file.remove_xattr(b"user.large"))?;
    run.step("remove the file", |volume| volume.remove_file("/file"))?;
    run.sync()
});

workload!(access_control_lists, with_file(LARGE, 512), untimed(), |run| {
    let acl = full_access_list(7);
    let file = run.look("open", |volume| volume.resolve("/file"))?;
    run.step("set", |_| file.set_xattr(b"system.posix_acl_access", &acl, XattrMode::Any))?;
    run.step("change the mode", |_| file.set_attributes(&SetAttributes::new().permissions(0o664)))?;
    run.step("make a directory", |volume| volume.create_dir("/dir", 0o755).map(drop))?;
    let dir = run.look("open it", |volume| volume.resolve("/dir"))?;
    run.step("set the default", |_| dir.set_xattr(b"system.posix_acl_default", &acl, XattrMode::Any))?;
    run.sync()?;
    run.step("inherit", |_| dir.create(b"file", &NewInode::new().permissions(0o666)).map(drop))?;
    run.step("inherit in a directory", |_| dir.mkdir(b"dir", &NewInode::new().permissions(0o777)).map(drop))
});

workload!(attributes, with_file(SMALL, 512), untimed(), |run| {
    let file = run.look("open", |volume| volume.resolve("/file"))?;
    run.step("mode", |_| file.set_attributes(&SetAttributes::new().permissions(0o4755)))?;
    run.step("owner", |_| file.set_attributes(&SetAttributes::new().uid(70_000).gid(5)))?;
    let time = Timestamp { seconds: 1 << 33, ..Timestamp::default() };
    run.step("times", |_| file.set_attributes(&SetAttributes::new().mtime(time).atime(time)))?;
    run.file_step("sync", "/file", |_| file.sync())?;
    run.step("touch", |_| file.touch())?;
    run.step("flags", |_| file.set_flags(file.flags() | InodeFlags::NOATIME))?;
    run.step("immutable", |_| file.set_flags(file.flags() | InodeFlags::IMMUTABLE))?;
    run.sync()
});

const QUOTAS: Shape = Shape { features: "quota,project", ..Shape::new(8, 1024, true) };

workload!(
    quotas,
    volume(QUOTAS, |volume| {
        volume.root()?.create(b"file", &NewInode::new().uid(1000).gid(7))?;
        volume.direct_file("/file")?.write_all_at(&bytes(1, 8192), 0)?;
        let limits = QuotaLimits { space_hard: 1 << 20, space_soft: 0, inodes_hard: 100, inodes_soft: 0 };
        volume.set_quota_limits(QuotaKind::User, 1000, &limits)
    }),
    untimed().enforced_quotas(QuotaKinds { user: true, group: true, project: true }),
    |run| {
        let file = run.look("open", |volume| {
            volume.clone().with_credentials(Credentials::user()).direct_file("/file")
        })?;
        run.step("write", |_| file.write_all_at(&bytes(2, 20 << 10), 8192))?;
        let buffered = run.look("open buffered", |_| file.buffered())?;
        run.step("write buffered", |_| buffered.write_all_at(&bytes(3, 9000), 40_000))?;
        run.step("change the owner", |_| file.inode_ref().set_attributes(&SetAttributes::new().uid(2000)))?;
        run.sync()?;
        run.step("set a limit of a new id", |volume| {
            let limits = QuotaLimits { space_hard: 0, space_soft: 5 << 20, inodes_hard: 0, inodes_soft: 9 };
            volume.set_quota_limits(QuotaKind::Group, 77, &limits)
        })?;
        run.step("change the project", |_| file.inode_ref().set_project(9))?;
        run.step("truncate", |_| file.set_len(1000))?;
        drop((file, buffered));
        run.step("remove", |volume| volume.remove_file("/file"))?;
        run.step("create", |volume| {
            let options = OpenOptions::read_write().create_new(true);
            volume.open_file("/new", &options).map(drop)
        })?;
        run.sync()
    }
);
