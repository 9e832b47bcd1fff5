//! The check compares usage with quota files, and finds what e2fsck finds, with the same numbers.

use testkit::Image;
use testkit::rng::Rng;
use testkit::settings;
use testkit::volume::{e2fsck, findings};

use super::usage::FORMATS;
use super::{make, open, workload};

/// Returns what e2fsck finds about the usage of ids, a line for each, sorted.
fn of_e2fsck(output: &str) -> Vec<String> {
    let line = |line: &str| {
        let rest = line.split("[QUOTA WARNING] ").nth(1)?;
        // e2fsck prints ids as numbers with a sign.
        let numbers = rest.split(|c: char| !c.is_ascii_digit() && c != '-');
        let numbers: Vec<i64> = numbers.filter_map(|number| number.parse().ok()).collect();
        let id = numbers.first()?.rem_euclid(1 << 32);
        Some(match numbers[1..] {
            [space, inodes, stored, stored_inodes] => format!(
                "{id}: {stored} bytes and {stored_inodes} inodes, but {space} bytes and {inodes} inodes are in use"
            ),
            _ => format!("{id} has no entry"),
        })
    };
    let mut lines: Vec<_> = output.lines().filter_map(line).collect();
    lines.sort();
    lines
}

/// Returns what the check finds about the usage of ids, in the same form.
fn of_check(findings: &[String]) -> Vec<String> {
    let line = |finding: &String| {
        let rest = finding.strip_prefix("quota file: ")?.split(": ").skip(1).collect::<Vec<_>>().join(": ");
        assert!(rest.contains("[0x060002 PR_6_UPDATE_QUOTAS]"), "{finding}");
        let (_, rest) = rest.split_once(' ')?;
        let end =
            rest.find(" (inode").or_else(|| rest.find(", but").filter(|_| rest.contains("no entry")))?;
        let rest = rest.find(" has no entry").map_or(&rest[..end], |at| &rest[..at + " has no entry".len()]);
        Some(rest.to_owned())
    };
    let mut lines: Vec<_> = findings.iter().filter_map(line).collect();
    lines.sort();
    lines
}

#[test]
fn usage_that_differs_is_found_with_the_numbers_of_e2fsck() {
    let seed = settings::seed("quota check");
    for (format, options) in (0..).zip(FORMATS) {
        let Some(device) = make(24, options) else { return };
        let mut rng = Rng::new(seed, format);
        let volume = open(&device);
        workload::begin(&volume);
        for _ in 0..150 {
            workload::change(&volume, &mut rng);
        }
        volume.write("/file", vec![1; 50_000]).unwrap();
        volume.symlink("/link", "x/".repeat(100)).unwrap();
        volume.close().unwrap();
        let sound = Image::of(&device);
        for request in [
            "sif /file uid 77",
            "sif /file gid 1000",
            "sif /link uid 4000000000",
            "sif /d0 projid 5",
            "sif / uid 1",
            "sif /d1 gid 4294967295",
        ] {
            let image = Image::of(&sound.load());
            image.debugfs_write(request);
            let device = image.load();
            let Some((status, output)) = e2fsck(&device, "-fn") else { return };
            let (expected, found) = (of_e2fsck(&output), findings(&device));
            assert!(status != Some(0) && !expected.is_empty(), "{options:?}, {request}: {output}");
            assert_eq!(of_check(&found), expected, "{options:?}, {request}: {found:?}");
            assert_eq!(found.len(), expected.len(), "{options:?}, {request}: {found:?}");
        }
    }
}
