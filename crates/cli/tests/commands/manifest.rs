//! Limits of what `put` reads.

use std::fs;

use testkit::command::{ScratchImage, text};

#[test]
fn lines_of_a_manifest_have_a_limit() {
    let scratch = ScratchImage::new(&[]);
    let (manifest, file) = (scratch.path("manifest"), scratch.path("file"));
    fs::write(&file, "x").unwrap();
    let put =
        ["put", "-q", "--manifest", &text(&manifest), &text(&file), &scratch.inside("/")].map(str::to_owned);
    let long = "x".repeat(1 << 20);
    for (text, wrong) in [
        (format!("/file f 644 {long}"), "line 1: longer than 81920 bytes"),
        (format!("# a comment\n/{long}"), "line 2: longer than"),
        (format!("/file f {} 0 0", &long[..60000]), "is no mode in octal digits"),
        (format!("/file {} 0 0", &long[..60000]), "unknown type"),
        (format!("/file f 644 {}", &long[..60000]), "is not a number"),
        (format!("/{} f 644 0 0", &long[..60000]), "a path of 60001 bytes; the longest has 4095"),
    ] {
        fs::write(&manifest, text).unwrap();
        let error = scratch.fails(&put);
        assert!(error.contains(wrong) && error.len() < 400, "{wrong}: {} bytes", error.len());
    }
    fs::write(&manifest, format!("/file x user.a={}\n", &long[..500])).unwrap();
    scratch.ok(&put);
    fs::write(&manifest, b"/file f 644 0 0\n\xff\n").unwrap();
    assert!(scratch.fails(&put).contains("line 2: is not UTF-8"));
}
