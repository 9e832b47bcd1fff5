//! Features of volumes that the kernel of this machine cannot mount, by its configuration.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use parext4_format::features::{Incompat, RoCompat};
use parext4_format::superblock::Superblock;

use crate::skip::{skip_allowed, skipped};

/// Lines `CONFIG_NAME=y` of the running kernel; empty if they are not known.
static CONFIG: LazyLock<String> = LazyLock::new(|| {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    // Of two files, usually only one is there.
    let output = Command::new("zcat")
        .args(["-f", "/proc/config.gz", &format!("/boot/config-{}", release.trim())])
        .output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).into_owned())
});

/// Skips the test because the kernel has not mounted `image`, for which mount(8) gave `message`. A
/// missing feature of the kernel is a reason on any machine; under continuous integration any other
/// failure fails the test.
#[track_caller]
pub fn not_mounted(image: &Path, message: &str) {
    match lack(image) {
        Some(lack) => skip_allowed(&format!("the kernel mounts no {lack}")),
        None => skipped(&format!("the kernel does not mount images here: {}", message.trim())),
    }
}

/// Returns what the volume has that the kernel cannot mount; `None` if nothing is known that it
/// could not.
fn lack(image: &Path) -> Option<String> {
    let mut bytes = vec![0; Superblock::SIZE];
    File::open(image).and_then(|file| file.read_exact_at(&mut bytes, Superblock::OFFSET)).ok()?;
    let superblock = Superblock::parse(&bytes).ok()?;
    lacking(&superblock, &CONFIG, rustix::param::page_size())
}

/// Returns what a volume has that a kernel with a configuration and with pages of `page` bytes
/// cannot mount. A configuration that is not known excludes nothing.
fn lacking(superblock: &Superblock, config: &str, page: usize) -> Option<String> {
    let is_off = |option: &str| {
        !config.is_empty()
            && !config
                .lines()
                .any(|line| line.strip_prefix(option).is_some_and(|set| set == "=y" || set == "=m"))
    };
    // From Linux 6.19 on the kernel mounts them, so the test does not come here.
    if superblock.block_size() as usize > page {
        return Some(format!("blocks of {} bytes, above its page size", superblock.block_size()));
    }
    let counts = superblock.ro_compat().intersects(RoCompat::QUOTA | RoCompat::PROJECT);
    let folds = superblock.incompat().contains(Incompat::CASEFOLD);
    [
        (counts, "quota", "CONFIG_QUOTA"),
        (counts, "quota", "CONFIG_QFMT_V2"),
        (folds, "casefold", "CONFIG_UNICODE"),
    ]
    .into_iter()
    .find(|&(has, _, option)| has && is_off(option))
    .map(|(_, feature, option)| format!("volumes with {feature}, which need {option}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use parext4::{MemDevice, MkfsOptions, mkfs};
    use parext4_device::Device;

    fn superblock(options: &MkfsOptions) -> Superblock {
        let device = MemDevice::new(16 << 20);
        mkfs(&device, options).unwrap();
        let mut bytes = vec![0; 4096];
        device.read_at(0, &mut [std::io::IoSliceMut::new(&mut bytes)]).unwrap();
        Superblock::parse(&bytes[1024..2048]).unwrap()
    }

    #[test]
    fn only_what_a_volume_has_can_be_lacking() {
        let config = "CONFIG_QUOTA=y\n# CONFIG_QFMT_V2 is not set\n# CONFIG_UNICODE is not set\n";
        let (plain, quota) =
            (superblock(&MkfsOptions::new()), superblock(&MkfsOptions::new().features("quota").unwrap()));
        assert_eq!(lacking(&plain, config, 4096), None);
        let expected = "volumes with quota, which need CONFIG_QFMT_V2";
        assert_eq!(lacking(&quota, config, 4096).as_deref(), Some(expected));
        assert_eq!(lacking(&quota, "CONFIG_QUOTA=y\nCONFIG_QFMT_V2=m\n", 4096), None);
        assert_eq!(lacking(&quota, "", 4096), None, "the configuration is not known");
        let large = superblock(&MkfsOptions::new().block_size(8192));
        assert!(lacking(&large, config, 4096).unwrap().contains("8192"));
        assert_eq!(lacking(&large, config, 65536), None);
    }
}
