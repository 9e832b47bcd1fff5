//! Composes an archive from the bytes of a fuzzer: headers with right checksums, and any fields.

/// The most members.
const MOST: usize = 40;
/// Bytes of a header, and what data is filled up to.
const BLOCK: usize = 512;
/// Where the fields of a header are, and their lengths.
const MODE: (usize, usize) = (100, 8);
const UID: (usize, usize) = (108, 8);
const GID: (usize, usize) = (116, 8);
const SIZE: (usize, usize) = (124, 12);
const MTIME: (usize, usize) = (136, 12);
const CHECKSUM: (usize, usize) = (148, 8);
const KIND: usize = 156;
const LINK: (usize, usize) = (157, 100);
const MAGIC: (usize, usize) = (257, 8);
const MAJOR: (usize, usize) = (329, 8);

/// Types of members: files, links, special files, directories, and the ones with names, records and
/// maps.
const KINDS: &[u8; 16] = b"0123456xgLKSDV7\0";
const NAMES: [&str; 12] =
    ["f", "d", "d/f", "s/f", "s", "loop/f", "../f", "/f", "d/../f", "./", "new/below/f", "f/f"];
const MAGICS: [&[u8; 8]; 3] = [b"ustar\x0000", b"ustar  \0", &[0; 8]];
const KEYS: [&str; 17] = [
    "path",
    "linkpath",
    "size",
    "uid",
    "mtime",
    "atime",
    "GNU.sparse.major",
    "GNU.sparse.realsize",
    "GNU.sparse.name",
    "GNU.sparse.map",
    "GNU.sparse.offset",
    "GNU.sparse.numbytes",
    "SCHILY.xattr.user.a",
    "SCHILY.acl.access",
    "SCHILY.acl.default",
    "SCHILY.fflags",
    "LIBARCHIVE.xattr.user.b",
];

/// Returns the archive that `bytes` stand for.
pub fn compose(mut bytes: &[u8]) -> Vec<u8> {
    let mut archive = Vec::new();
    for _ in 0..MOST {
        if bytes.is_empty() {
            break;
        }
        member(&mut bytes, &mut archive);
    }
    // The end mark.
    archive.resize(archive.len() + BLOCK, 0);
    archive
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(len.min(bytes.len()));
    *bytes = rest;
    taken
}

fn byte(bytes: &mut &[u8]) -> usize {
    take(bytes, 1).first().map_or(0, |byte| usize::from(*byte))
}

/// Returns a short name, or bytes of the input.
fn name(bytes: &mut &[u8]) -> Vec<u8> {
    match byte(bytes) {
        choice @ ..0xf0 => NAMES[choice % NAMES.len()].as_bytes().to_vec(),
        _ => {
            let len = byte(bytes);
            take(bytes, len).to_vec()
        }
    }
}

fn put(header: &mut [u8; BLOCK], (at, most): (usize, usize), value: &[u8]) {
    let len = value.len().min(most);
    header[at..at + len].copy_from_slice(&value[..len]);
}

fn octal(header: &mut [u8; BLOCK], field: (usize, usize), number: u64) {
    put(header, field, format!("{number:o}").as_bytes());
}

fn member(bytes: &mut &[u8], archive: &mut Vec<u8>) {
    let mut header = [0; BLOCK];
    header[KIND] = KINDS[byte(bytes) % KINDS.len()];
    let what = byte(bytes);
    put(&mut header, (0, 100), &name(bytes));
    put(&mut header, LINK, &name(bytes));
    put(&mut header, MAGIC, MAGICS[what % 3]);
    octal(&mut header, MODE, 0o644);
    octal(&mut header, UID, byte(bytes) as u64);
    octal(&mut header, GID, 0);
    octal(&mut header, MTIME, 1 << 30);
    octal(&mut header, MAJOR, 5);
    let data = match header[KIND] {
        b'x' | b'g' => (0..=(what / 64)).flat_map(|_| record(bytes)).collect(),
        _ => {
            let len = byte(bytes) * if what & 32 == 0 { 1 } else { 64 };
            let mut data = take(bytes, len.min(64)).to_vec();
            data.resize(len, b'1');
            data
        }
    };
    octal(&mut header, SIZE, data.len() as u64);
    if what & 16 != 0 {
        // Any bytes anywhere.
        let at = byte(bytes) * 2;
        let len = 1 + byte(bytes) % 12;
        let raw = take(bytes, len);
        put(&mut header, (at, BLOCK - at), raw);
    }
    header[CHECKSUM.0..CHECKSUM.0 + CHECKSUM.1].fill(b' ');
    let sum = header.iter().map(|byte| u64::from(*byte)).sum();
    octal(&mut header, CHECKSUM, sum);
    archive.extend(header);
    archive.extend(&data);
    archive.resize(archive.len().next_multiple_of(BLOCK), 0);
}

/// Returns a record of the PAX format, mostly with the right length.
fn record(bytes: &mut &[u8]) -> Vec<u8> {
    let key = KEYS[byte(bytes) % KEYS.len()];
    let choice = byte(bytes);
    let value = match choice % 4 {
        0 => choice.to_string().into_bytes(),
        1 => format!("{},{choice},{},1", choice * 4096, 1_u64 << (choice % 64)).into_bytes(),
        2 => name(bytes),
        _ => {
            let len = byte(bytes);
            take(bytes, len).to_vec()
        }
    };
    let rest = [b" ", key.as_bytes(), b"=", &value, b"\n"].concat();
    // The length counts its own digits.
    let len = (1..).map(|digits| rest.len() + digits).find(|len| rest.len() + len.to_string().len() == *len);
    let len = len.unwrap_or(0) + usize::from(choice == 0xff);
    [len.to_string().as_bytes(), &rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_composed_is_an_archive() {
        // A file, and a directory.
        let archive = compose(&[0, 0, 0, 0, 7, 4, b'd', b'a', b't', b'a', 5, 0, 1, 0, 0, 0]);
        let mut archive = tar::Archive::new(&archive[..]);
        let names: Vec<_> =
            archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned()).collect();
        assert_eq!(names, [std::path::Path::new("f"), std::path::Path::new("d")]);
    }
}
