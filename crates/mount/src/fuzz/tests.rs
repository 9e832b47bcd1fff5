//! The inputs that the fuzzer keeps, and what depends on the capabilities of the kernel.

use std::sync::Arc;

use fuser::{FopenFlags, InitFlags};
use parext4::{Volume, VolumeOptions};
use testkit::volume::assert_no_findings;

use super::message::{CREATE, Message};
use super::{Connection, empty, serve};
use crate::options::{Cache, MountOptions};

#[test]
fn the_server_answers_all_requests_of_the_fuzzer() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/inputs/requests");
    for entry in std::fs::read_dir(folder).unwrap() {
        let device = serve(&std::fs::read(entry.unwrap().path()).unwrap());
        assert_no_findings(&device, "a volume that was served");
    }
}

/// Returns whether the server has the kernel bypass its pages of new files that are opened with
/// each of `flags`.
fn bypass_pages(cache: Cache, capabilities: InitFlags, flags: &[i32]) -> Vec<bool> {
    /// Offset of the flags for the kernel in a reply to a creation: after the entry and the handle.
    const FLAGS_AT: usize = 128 + 8;
    let volume = Volume::open_device(Arc::new(empty()), &VolumeOptions::new()).unwrap();
    let options = MountOptions::new().cache(cache).threads(1);
    let mut connection = Connection::new(&volume, &options, capabilities).unwrap();
    let bypasses = |(nth, flags): (usize, &i32)| {
        let mut body = [flags.cast_unsigned(), 0o644 | libc::S_IFREG, 0, 0].map(u32::to_le_bytes).concat();
        body.extend_from_slice(format!("file{nth}\0").as_bytes());
        let reply = connection.call(&Message { operation: CREATE, node: 1, ids: [0; 3], body }).unwrap();
        assert_eq!(reply.error, 0);
        let flags = u32::from_le_bytes(*reply.body[FLAGS_AT..].first_chunk().unwrap());
        FopenFlags::from_bits_retain(flags).contains(FopenFlags::FOPEN_DIRECT_IO)
    };
    let bypassed = flags.iter().enumerate().map(bypasses).collect();
    connection.end();
    volume.close().unwrap();
    bypassed
}

/// Before Linux 6.6 the kernel does not write back pages that are mapped and dirty before a request
/// that bypasses them, so data of write(2) would be overwritten later.
#[test]
fn a_kernel_without_coherent_direct_files_uses_its_pages_for_all_files() {
    let all = InitFlags::from_bits_retain(u64::MAX);
    let old = all - InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
    let flags = [libc::O_RDWR, libc::O_WRONLY, libc::O_RDWR | libc::O_DIRECT];
    assert_eq!(bypass_pages(Cache::Kernel, all, &flags), [false, true, true]);
    assert_eq!(bypass_pages(Cache::Writeback, all, &flags), [false, false, true]);
    for cache in [Cache::Kernel, Cache::Writeback] {
        assert_eq!(bypass_pages(cache, old, &flags), [false; 3], "{cache:?}");
    }
    // Files that are always direct cannot be mapped there.
    assert_eq!(bypass_pages(Cache::Direct, old, &flags), [true; 3]);
}
