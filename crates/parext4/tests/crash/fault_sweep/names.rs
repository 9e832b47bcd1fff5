//! Directories and names.

use parext4::server::ServerInode as _;
use parext4::{NewInode, RenameMode, Special};
use testkit::volume::{DirectFiles as _, untimed};

use super::{LARGE, SMALL, bytes, create, volume, with_file, workload};

workload!(directories, with_file(LARGE, 4096), untimed(), |run| {
    run.step("make", |volume| volume.create_dir("/a", 0o755).map(drop))?;
    run.step("make below", |volume| volume.create_dir("/a/b", 0o700).map(drop))?;
    run.step("make beside", |volume| volume.create_dir("/a/c", 0o700).map(drop))?;
    run.sync()?;
    run.step("remove", |volume| volume.remove_dir("/a/b"))?;
    run.step("make again", |volume| volume.create_dir("/a/b", 0o711).map(drop))?;
    run.step("move", |volume| volume.rename("/a/b", "/b"))?;
    run.step("replace", |volume| volume.rename("/a/c", "/b"))?;
    run.sync()
});

// The directory gets a second block, then an index, and its leaves split.
workload!(names_in_a_growing_directory, with_file(SMALL, 1024), untimed(), |run| {
    run.step("make", |volume| volume.create_dir("/dir", 0o755).map(drop))?;
    for number in 0..60 {
        let name = format!("/dir/{number:0>60}");
        run.step("create", |volume| volume.create_direct(name).map(drop))?;
        if number % 25 == 24 {
            run.sync()?;
        }
    }
    run.step("remove", |volume| volume.remove_file(format!("/dir/{:0>60}", 7)))?;
    run.step("create in the gap", |volume| volume.create_direct("/dir/new").map(drop))
});

workload!(
    a_large_directory_that_is_not_in_memory,
    volume(SMALL, |volume| {
        volume.create_dir("/dir", 0o755)?;
        (0..200).try_for_each(|number| volume.create_direct(format!("/dir/{number:0>40}")).map(drop))
    }),
    untimed(),
    |run| {
        let name = |number: u32| format!("/dir/{number:0>40}");
        let found = run.look("look up", |volume| volume.exists(name(100)))?;
        assert!(found);
        let found = run.look("look up what is missing", |volume| volume.exists("/dir/missing"))?;
        assert!(!found);
        run.step("create", |volume| volume.create_direct(name(1000)).map(drop))?;
        run.step("remove", |volume| volume.remove_file(name(50)))?;
        run.step("rename", |volume| volume.rename(name(60), name(1001)))?;
        let listed =
            run.look("list", |volume| volume.read_dir("/dir")?.collect::<parext4::Result<Vec<_>>>())?;
        assert_eq!(listed.len(), 200);
        run.sync()
    }
);

workload!(
    renames,
    volume(LARGE, |volume| {
        volume.create_dir_all("/a/deep", 0o755)?;
        volume.create_dir("/b", 0o755)?;
        volume.write("/a/one", bytes(1, 3000))?;
        volume.write("/b/two", bytes(2, 5000))
    }),
    untimed(),
    |run| {
        let (a, b) = run.look("open", |volume| Ok((volume.resolve("/a")?, volume.resolve("/b")?)))?;
        run.step("rename", |_| a.rename(b"one", &a, b"three", RenameMode::NoReplace))?;
        run.step("move", |_| a.rename(b"three", &b, b"three", RenameMode::Replace))?;
        run.step("exchange", |_| b.rename(b"two", &b, b"three", RenameMode::Exchange))?;
        run.sync()?;
        run.step("exchange a directory", |_| a.rename(b"deep", &b, b"two", RenameMode::Exchange))?;
        run.step("replace", |_| a.rename(b"deep", &b, b"three", RenameMode::Replace))?;
        run.step("leave a whiteout", |_| {
            b.rename_with_whiteout(b"three", &a, b"four", RenameMode::Replace, &NewInode::new())
        })?;
        run.step("move the directory", |volume| volume.rename("/b/two", "/a/two"))?;
        run.sync()
    }
);

workload!(links, with_file(SMALL, 3000 / 512 * 512), untimed(), |run| {
    run.step("link", |volume| volume.hard_link("/file", "/second"))?;
    run.step("link to a short target", |volume| volume.symlink("/short", "file").map(drop))?;
    run.step("link to a long target", |volume| volume.symlink("/long", "x".repeat(300)).map(drop))?;
    run.sync()?;
    run.step("remove the first name", |volume| volume.remove_file("/file"))?;
    run.step("remove the last name", |volume| volume.remove_file("/second"))?;
    let target = run.look("read the link", |volume| volume.read_link("/long"))?;
    assert_eq!(target.as_os_str().len(), 300);
    run.step("remove the long link", |volume| volume.remove_file("/long"))?;
    run.sync()
});

workload!(special_files, with_file(LARGE, 512), untimed(), |run| {
    let root = run.look("open", parext4::Volume::root)?;
    let new = NewInode::new().permissions(0o600).uid(5).gid(6);
    run.step("a pipe", |_| root.mknod(b"pipe", Special::Fifo, &new).map(drop))?;
    run.step("a socket", |_| root.mknod(b"socket", Special::Socket, &new).map(drop))?;
    run.step("a device", |_| {
        root.mknod(b"device", Special::CharDevice { major: 8, minor: 300_000 }, &new).map(drop)
    })?;
    run.sync()?;
    run.step("remove", |volume| volume.remove_file("/pipe"))
});

// The inode is an orphan until its last handle is closed.
workload!(removed_files_in_use, with_file(SMALL, 60 << 10), untimed(), |run| {
    let file = run.look("open", |volume| volume.direct_file("/file"))?;
    run.step("remove", |volume| volume.remove_file("/file"))?;
    // A crash could leave the old name with the new data.
    run.sync()?;
    run.step("write", |_| file.write_all_at(&bytes(2, 8192), 1024))?;
    run.sync()?;
    run.step("write more", |_| file.write_all_at(&bytes(3, 8192), 100 << 10))?;
    let mut seen = vec![0; 8192];
    run.look("read", |_| file.read_at(&mut seen, 1024))?;
    assert!(seen == bytes(2, 8192));
    run.step("close", move |_| {
        drop(file);
        Ok(())
    })?;
    run.sync()
});

// A file whose deletion takes several transactions.
workload!(
    removed_files_with_many_extents,
    volume(SMALL, |volume| {
        for path in ["/file", "/second"] {
            let file = volume.create_direct(path)?;
            (0..300).try_for_each(|nth| file.write_all_at(&bytes(1, 1024), nth * 2048))?;
        }
        Ok(())
    }),
    untimed(),
    |run| {
        run.step("remove", |volume| volume.remove_file("/file"))?;
        run.sync()?;
        run.step("remove the second", |volume| volume.remove_file("/second"))?;
        run.step("create", |volume| create(volume, "/new").map(drop))?;
        run.sync()
    }
);

workload!(
    removed_trees,
    volume(LARGE, |volume| {
        volume.create_dir_all("/tree/a/b", 0o755)?;
        volume.write("/tree/a/b/file", bytes(1, 9000))?;
        volume.write("/tree/a/file", bytes(2, 100))
    }),
    untimed(),
    |run| {
        run.step("remove a file", |volume| volume.remove_file("/tree/a/b/file"))?;
        run.step("remove a directory", |volume| volume.remove_dir_all("/tree/a/b"))?;
        run.step("remove another file", |volume| volume.remove_file("/tree/a/file"))?;
        run.sync()?;
        run.step("remove the directory above", |volume| volume.remove_dir("/tree/a"))?;
        run.step("remove the root of the tree", |volume| volume.remove_dir("/tree"))
    }
);
