//! File types, with their encodings in the mode of an inode and in a directory entry.

/// The bits of the mode that encode the file type (`S_IFMT`).
const MASK: u16 = 0o170_000;

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl FileType {
    /// Every type with its mode bits and its number in a directory entry.
    const CODES: [(Self, u16, u8); 7] = [
        (Self::Regular, 0o100_000, 1),
        (Self::Directory, 0o040_000, 2),
        (Self::CharDevice, 0o020_000, 3),
        (Self::BlockDevice, 0o060_000, 4),
        (Self::Fifo, 0o010_000, 5),
        (Self::Socket, 0o140_000, 6),
        (Self::Symlink, 0o120_000, 7),
    ];

    /// Returns the type in the bits of a mode.
    #[must_use]
    pub fn from_mode(mode: u16) -> Option<Self> {
        Self::CODES.iter().find(|(_, bits, _)| *bits == mode & MASK).map(|(kind, ..)| *kind)
    }

    /// Returns the type in a directory entry; 0 (unknown) and undefined numbers are `None`.
    #[must_use]
    pub fn from_dirent_type(code: u8) -> Option<Self> {
        Self::CODES.iter().find(|(.., dirent)| *dirent == code).map(|(kind, ..)| *kind)
    }

    /// Returns the type's bits of a mode.
    #[must_use]
    pub fn mode_bits(self) -> u16 {
        self.codes().0
    }

    /// Returns the type's number in a directory entry.
    #[must_use]
    pub fn dirent_type(self) -> u8 {
        self.codes().1
    }

    fn codes(self) -> (u16, u8) {
        let code = Self::CODES.iter().find(|(kind, ..)| *kind == self);
        code.map(|(_, bits, dirent)| (*bits, *dirent)).expect("the table has every type")
    }
}

#[cfg(test)]
mod tests {
    use super::FileType;

    #[test]
    fn codes_are_inverse() {
        for (kind, bits, dirent) in FileType::CODES {
            assert_eq!(FileType::from_mode(bits | 0o777), Some(kind));
            assert_eq!(FileType::from_dirent_type(dirent), Some(kind));
            assert_eq!((kind.mode_bits(), kind.dirent_type()), (bits, dirent));
        }
        assert_eq!(FileType::from_mode(0o777), None);
        assert_eq!(FileType::from_dirent_type(0), None);
    }
}
