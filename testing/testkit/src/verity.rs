//! Files that fs-verity protects, made without the kernel: the Merkle tree and the descriptor are
//! computed here, stored as ext4 does, and debugfs sets the size and the flag.

use std::path::Path;
use std::process::Command;

use parext4::{OpenOptions, Volume};
use ring::digest::{Algorithm, Context, SHA256, SHA512, digest};

use crate::tool;

/// How a file is protected.
#[derive(Clone, Copy, Debug)]
pub struct Protection {
    /// SHA-512 instead of SHA-256.
    pub sha512: bool,
    /// Bytes of a block of the tree.
    pub block_size: usize,
    /// What each hash includes before its block.
    pub salt: &'static [u8],
}

/// The tree and the descriptor of a file.
#[derive(Clone, Debug)]
pub struct Metadata {
    /// The blocks of the tree, the highest level first.
    pub tree: Vec<u8>,
    /// The descriptor, without a signature.
    pub descriptor: Vec<u8>,
}

impl Protection {
    /// The default of fsverity(1).
    pub const DEFAULT: Self = Self { sha512: false, block_size: 4096, salt: &[] };

    fn function(self) -> &'static Algorithm {
        if self.sha512 { &SHA512 } else { &SHA256 }
    }

    /// Returns the hashes of all blocks of `data`.
    fn hashes(self, data: &[u8]) -> Vec<u8> {
        let function = self.function();
        let hash = |block: &[u8]| {
            let mut context = Context::new(function);
            if !self.salt.is_empty() {
                let mut salt = self.salt.to_vec();
                salt.resize(function.block_len(), 0);
                context.update(&salt);
            }
            context.update(block);
            context.update(&vec![0; self.block_size - block.len()]);
            context.finish().as_ref().to_vec()
        };
        data.chunks(self.block_size).flat_map(hash).collect()
    }

    /// Computes the metadata of a file with this data.
    pub fn of(self, data: &[u8]) -> Metadata {
        let mut levels = vec![];
        let mut hashes = self.hashes(data);
        while hashes.len() > self.function().output_len() {
            hashes.resize(hashes.len().next_multiple_of(self.block_size), 0);
            let above = self.hashes(&hashes);
            levels.push(std::mem::replace(&mut hashes, above));
        }
        levels.reverse();
        let mut descriptor = vec![0; 256];
        let bits = u8::try_from(self.block_size.ilog2()).expect("the bits of a block");
        let salt_size = u8::try_from(self.salt.len()).expect("a salt of at most 32 bytes");
        descriptor[..4].copy_from_slice(&[1, if self.sha512 { 2 } else { 1 }, bits, salt_size]);
        descriptor[8..16].copy_from_slice(&(data.len() as u64).to_le_bytes());
        descriptor[16..16 + hashes.len()].copy_from_slice(&hashes);
        descriptor[80..80 + self.salt.len()].copy_from_slice(self.salt);
        Metadata { tree: levels.concat(), descriptor }
    }

    /// Returns the digest of a file with this data, as fsverity(1) prints it.
    pub fn digest(self, data: &[u8]) -> String {
        let digest = digest(self.function(), &self.of(data).descriptor);
        let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}:{hex}", if self.sha512 { "sha512" } else { "sha256" })
    }
}

impl Metadata {
    /// Returns what ext4 stores from [`offset`] on, on a volume with blocks of `block_size` bytes.
    pub fn stored(&self, block_size: usize) -> Vec<u8> {
        let mut bytes = self.tree.clone();
        bytes.resize(bytes.len().next_multiple_of(block_size), 0);
        bytes.extend_from_slice(&self.descriptor);
        bytes.resize((bytes.len() + 4).next_multiple_of(block_size) - 4, 0);
        let len = u32::try_from(self.descriptor.len()).expect("a short descriptor");
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes
    }
}

/// Returns where the tree of a file of `size` bytes begins.
pub fn offset(size: usize) -> u64 {
    size.next_multiple_of(65536) as u64
}

/// Writes a file and what ext4 stores of its protection, as a program that enables fs-verity and is
/// interrupted before the last step: the file does not have the flag, and is longer than its data.
/// Whole blocks of zeros become holes.
pub fn write(volume: &Volume, path: &str, data: &[u8], stored: &[u8]) {
    let file = volume.open_file(path, &OpenOptions::read_write().create_new(true)).unwrap();
    for (at, block) in data.chunks(4096).enumerate().filter(|(_, block)| block.iter().any(|&byte| byte != 0))
    {
        file.write_all_at(block, at as u64 * 4096).unwrap();
    }
    file.write_all_at(stored, offset(data.len())).unwrap();
    file.sync_all().unwrap();
}

/// Sets the size of a file that was [written](fn@write), and with `protected` the flag. The volume
/// is closed.
pub fn set_size(image: &Path, path: &str, size: u64, protected: bool) {
    let set = |field: &str, value: String| {
        let request = format!("set_inode_field {path} {field} {value}");
        tool(Command::new("debugfs").args(["-w", "-R", &request]).arg(image));
    };
    set("size", size.to_string());
    if protected {
        set("flags", "0x180000".to_owned());
    }
}
