//! Requests and replies of the protocol as bytes (`include/uapi/linux/fuse.h`).

use fuser::InitFlags;

/// The `unique` number of the first request.
pub const FIRST: u64 = 2;
/// Bytes of `struct fuse_in_header` and `struct fuse_out_header`.
const IN_HEADER: usize = 40;
const OUT_HEADER: usize = 16;
/// Length of the longest body that one byte of an input encodes, in bytes: the last byte of the
/// body is repeated.
const LONG: usize = 9000;

// Numbers of operations to which this module gives a meaning.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const SETATTR: u32 = 4;
const SYMLINK: u32 = 6;
const MKNOD: u32 = 8;
const MKDIR: u32 = 9;
const LINK: u32 = 13;
const READ: u32 = 15;
const WRITE: u32 = 16;
const SETXATTR: u32 = 21;
const INIT: u32 = 26;
const READDIR: u32 = 28;
pub const CREATE: u32 = 35;
const DESTROY: u32 = 38;
const IOCTL: u32 = 39;
const BATCH_FORGET: u32 = 42;
const READDIRPLUS: u32 = 44;
/// Number of operation codes that are sent: the codes of the protocol, and further ones without an
/// operation.
const OPERATIONS: u32 = 56;
/// Offset of the size in `struct fuse_read_in` and `struct fuse_write_in`, and the largest size of
/// a read. The kernel does not ask for more than its pages.
const SIZE_AT: usize = 16;
const MOST_READ: u32 = 128 << 10;
/// Bytes of `struct fuse_write_in`, and of `struct fuse_ioctl_in` with the offset of its size.
const WRITE_HEADER: usize = 40;
const IOCTL_HEADER: usize = 32;
const IOCTL_SIZE_AT: usize = 24;
/// Offset of the name in a request to set an attribute. The value follows the name.
const NAME_AT: usize = 8;

/// A request.
#[derive(Clone, Debug)]
pub struct Message {
    pub operation: u32,
    pub node: u64,
    /// User, group and process.
    pub ids: [u32; 3],
    pub body: Vec<u8>,
}

/// The nodes that replies have named.
#[derive(Debug)]
pub struct Nodes(Vec<u64>);

/// A reply.
#[derive(Debug)]
pub struct Reply {
    /// The number of the request.
    pub unique: u64,
    pub error: i32,
    pub body: Vec<u8>,
}

impl Message {
    /// Decodes the next message of an input: a byte each for the operation, the node, the user, and
    /// the length of the body, which follows.
    pub fn decode(input: &mut &[u8], nodes: &Nodes) -> Option<Self> {
        let (&[operation, node, ids, len], rest) = input.split_first_chunk()?;
        let (body, rest) = rest.split_at(rest.len().min(usize::from(len)));
        *input = rest;
        let mut body = body.to_vec();
        if let (u8::MAX, Some(last)) = (len, body.last()) {
            body.resize(LONG, *last);
        }
        let operation = u32::from(operation) % OPERATIONS;
        set_lengths(operation, &mut body);
        set_times(operation, &mut body);
        let (uid, gid) = [(0, 0), (1000, 1000), (7, 0), (u32::MAX, u32::MAX)][usize::from(ids & 3)];
        Some(Self { operation, node: nodes.choose(node), ids: [uid, gid, u32::from(ids >> 2)], body })
    }

    /// Returns the request that ends a connection.
    pub fn destroy() -> Self {
        Self { operation: DESTROY, node: 0, ids: [0; 3], body: Vec::new() }
    }

    /// Returns false for requests that the server does not answer.
    pub fn has_reply(&self) -> bool {
        !matches!(self.operation, FORGET | BATCH_FORGET)
    }

    /// Returns true for the request that ends the connection.
    pub fn is_last(&self) -> bool {
        self.operation == DESTROY
    }

    /// Returns the bytes of the request.
    pub fn encode(&self, unique: u64) -> Vec<u8> {
        let len = u32::try_from(IN_HEADER + self.body.len()).expect("a short request");
        let [uid, gid, pid] = self.ids;
        let numbers = [len, self.operation].map(u32::to_le_bytes).concat();
        let long = [unique, self.node].map(u64::to_le_bytes).concat();
        let ids = [uid, gid, pid, 0].map(u32::to_le_bytes).concat();
        [numbers, long, ids, self.body.clone()].concat()
    }
}

/// Changes the times in a request to set attributes to times that the kernel may send, as `fuser`
/// assumes: fewer nanoseconds than a second has, and none beside the smallest and the largest
/// seconds.
fn set_times(operation: u32, body: &mut [u8]) {
    /// Offset of the seconds of three times in `struct fuse_setattr_in`, in bytes; the nanoseconds
    /// follow.
    const TIMES_AT: usize = 32;
    const NANOSECONDS_AT: usize = TIMES_AT + 3 * 8;
    if operation != SETATTR {
        return;
    }
    for nth in 0..3 {
        let seconds = body.get(TIMES_AT + 8 * nth..).and_then(|rest| rest.first_chunk().copied());
        let Some(field) = body.get_mut(NANOSECONDS_AT + 4 * nth..).and_then(|rest| rest.first_chunk_mut())
        else {
            return;
        };
        let is_limit =
            seconds.map(i64::from_le_bytes).is_none_or(|seconds| [i64::MIN, i64::MAX].contains(&seconds));
        let nanoseconds = if is_limit { 0 } else { u32::from_le_bytes(*field) % 1_000_000_000 };
        *field = nanoseconds.to_le_bytes();
    }
}

/// Changes the lengths in a request to values that the kernel may send, as `fuser` assumes.
fn set_lengths(operation: u32, body: &mut [u8]) {
    let len = body.len();
    let value = || body.get(NAME_AT..)?.iter().position(|byte| *byte == 0).map(|name| NAME_AT + name + 1);
    let (at, size) = match operation {
        READ | READDIR | READDIRPLUS => {
            let asked = body.get(SIZE_AT..).and_then(|rest| rest.first_chunk());
            (SIZE_AT, asked.map_or(0, |size| u32::from_le_bytes(*size).min(MOST_READ)))
        }
        WRITE => (SIZE_AT, length(len, WRITE_HEADER)),
        IOCTL => (IOCTL_SIZE_AT, length(len, IOCTL_HEADER)),
        SETXATTR => (0, length(len, value().unwrap_or(len))),
        _ => return,
    };
    if let Some(field) = body.get_mut(at..at + 4) {
        field.copy_from_slice(&size.to_le_bytes());
    }
}

/// Returns the number of bytes after a header.
fn length(len: usize, header: usize) -> u32 {
    u32::try_from(len.saturating_sub(header)).expect("a short request")
}

/// Returns the first request of a connection to a kernel with these capabilities.
pub fn init(capabilities: InitFlags) -> Vec<u8> {
    let [low, high] = [capabilities.bits(), capabilities.bits() >> 32].map(|bits| bits as u32);
    let mut body = [7, 40, 1 << 17, low, high].map(u32::to_le_bytes).concat();
    body.resize(64, 0);
    Message { operation: INIT, node: 0, ids: [0; 3], body }.encode(FIRST)
}

impl Default for Nodes {
    fn default() -> Self {
        Self(vec![1])
    }
}

impl Nodes {
    /// Returns a node that a reply has named, or for a large byte one that need not exist.
    fn choose(&self, byte: u8) -> u64 {
        match byte {
            0xff => u64::MAX,
            0xe0.. => u64::from(byte - 0xe0),
            _ => self.0[usize::from(byte) % self.0.len()],
        }
    }

    /// Adds the node that a reply names.
    pub fn learn(&mut self, message: &Message, reply: &Reply) {
        let names_a_node = matches!(message.operation, LOOKUP | SYMLINK | MKNOD | MKDIR | LINK | CREATE);
        if let (true, 0, Some(node)) = (names_a_node, reply.error, reply.body.first_chunk())
            && !self.0.contains(&u64::from_le_bytes(*node))
        {
            self.0.push(u64::from_le_bytes(*node));
        }
    }
}

impl Reply {
    /// Parses a reply or a notification.
    ///
    /// # Panics
    /// If its length is wrong, or its error is not one that the kernel accepts.
    pub fn parse(bytes: &[u8]) -> Self {
        let word = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).expect("four bytes");
        let unique = u64::from(word(12)) << 32 | u64::from(word(8));
        let error = word(4).cast_signed();
        assert_eq!(word(0) as usize, bytes.len(), "the length of a reply");
        // In this field a notification has its kind.
        assert!(unique == 0 || matches!(error, -511..=0), "error {error}");
        assert!(error == 0 || unique == 0 || bytes.len() == OUT_HEADER, "an error with a body");
        Self { unique, error, body: bytes[OUT_HEADER..].to_vec() }
    }
}
