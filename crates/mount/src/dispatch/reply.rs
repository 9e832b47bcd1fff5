//! Sends the result of an operation to the kernel.

use fuser::{
    Generation, ReplyAttr, ReplyCreate, ReplyData, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr,
};
use parext4::Space;

use crate::protocol::attr::Entry;
use crate::protocol::{Failure, Outcome};
use crate::server::Opened;

/// Length of the longest name, in bytes.
const MAX_NAME: u32 = 255;

/// A reply to a request whose operation returns a `T`.
pub(super) trait Reply<T> {
    /// Sends the value, or the error number.
    fn send(self, outcome: Outcome<T>);
}

/// Implements [`Reply`] from an expression that sends the value.
macro_rules! reply {
    ($($reply:ty: $value:ty => |$self:ident, $is:pat_param| $ok:expr;)+) => {$(
        impl Reply<$value> for $reply {
            fn send(self, outcome: Outcome<$value>) {
                let $self = self;
                match outcome {
                    Ok($is) => $ok,
                    Err(failure) => $self.error(failure.errno()),
                }
            }
        }
    )+};
}

reply! {
    ReplyEmpty: () => |reply, ()| reply.ok();
    ReplyAttr: Entry => |reply, entry| reply.attr(&entry.attr_timeout(), &entry.attr);
    ReplyEntry: Entry => |reply, entry| {
        let generation = Generation(entry.generation);
        reply.entry_with_ttls(&entry.attr_timeout(), &entry.name_timeout(), &entry.attr, generation);
    };
    ReplyData: Vec<u8> => |reply, data| reply.data(&data);
    ReplyWrite: u32 => |reply, written| reply.written(written);
    ReplyOpen: Opened => |reply, opened| reply.opened(opened.handle, opened.flags);
    ReplyCreate: (Entry, Opened) => |reply, (entry, opened)| {
        let generation = Generation(entry.generation);
        reply.created(&entry.timeout(), &entry.attr, generation, opened.handle, opened.flags);
    };
    ReplyLseek: u64 => |reply, offset| reply.offset(offset.cast_signed());
    ReplyIoctl: Vec<u8> => |reply, data| reply.ioctl(0, &data);
    ReplyStatfs: Space => |reply, space| {
        let Space { block_size, blocks, free_blocks, available_blocks: available, inodes, free_inodes, .. } = space;
        let (inodes, free_inodes) = (inodes.into(), free_inodes.into());
        reply.statfs(blocks, free_blocks, available, inodes, free_inodes, block_size, MAX_NAME, block_size);
    };
}

/// A reply with the value of an extended attribute, or with a list of names.
#[derive(Debug)]
pub(super) struct XattrReply {
    pub reply: ReplyXattr,
    /// Size of the caller's buffer, in bytes; 0 asks for the length of the value.
    pub size: u32,
}

impl Reply<Vec<u8>> for XattrReply {
    fn send(self, outcome: Outcome<Vec<u8>>) {
        let Self { reply, size } = self;
        match outcome {
            Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
            Ok(value) if value.len() > size as usize => reply.error(Failure::RANGE.errno()),
            Ok(value) => reply.data(&value),
            Err(failure) => reply.error(failure.errno()),
        }
    }
}
