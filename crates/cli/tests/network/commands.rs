//! Every command that takes an image takes a URL.

use std::fs;

use testkit::command::{program, text};

use crate::export::Export;
use crate::node::Node;

#[test]
fn every_command_takes_a_url() {
    let Some(export) = Export::new() else { return };
    let url = export.url();
    let made = export.ok(&["mkfs", "--label", "far", &url]);
    assert!(made.contains(" mmp "), "a volume on a network is protected: {made}");
    assert!(export.fails(&["mkfs", &url]).contains("use --force to overwrite it"));
    // Without protection, opening need not wait.
    export.ok(&["mkfs", "--force", "-O", "^mmp", &url]);
    assert!(export.ok(&["info", &url]).starts_with(&format!("{url}: ext4, ")));
    assert!(export.ok(&["info", "--json", &url]).contains(&format!("\"image\": \"{url}\"")));

    let tree = export.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "contents").unwrap();
    export.ok(&["put", "--quiet", &text(&tree), &export.inside("/copy")]);
    export.ok(&["put", "--quiet", &text(&tree.join("file")), &url]);
    assert_eq!(export.ok(&["ls", &url]), "copy\nfile\nlost+found\n");
    assert_eq!(export.ok(&["cat", &export.inside("/copy/file")]), "contents");
    export.ok(&["get", "--quiet", &url, &text(&export.path("back"))]);
    assert_eq!(fs::read_to_string(export.path("back/copy/file")).unwrap(), "contents");
    export.ok(&["mkdir", &export.inside("/dir")]);
    export.ok(&["fallocate", "--length", "1M", &export.inside("/copy/file")]);
    assert!(export.ok(&["fiemap", &export.inside("/copy/file")]).contains("unwritten"));
    export.ok(&["rm", &export.inside("/file")]);
    assert_eq!(export.ok(&["recover", &url]), "replayed 0 transactions, 0 blocks\n");
    assert!(export.fails(&["takeover", &url]).contains("nothing shows when its owner is gone"));
    export.fsck();
}

#[test]
fn what_a_url_cannot_do_is_said() {
    let Some(export) = Export::new() else { return };
    let url = export.url();
    export.ok(&["mkfs", "-O", "^mmp", &url]);
    let inside = export.inside("/file");
    assert!(export.fails(&["info", &inside]).contains(&url));
    assert!(export.fails(&["demo", "--image", &url]).contains("a URL; the demo makes an image file"));
    assert!(export.fails(&["info", "tape:one"]).contains("unknown scheme \"tape\""));
    // A file with such a name.
    let run = |image: &str| {
        let mut command = std::process::Command::new(program());
        command.current_dir(export.path("")).args(["mkfs", "--size", "16M", image]).output().unwrap()
    };
    assert!(run("./rbd:x").status.success() && export.path("rbd:x").exists());
    let arguments = ["mount", "--standby", "-o", "nonempty", &url, &text(&export.path(""))];
    assert!(export.fails(&arguments).contains("the volume has no MMP and its device has no lock"));
}

#[test]
fn a_url_is_mounted_and_closed_when_umount_returns() {
    let Some(export) = Export::new() else { return };
    export.ok(&["mkfs", "-O", "^mmp", &export.url()]);
    let Some(node) = Node::new(&export.url(), "mount") else { return };
    node.mount(&[]);
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(mounts.contains(&format!("{} {} fuse.parext4 ", export.url(), text(node.dir()))), "{mounts}");
    fs::write(node.dir().join("file"), "contents").unwrap();
    let mounted = export.fails(&["mount", "-o", "remount,noatime", &export.url(), &text(node.dir())]);
    assert!(mounted.contains("\"remount\" changes ro, rw"), "{mounted}");
    export.ok(&["mount", "-o", "remount,ro", &export.url(), &text(node.dir())]);
    export.ok(&["mount", "-o", "remount,rw", &export.url(), &text(node.dir())]);
    node.umount();
    assert_eq!(export.ok(&["cat", &export.inside("/file")]), "contents");
    export.fsck();
}
