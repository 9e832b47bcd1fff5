//! File systems made by mke2fs, as known answers.

use std::path::Path;
use std::process::Command;

use parext4_format::group_desc::GroupDesc;
use parext4_format::inode::Inode;
use parext4_format::superblock::Superblock;
use parext4_format::{GroupNo, InodeNo};

/// The bytes of a whole volume.
pub struct Image {
    pub bytes: Vec<u8>,
    pub sb: Superblock,
}

impl Image {
    /// Makes a volume of 64 MiB, or prints the reason why it cannot.
    pub fn make(options: &[&str], files: Option<&Path>) -> Option<Self> {
        let bytes = mke2fs(options, files)?;
        let sb = Superblock::parse(&bytes[1024..2048]).unwrap_or_else(|e| panic!("{options:?}: {e}"));
        Some(Self { bytes, sb })
    }

    pub fn block(&self, block: u64) -> &[u8] {
        let size = self.sb.block_size() as usize;
        &self.bytes[block as usize * size..][..size]
    }

    /// Returns the bytes of a group's descriptor.
    pub fn desc_bytes(&self, group: u32) -> &[u8] {
        let table = self.sb.first_gdt_block().get() as usize * self.sb.block_size() as usize;
        let size = usize::from(self.sb.desc_size());
        &self.bytes[table + group as usize * size..][..size]
    }

    pub fn desc(&self, group: u32) -> GroupDesc {
        GroupDesc::parse(self.desc_bytes(group), &self.sb, GroupNo(group)).unwrap()
    }

    pub fn inode_bytes(&self, ino: u32) -> &[u8] {
        let (group, index) = ((ino - 1) / self.sb.inodes_per_group(), (ino - 1) % self.sb.inodes_per_group());
        let table = self.desc(group).inode_table.get() as usize * self.sb.block_size() as usize;
        let size = usize::from(self.sb.inode_size());
        &self.bytes[table + index as usize * size..][..size]
    }

    pub fn inode(&self, ino: u32) -> Inode {
        Inode::parse(self.inode_bytes(ino), &self.sb, InodeNo(ino)).unwrap()
    }

    /// Returns the output of an e2fsprogs command on this volume.
    pub fn ask(&self, command: &str, args: &[&str]) -> Option<String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &self.bytes).unwrap();
        let Ok(output) = Command::new(command).args(args).arg(file.path()).output() else {
            eprintln!("SKIPPED: {command} cannot be run, so part of this test checked nothing");
            return None;
        };
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn mke2fs(options: &[&str], files: Option<&Path>) -> Option<Vec<u8>> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-U", "01234567-89ab-cdef-0123-456789abcdef"]).args(options);
    if let Some(files) = files {
        command.arg("-d").arg(files);
    }
    let Ok(output) = command.arg(file.path()).arg("64M").output() else {
        eprintln!("SKIPPED: mke2fs cannot be run, so this test checked nothing");
        return None;
    };
    assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(std::fs::read(file.path()).unwrap())
}
