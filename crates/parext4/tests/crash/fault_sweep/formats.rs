//! Volumes of other formats.

use parext4::{OpenOptions, XattrMode};
use testkit::volume::{DirectFiles as _, Shape, untimed};

use super::{SMALL, bytes, create, volume, with_file, workload};

const KIB: u64 = 1024;

const INDIRECT: Shape = SMALL.without_extents();
const INLINE: Shape = Shape { features: "inline_data", ..Shape::new(8, 1024, true) };
const CLUSTERS: Shape = Shape::new(16, 1024, true).with_clusters(4);
const NO_JOURNAL: Shape = Shape::new(8, 1024, false);
const ORPHAN_FILE: Shape = Shape { features: "orphan_file", ..Shape::new(8, 4096, true) };

workload!(files_without_extents, with_file(INDIRECT, 20 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("extend", |_| file.write_all_at(&bytes(2, 30 << 10), 20 * KIB))?;
    run.step("write below double indirect blocks", |_| file.write_all_at(&bytes(3, 2048), 400 * KIB))?;
    run.file_step("sync", "/file", |_| file.sync_all())?;
    run.step("punch", |_| file.punch_hole(8 * KIB..28 * KIB))?;
    let buffered = run.look("open buffered", |_| file.buffered())?;
    run.step("write buffered", |_| buffered.write_all_at(&bytes(4, 10_000), 100_000))?;
    run.sync()?;
    run.step("truncate", |_| file.set_len(15 * KIB + 5))?;
    run.step("grow", |_| file.set_len(600 * KIB))?;
    run.sync()?;
    drop((file, buffered));
    run.step("remove", |volume| volume.remove_file("/file"))
});

workload!(
    contents_in_the_inode,
    volume(INLINE, |volume| {
        volume.write("/file", bytes(1, 50))?;
        volume.create_dir("/dir", 0o755)?;
        volume.write("/dir/a", bytes(2, 10))
    }),
    untimed(),
    |run| {
        let file = run.look("open", |volume| volume.open_file("/file", &OpenOptions::read_write()))?;
        run.step("write", |_| file.write_all_at(&bytes(3, 30), 10))?;
        run.file_step("sync", "/file", |_| file.sync_all())?;
        run.step("grow in the inode", |_| file.write_all_at(&bytes(4, 40), 50))?;
        run.step("leave the inode", |_| file.write_all_at(&bytes(5, 3000), 80))?;
        run.sync()?;
        let new = run.step("create", |volume| create(volume, "/dir/b"))?;
        run.step("write the new file", |_| new.write_all_at(&bytes(6, 60), 0))?;
        run.step("set an attribute", |_| {
            new.inode_ref().set_xattr(b"user.x", &bytes(7, 100), XattrMode::Any)
        })?;
        for number in 0..6 {
            run.step("fill the directory", |volume| {
                create(volume, &format!("/dir/a longer name {number}")).map(drop)
            })?;
        }
        run.step("remove", |volume| volume.remove_file("/dir/a"))?;
        run.sync()
    }
);

workload!(clusters, with_file(CLUSTERS, 30 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("fill part of a cluster", |_| file.write_all_at(&bytes(2, 1024), 41 * KIB))?;
    run.step("fill the rest", |_| file.write_all_at(&bytes(3, 2048), 42 * KIB))?;
    run.step("punch part of a cluster", |_| file.punch_hole(9 * KIB..14 * KIB))?;
    run.file_step("sync", "/file", |_| file.sync_all())?;
    let buffered = run.look("open buffered", |_| file.buffered())?;
    run.step("write buffered", |_| buffered.write_all_at(&bytes(4, 9000), 60_000))?;
    run.step("collapse", |_| file.collapse_range(16 * KIB..20 * KIB))?;
    run.sync()?;
    run.step("truncate", |_| file.set_len(10 * KIB))?;
    run.step("directory", |volume| volume.create_dir("/dir", 0o755).map(drop))?;
    run.sync()
});

workload!(a_volume_without_a_journal, with_file(NO_JOURNAL, 30 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("overwrite", |_| file.write_all_at(&bytes(2, 8192), 4096))?;
    run.step("extend", |_| file.write_all_at(&bytes(3, 8192), 30 * KIB))?;
    run.sync()?;
    run.step("create", |volume| create(volume, "/new").map(drop))?;
    run.step("truncate", |_| file.set_len(1000))?;
    run.file_step("sync", "/file", |_| file.sync_all())?;
    run.step("rename", |volume| volume.rename("/new", "/newer"))
});

workload!(orphans_in_a_file, with_file(ORPHAN_FILE, 60 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    let new = run.step("create", |volume| volume.create_direct("/new"))?;
    run.step("remove", |volume| volume.remove_file("/file"))?;
    run.step("remove the new file", |volume| volume.remove_file("/new"))?;
    run.sync()?;
    run.step("write", |_| new.write_all_at(&bytes(2, 8192), 0))?;
    run.step("close", move |_| {
        drop((file, new));
        Ok(())
    })?;
    run.sync()
});
