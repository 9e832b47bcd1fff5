//! Which public types threads can share and send.

use parext4::device::FileDevice;
use parext4::error::Corruption;
use parext4::*;

const fn shared<T: Send + Sync>() {}
const fn sent<T: Send>() {}

/// Handles that any number of threads use at once.
const _: () = {
    shared::<Volume>();
    shared::<InodeRef>();
    shared::<File>();
    shared::<DirectFile>();
    shared::<FileCursor>();
    shared::<FileCursor<&File>>();
    shared::<ReadDir>();
    shared::<DirEntry>();
    shared::<Walk>();
    shared::<IoWaker>();
};

/// A queue belongs to one thread at a time.
const _: () = {
    sent::<IoQueue>();
    sent::<IoRequest>();
    sent::<Completion>();
};

/// Values.
const _: () = {
    shared::<Error>();
    shared::<Corruption>();
    shared::<VolumeOptions>();
    shared::<ResearchOptions>();
    shared::<OpenOptions>();
    shared::<MkfsOptions>();
    shared::<DeviceOptions>();
    shared::<Metadata>();
    shared::<NewInode>();
    shared::<SetAttributes>();
    shared::<Special>();
    shared::<RenameMode>();
    shared::<XattrMode>();
    shared::<InodeId>();
    shared::<FileExtent>();
    shared::<IoFlags>();
    shared::<AlignedBuf>();
    shared::<Info>();
    shared::<Space>();
    shared::<OnError>();
    shared::<RecordedErrors>();
    shared::<RecordedError>();
    shared::<Replayed>();
    shared::<EmptiedLog>();
    shared::<Stats>();
    shared::<Admissions>();
    shared::<Explanation>();
    shared::<Contender>();
    shared::<Operation>();
    shared::<Reason>();
    shared::<Policy>();
    shared::<SplitAt>();
    shared::<PageCacheStats>();
    shared::<MetadataCacheStats>();
    shared::<FileDevice>();
    shared::<MemDevice>();
    shared::<std::sync::Arc<dyn Device>>();
};

#[test]
fn handles_are_used_by_threads_that_outlive_the_function_that_opened_them() {
    let device = std::sync::Arc::new(testkit::volume::Shape::new(16, 4096, true).make());
    let volume = Volume::open_device(device, &testkit::volume::untimed()).unwrap();
    let file = std::sync::Arc::new(volume.open_file("/f", &OpenOptions::read_write().create(true)).unwrap());
    let threads: Vec<_> = (0..4_u8)
        .map(|thread| {
            let (volume, file) = (volume.clone(), std::sync::Arc::clone(&file));
            std::thread::spawn(move || {
                file.write_all_at(&[thread], thread.into()).unwrap();
                volume.write(format!("/{thread}"), [thread]).unwrap();
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(volume.read("/f").unwrap(), [0, 1, 2, 3]);
    assert_eq!(volume.read("/3").unwrap(), [3]);
}
