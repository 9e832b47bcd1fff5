//! Runs each program in `examples/`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Builds the examples with the profile of this test, and returns their directory.
fn examples() -> &'static Path {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
        // The test lies in `TARGET/PROFILE/deps/`, the examples in `TARGET/PROFILE/examples/`.
        let test = std::env::current_exe().unwrap();
        let built = test.ancestors().nth(2).unwrap();
        let profile = match built.file_name().unwrap().to_str().unwrap() {
            "debug" => "dev",
            profile => profile,
        };
        let mut cargo = Command::new(env!("CARGO"));
        // `cargo test` has set these for this program. Build scripts that read them would run
        // again, and everything that depends on their crates would be built again, now and at the
        // next `cargo test`.
        let is_of_this_program =
            |name: &str| ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|start| name.starts_with(start));
        for (name, _) in std::env::vars().filter(|(name, _)| is_of_this_program(name)) {
            cargo.env_remove(name);
        }
        // All packages, as `cargo xtask test` builds them: with the features of one package, the
        // engine would be built again.
        cargo.args(["build", "--quiet", "--workspace", "--examples", "--profile", profile]);
        cargo.arg("--target-dir").arg(built.parent().unwrap());
        assert!(cargo.status().unwrap().success(), "the examples do not build");
        built.join("examples")
    });
    &BUILT
}

/// Runs an example and returns what it prints.
fn run(name: &str, args: &[&Path]) -> String {
    let program = examples().join(name);
    let output = Command::new(&program).args(args).output().unwrap_or_else(|error| panic!("{name}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}: {err}{out}");
    out.into_owned()
}

#[test]
fn threads_append_to_one_log() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    assert!(run("log_writer", &[&image]).starts_with("8000 records of 8 threads, "));
    assert!(run("log_writer", &[&image]).starts_with("16000 records of 8 threads, "));
    testkit::volume::assert_clean_file(&image, "log_writer");
}

#[test]
fn a_tree_is_copied_out() {
    let dir = tempfile::tempdir().unwrap();
    let (image, copy) = (dir.path().join("disk.img"), dir.path().join("copy"));
    run("log_writer", &[&image]);
    let volume = parext4::Volume::open(&image).unwrap();
    volume.create_dir_all("/src/dir", 0o755).unwrap();
    volume.write("/src/dir/file", "text").unwrap();
    volume.symlink("/src/link", "dir").unwrap();
    volume.close().unwrap();
    assert_eq!(run("copy_out", &[&image, Path::new("/src"), &copy]), "1 files, 4 bytes\n");
    assert_eq!(std::fs::read(copy.join("dir/file")).unwrap(), b"text");
    assert!(!copy.join("link").exists());
}

#[test]
fn a_queue_writes_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    assert_eq!(run("io_queue", &[&image]), "1000 blocks written by one thread, up to 32 at a time\n");
    testkit::volume::assert_clean_file(&image, "io_queue");
}

#[test]
fn an_untrusted_image_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    run("log_writer", &[&image]);
    let before = std::fs::read(&image).unwrap();
    let listed = run("untrusted_image", &[&image]);
    assert!(listed.contains("/log ") && listed.ends_with("0 unreadable\n"), "{listed}");
    assert!(std::fs::read(&image).unwrap() == before, "the image is not changed");
    std::fs::write(&image, vec![0x5a; 1 << 20]).unwrap();
    assert!(run("untrusted_image", &[&image]).starts_with("not a sound volume: "));
}

#[test]
fn tasks_of_tokio_use_a_volume() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    assert_eq!(run("tokio", &[&image]), "8 tasks wrote 32768 bytes\n");
    testkit::volume::assert_clean_file(&image, "tokio");
    assert_eq!(run("tokio_queue", &[&image]), "64 tasks wrote 262144 bytes through one queue\n");
    testkit::volume::assert_clean_file(&image, "tokio_queue");
}
