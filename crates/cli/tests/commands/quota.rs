//! `quota`: usage and limits.

use std::fs;

use testkit::command::{ScratchImage, text};

#[test]
fn usage_is_shown_and_limits_are_set() {
    let scratch = ScratchImage::new(&["-O", "quota,project"]);
    let image = text(&scratch.image());
    let file = scratch.path("file");
    fs::write(&file, vec![1; 50_000]).unwrap();
    scratch.ok(&["put", "--owner", "1000:100", &text(&file), &image]);
    scratch.ok(&["quota", &image, "--user", "1000", "--block-hard", "1G", "--inode-soft", "7"]);
    scratch.ok(&["quota", &image, "--user", "1000", "--inode-hard", "9"]);
    scratch.fsck();
    let report: serde_json::Value =
        serde_json::from_str(&scratch.ok(&["quota", &image, "--user", "1000", "--json"])).unwrap();
    let user = &report["quotas"][0];
    let value = |name: &str| user[name].as_u64().unwrap();
    assert_eq!((value("inodes"), value("inodes_soft"), value("inodes_hard")), (1, 7, 9));
    assert_eq!((value("space_soft"), value("space_hard")), (0, 1 << 30));
    assert!((50_000..60_000).contains(&value("space")));
    let all = scratch.ok(&["quota", &image]);
    assert!(["user", "group", "project"].iter().all(|kind| all.contains(kind)), "{all}");

    let plain = ScratchImage::new(&[]);
    assert!(plain.fails(&["quota", &text(&plain.image())]).contains("the feature quota"));
    assert!(
        plain
            .fails(&["quota", &text(&plain.image()), "--group", "1", "--block-soft", "1M"])
            .contains("group")
    );
}
