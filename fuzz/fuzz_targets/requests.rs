//! Requests to the server of a mount, over a socket in place of `/dev/fuse`.

#![no_main]

use testkit::volume::{assert_clean, assert_no_findings};

/// e2fsck checks the volume after one in this number of inputs.
const SAMPLE: usize = 16;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let device = parext4_mount::fuzz::serve(data);
    assert_no_findings(&device, "a volume that was served");
    if data.len() % SAMPLE == 0 {
        assert_clean(&device, "a volume that was served");
    }
});
