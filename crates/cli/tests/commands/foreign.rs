//! Images of other formats: each command names the format, and a command that converts it.

use std::fs;
use std::path::Path;
use std::process::Command;

use testkit::command::{ScratchImage, run, text};
use testkit::{skip_allowed, tool};

/// Bytes of each image.
const SIZE: usize = 2 << 20;

/// Offset from the end of an image.
const fn end(bytes: usize) -> usize {
    SIZE - bytes
}

/// A format, its magic number and where that lies, and a command that the message names (`@` stands
/// for the image).
type Format = (&'static str, usize, &'static [u8], &'static str);

const FORMATS: &[Format] = &[
    ("a QCOW2 image", 0, b"QFI\xfb", "qemu-img convert -O raw @ raw.img"),
    ("a VMDK image", 0, b"KDMV", "qemu-img convert -O raw @ raw.img"),
    ("a VMDK image", 0, b"# Disk DescriptorFile\n", "qemu-img convert -O raw @ raw.img"),
    ("a VHD image", end(512), b"conectix", "qemu-img convert -O raw @ raw.img"),
    ("a VHDX image", 0, b"vhdxfile", "qemu-img convert -O raw @ raw.img"),
    ("a VDI image", 0x40, &[0x7f, 0x10, 0xda, 0xbe], "qemu-img convert -O raw @ raw.img"),
    ("a Parallels image", 0, b"WithouFreSpacExt", "qemu-img convert -O raw @ raw.img"),
    ("a QCOW2 image of e2image", 0, E2IMAGE_QCOW2, "e2image -r @ raw.img"),
    ("an e2image file", 0, &[0x10, 0xb7, 0x2b, 0x7f], "debugfs -i @"),
    ("a JFFS2 file system", 0, &[0x85, 0x19, 0x03, 0x20], "mount -o ro @ /mnt"),
    ("a UBI image", 0, b"UBI#", "ubiattach"),
    ("an Android boot image", 0, b"ANDROID!", "unpack_bootimg --boot_img @"),
    ("an Android super image", 0x1000, b"gDla", "lpunpack @"),
    ("an Apple disk image", end(512), b"koly", "qemu-img convert -O raw @ raw.img"),
    ("an Android sparse image", 0, &[0x3a, 0xff, 0x26, 0xed], "simg2img @ raw.img"),
    ("data compressed by gzip", 0, &[0x1f, 0x8b, 0x08], "gzip -dc @ > raw.img"),
    ("data compressed by bzip2", 0, b"BZh9", "bzip2 -dc @ > raw.img"),
    ("data compressed by xz", 0, b"\xfd7zXZ\0", "xz -dc @ > raw.img"),
    ("data compressed by zstd", 0, &[0x28, 0xb5, 0x2f, 0xfd], "zstd -dc @ > raw.img"),
    ("data compressed by lz4", 0, &[0x04, 0x22, 0x4d, 0x18], "lz4 -dc @ > raw.img"),
    ("a zip archive", 0, b"PK\x03\x04", "unzip @"),
    ("a 7z archive", 0, b"7z\xbc\xaf\x27\x1c", "7z x @"),
    ("a tar archive", 0x101, b"ustar", "parext4 put --tar @ new.img"),
    ("an ISO 9660 file system", 0x8001, b"CD001", "mount -o ro @ /mnt"),
    ("a SquashFS file system", 0, b"hsqs", "mount -o ro @ /mnt"),
    ("an XFS file system", 0, b"XFSB", "mount -o ro @ /mnt"),
    ("a Btrfs file system", 0x1_0040, b"_BHRfS_M", "mount -o ro @ /mnt"),
    ("a LUKS volume", 0, b"LUKS\xba\xbe", "cryptsetup open @ NAME"),
];

/// The header of version 2 with clusters of 1 KiB, and the first table in the second cluster.
const E2IMAGE_QCOW2: &[u8] = &[
    b'Q', b'F', b'I', 0xfb, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 1, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 128, 0, 0, 0, 0, 0, 0, 4, 0,
];

/// Programs that convert a raw image to a file, which they name last, and the format that they
/// make.
const CONVERTERS: &[(&str, &[&str], &str)] = &[
    ("qemu-img", &["convert", "-O", "qcow2"], "a QCOW2 image"),
    ("qemu-img", &["convert", "-O", "vmdk"], "a VMDK image"),
    ("qemu-img", &["convert", "-O", "vpc"], "a VHD image"),
    ("qemu-img", &["convert", "-O", "vhdx"], "a VHDX image"),
    ("qemu-img", &["convert", "-O", "vdi"], "a VDI image"),
    ("qemu-img", &["convert", "-O", "parallels"], "a Parallels image"),
    ("img2simg", &[], "an Android sparse image"),
    ("xz", &["-k", "-c"], "data compressed by xz"),
    ("gzip", &["-k", "-c"], "data compressed by gzip"),
    ("bzip2", &["-k", "-c"], "data compressed by bzip2"),
    ("zstd", &["-q", "-c"], "data compressed by zstd"),
    ("lz4", &["-q", "-c"], "data compressed by lz4"),
    ("tar", &["-c", "-f", "-"], "a tar archive"),
    ("e2image", &["-Q"], "a QCOW2 image of e2image"),
    ("e2image", &[], "an e2image file"),
];

/// Runs the commands that open an image. Each must fail with a message that names `kind` and
/// `advice`.
fn is_named(scratch: &ScratchImage, image: &Path, kind: &str, advice: &str) {
    let name = text(image);
    let (dir, out) = (text(&scratch.path("dir")), text(&scratch.path("out")));
    let inside = format!("{name}:/f");
    let advice = format!("\"{}\"", advice.replace('@', &name));
    for command in [
        &["info", &name][..],
        &["ls", &name],
        &["get", &inside, &out],
        &["put", &dir, &name],
        &["mount", &name, &dir],
        &["recover", &name],
        &["check", &name],
    ] {
        let output = run(command);
        let error = String::from_utf8_lossy(&output.stderr);
        let begin = format!("parext4: {name}: not an ext4 volume, but {kind} (signature at byte ");
        assert!(error.starts_with(&begin) && error.contains(&advice), "{command:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert_eq!(output.status.code(), Some(if command[0] == "check" { 8 } else { 1 }), "{command:?}");
    }
}

#[test]
fn other_formats_are_named_with_a_command_that_converts_them() {
    let scratch = ScratchImage::empty();
    let image = scratch.path("other.img");
    fs::create_dir(scratch.path("dir")).unwrap();
    for &(kind, offset, magic, advice) in FORMATS {
        let mut bytes = vec![0; SIZE];
        bytes[offset..offset + magic.len()].copy_from_slice(magic);
        fs::write(&image, bytes).unwrap();
        is_named(&scratch, &image, kind, advice);
    }
}

#[test]
fn volumes_that_other_programs_converted_are_named() {
    let scratch = ScratchImage::empty();
    let (raw, image) = (scratch.path("raw.img"), scratch.path("other.img"));
    fs::create_dir(scratch.path("dir")).unwrap();
    scratch.ok(&["mkfs", "-q", "--size", "4M", &text(&raw)]);
    for &(program, options, kind) in CONVERTERS {
        let _ = fs::remove_file(&image);
        let mut command = Command::new(program);
        command.args(options).arg(&raw);
        let writes_output = options.iter().any(|option| ["-c", "-f"].contains(option));
        if !writes_output {
            command.arg(&image);
        }
        let Some(output) = tool(&mut command) else { continue };
        if !output.status.success() {
            skip_allowed(&format!("{program} {options:?} fails here"));
            continue;
        }
        if writes_output {
            fs::write(&image, output.stdout).unwrap();
        }
        let advice = FORMATS.iter().find(|(known, ..)| *known == kind).expect("it is in the table").3;
        is_named(&scratch, &image, kind, advice);
    }
}
