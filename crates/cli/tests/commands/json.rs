//! `--json`: the fields that docs/json.md lists, and names that are not UTF-8.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;

use serde_json::Value;
use testkit::command::{ScratchImage, run, text};

/// Runs a command and parses its output.
fn json(arguments: &[impl AsRef<OsStr>]) -> Value {
    let output = run(arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the fields that the tables below the headings of docs/json.md list for a command: of its
/// value, and of the objects in it.
fn documented(command: &str) -> Vec<BTreeSet<String>> {
    let text = include_str!("../../../../docs/json.md");
    let is_of_command = |section: &&str| {
        let heading = section.lines().next().unwrap_or_default();
        heading.split(" and ").any(|name| name == command)
    };
    let section = text.split("\n## ").find(is_of_command).unwrap();
    let rows = |table: &str| {
        let cells = table
            .lines()
            .filter_map(|line| line.strip_prefix("| `"))
            .filter_map(|row| row.split(" | ").next());
        cells.flat_map(|cell| cell.split(", ")).map(|name| name.trim_matches('`').to_owned()).collect()
    };
    section.split("\n| field").skip(1).map(rows).collect()
}

fn fields(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

#[test]
fn all_fields_are_documented() {
    let scratch = ScratchImage::new(&[]);
    let (image, file) = (text(&scratch.image()), scratch.path("file"));
    fs::write(&file, vec![7; 5000]).unwrap();
    let inside = scratch.inside("/file");

    let put = json(&["put", "--json", &text(&file), &image]);
    assert_eq!((&put["files"], &put["bytes"], &put["warnings"]), (&1.into(), &5000.into(), &0.into()));
    assert_eq!(put["errors"], 0);
    assert_eq!((&put["image"], &put["path"]), (&image.clone().into(), &"/".into()));
    let get = json(&["get", "--json", &inside, &text(&scratch.path("out"))]);
    assert_eq!((&get["files"], &get["bytes"], &get["path"]), (&1.into(), &5000.into(), &"/file".into()));
    let map = json(&["fiemap", "--json", &inside]);
    assert_eq!((&map["size"], &map["extents"][0]["offset"]), (&5000.into(), &0.into()));
    assert_eq!(fields(&map["extents"][0]), documented("fiemap")[1]);
    let recovered = json(&["recover", "--json", &image]);
    assert_eq!((&recovered["transactions"], &recovered["blocks"]), (&0.into(), &0.into()));
    let list = json(&["ls", "--json", &image]);
    assert_eq!(
        (&list[0]["name"], &list[0]["path"], &list[0]["target"]),
        (&"file".into(), &"/file".into(), &Value::Null)
    );
    let quotas = ScratchImage::new(&["-O", "quota"]);
    let quotas = json(&["quota", "--json", &text(&quotas.image())]);
    assert_eq!(fields(&quotas["quotas"][0]), documented("quota")[1]);
    let made = json(&["mkfs", "--json", "--size", "4M", &text(&scratch.path("new.img"))]);
    assert_eq!(made["size"], 4 << 20);
    let info = json(&["info", "--json", &image]);
    let values = [("put", &put), ("get", &get), ("fiemap", &map), ("recover", &recovered), ("ls", &list[0])];
    for (command, value) in values.into_iter().chain([("mkfs", &made), ("info", &info), ("quota", &quotas)]) {
        assert_eq!(fields(value), documented(command)[0], "{command}");
    }
}

#[test]
fn names_lose_no_bytes() {
    let scratch = ScratchImage::empty();
    let mut image = scratch.path("a").into_os_string().into_vec();
    image.extend(b"\xff.img");
    let (image, tree) = (OsString::from_vec(image), scratch.path("tree"));
    fs::create_dir(&tree).unwrap();
    let name = OsStr::from_bytes(b"n\xe4me\xff");
    symlink(OsStr::from_bytes(b"t\xe4rget"), tree.join(name)).unwrap();

    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let made =
        json(&["mkfs".as_ref(), "--json".as_ref(), "--size".as_ref(), "4M".as_ref(), image.as_os_str()]);
    assert_eq!(made["image_hex"], hex(image.as_bytes()));
    let put = json(&["put".as_ref(), "--json".as_ref(), tree.join(".").as_os_str(), image.as_os_str()]);
    assert_eq!(put["image_hex"], hex(image.as_bytes()));
    assert!(put.get("path_hex").is_none());

    let list = json(&["ls".as_ref(), "--json".as_ref(), image.as_os_str()]);
    let entry = list.as_array().unwrap().iter().find(|entry| entry["type"] == "symlink").unwrap();
    assert_eq!(
        (&entry["name"], &entry["name_hex"]),
        (&"n\u{fffd}me\u{fffd}".into(), &hex(name.as_bytes()).into())
    );
    assert_eq!(entry["path_hex"], hex(b"/n\xe4me\xff"));
    assert_eq!(entry["target_hex"], hex(b"t\xe4rget"));
}
