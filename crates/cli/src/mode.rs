//! File types and permissions as `ls -l` writes them.

use parext4::FileType;

/// Returns the ten letters of a mode, such as `drwxr-xr-t`.
pub fn string(file_type: FileType, permissions: u16) -> String {
    let mut letters = String::with_capacity(10);
    letters.push(type_letter(file_type));
    // For each class of users: the shift of its three bits, its special bit, and the special bit's
    // letter.
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = permissions >> shift;
        letters.push(if bits & 4 != 0 { 'r' } else { '-' });
        letters.push(if bits & 2 != 0 { 'w' } else { '-' });
        letters.push(match (bits & 1 != 0, permissions & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    letters
}

/// Returns the letters of an inode of which only the type is known, such as `-?????????`.
pub fn unknown(file_type: FileType) -> String {
    format!("{}?????????", type_letter(file_type))
}

fn type_letter(file_type: FileType) -> char {
    match file_type {
        FileType::Regular => '-',
        FileType::Directory => 'd',
        FileType::Symlink => 'l',
        FileType::CharDevice => 'c',
        FileType::BlockDevice => 'b',
        FileType::Fifo => 'p',
        FileType::Socket => 's',
    }
}

/// Returns a file type as a word, for JSON.
pub fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::CharDevice => "char-device",
        FileType::BlockDevice => "block-device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}

#[cfg(test)]
mod tests {
    use super::{FileType, string, unknown};

    #[test]
    fn modes_read_as_ls_writes_them() {
        assert_eq!(string(FileType::Regular, 0o644), "-rw-r--r--");
        assert_eq!(string(FileType::Directory, 0o1777), "drwxrwxrwt");
        assert_eq!(string(FileType::Regular, 0o6755), "-rwsr-sr-x");
        assert_eq!(string(FileType::Regular, 0o7000), "---S--S--T");
        assert_eq!(string(FileType::Symlink, 0o777), "lrwxrwxrwx");
        assert_eq!(string(FileType::CharDevice, 0o620), "crw--w----");
        assert_eq!(unknown(FileType::Directory), "d?????????");
    }
}
