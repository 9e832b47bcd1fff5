//! Tests of fast commits: complete, cut off, of another transaction, and any bytes.

use proptest::prelude::*;

use super::*;

const TID: u32 = 7;
const BLOCK: usize = 1024;

/// A fast commit that is being written.
#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    /// The start of the fast commit.
    start: usize,
}

impl Writer {
    fn tag(&mut self, kind: u16, value: &[u8]) {
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend(u16::try_from(value.len()).unwrap().to_le_bytes());
        self.bytes.extend(value);
    }

    fn head(&mut self, features: u32, tid: u32) {
        self.tag(HEAD, &[features.to_le_bytes(), tid.to_le_bytes()].concat());
    }

    fn name(&mut self, kind: u16, name: &[u8]) {
        self.tag(kind, &[&2_u32.to_le_bytes()[..], &12_u32.to_le_bytes(), name].concat());
    }

    /// Writes a tail that fills the block.
    fn tail(&mut self, tid: u32, wrong: u32) {
        let rest = BLOCK - self.bytes.len() % BLOCK - TAG_HEADER;
        self.bytes.extend(TAIL.to_le_bytes());
        self.bytes.extend(u16::try_from(rest).unwrap().to_le_bytes());
        self.bytes.extend(tid.to_le_bytes());
        let crc = crc32c(0, &self.bytes[self.start..]) ^ wrong;
        self.bytes.extend(crc.to_le_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
        self.start = self.bytes.len();
    }

    fn scan(&self) -> Vec<Change> {
        scan(&self.bytes).unwrap()
    }
}

fn scan(bytes: &[u8]) -> Result<Vec<Change>> {
    let (mut scan, mut changes) = (Scan::new(TID, 256), Vec::new());
    let mut visit = |nth, change| {
        assert_eq!(nth, changes.len() as u64);
        changes.push(change);
        Ok(())
    };
    for block in bytes.chunks(BLOCK) {
        if !scan.block(block, &mut visit)? {
            break;
        }
    }
    changes.truncate(usize::try_from(scan.complete()).unwrap());
    Ok(changes)
}

#[test]
fn complete_fast_commits_are_read() {
    let mut area = Writer::default();
    area.head(0, TID);
    area.name(CREATE, b"name");
    let range = [12_u32, 5, 0x8003 | 1 << 16, 99].map(u32::to_le_bytes).concat();
    area.tag(ADD_RANGE, &range);
    area.tail(TID, 0);
    area.tag(DEL_RANGE, &[12_u32, 1, 2].map(u32::to_le_bytes).concat());
    area.tag(INODE, &[&12_u32.to_le_bytes()[..], &[1; 160]].concat());
    area.tail(TID, 0);
    // Not complete.
    area.name(UNLINK, b"name");
    area.tail(TID, 1);
    area.name(LINK, b"name");
    area.tail(TID, 0);
    let name = Name { parent: InodeNo(2), ino: InodeNo(12), name: b"name"[..].into() };
    let extent = Extent { logical: FileBlock(5), physical: FsBlock(1 << 32 | 99), len: 3, unwritten: true };
    let changes = [
        Change::Create(name),
        Change::AddRange(InodeNo(12), extent),
        Change::DelRange { ino: InodeNo(12), start: FileBlock(1), len: 2 },
        Change::Inode(InodeNo(12), [1; 160].into()),
    ];
    assert_eq!(area.scan(), changes);
}

#[test]
fn other_areas_hold_nothing() {
    assert_eq!(scan(&[0; 2 * BLOCK]), Ok(vec![]));
    for (head, tail) in [(TID - 1, TID - 1), (TID, TID - 1), (TID + 1, TID)] {
        let mut area = Writer::default();
        area.head(0, head);
        area.name(LINK, b"name");
        area.tail(tail, 0);
        assert_eq!(area.scan(), []);
    }
    let mut headless = Writer::default();
    headless.name(LINK, b"name");
    headless.tail(TID, 0);
    assert_eq!(headless.scan(), []);
    let mut later = Writer::default();
    later.head(1, TID);
    later.tail(TID, 0);
    assert_eq!(scan(&later.bytes).unwrap_err().field, "fc_features");
}

#[test]
fn a_bad_length_ends_the_area() {
    let bad =
        [(LINK, 8), (LINK, 264), (ADD_RANGE, 15), (DEL_RANGE, 13), (INODE, 131), (INODE, 261), (TAIL, 7)];
    for (kind, len) in bad {
        let mut area = Writer::default();
        area.head(0, TID);
        area.name(LINK, b"a");
        area.tail(TID, 0);
        area.tag(kind, &vec![1; len]);
        area.tail(TID, 0);
        assert_eq!(area.scan().len(), 1, "{kind} {len}");
    }
}

proptest! {
    #[test]
    fn any_bytes(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..3 * BLOCK),
        kinds in proptest::collection::vec((0_u16..11, 0_u16..300), 0..20),
    ) {
        let mut at = 0;
        for (kind, len) in kinds {
            let Some(header) = bytes.get_mut(at..at + TAG_HEADER) else { break };
            header[..2].copy_from_slice(&kind.to_le_bytes());
            header[2..].copy_from_slice(&len.to_le_bytes());
            at += TAG_HEADER + usize::from(len);
        }
        let _ = scan(&bytes);
    }
}
