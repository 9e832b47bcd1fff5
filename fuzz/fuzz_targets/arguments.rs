//! Arguments of the command line, and the files that they name: archives, manifests and disks with
//! partitions.

#![no_main]

use testkit::volume::assert_clean;

/// e2fsck checks the volume after one in this number of inputs.
const SAMPLE: usize = 8;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some(device) = parext4_cli::fuzz::run(data)
        && data.len() % SAMPLE == 0
    {
        assert_clean(&device, "a volume that was made or changed");
    }
});
