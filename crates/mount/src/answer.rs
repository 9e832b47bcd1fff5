//! Answers to the kernel: what an operation came to, or its errno.

use fuser::{
    FileAttr, Generation, ReplyAttr, ReplyCreate, ReplyData, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek,
    ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};
use parext4::Space;

use crate::attr::{Entry, lifetime};
use crate::failure::{Failure, Outcome};
use crate::files::Opened;

/// The longest name, in bytes.
const MAX_NAME: u32 = 255;

/// A reply that takes what an operation came to.
pub(crate) trait Answer<T> {
    fn answer(self, outcome: Outcome<T>);
}

/// Implements [`Answer`] by what is done with a success.
macro_rules! answer {
    ($($reply:ty: $value:ty => |$self:ident, $is:pat_param| $ok:expr;)+) => {$(
        impl Answer<$value> for $reply {
            fn answer(self, outcome: Outcome<$value>) {
                let $self = self;
                match outcome {
                    Ok($is) => $ok,
                    Err(failure) => $self.error(failure.errno()),
                }
            }
        }
    )+};
}

answer! {
    ReplyEmpty: () => |reply, ()| reply.ok();
    ReplyAttr: FileAttr => |reply, attr| reply.attr(&lifetime(&attr), &attr);
    ReplyEntry: Entry => |reply, entry| {
        reply.entry(&lifetime(&entry.attr), &entry.attr, Generation(entry.generation));
    };
    ReplyData: Vec<u8> => |reply, data| reply.data(&data);
    ReplyWrite: u32 => |reply, written| reply.written(written);
    ReplyOpen: Opened => |reply, opened| reply.opened(opened.handle, opened.flags);
    ReplyCreate: (Entry, Opened) => |reply, (entry, opened)| {
        let generation = Generation(entry.generation);
        reply.created(&lifetime(&entry.attr), &entry.attr, generation, opened.handle, opened.flags);
    };
    ReplyLseek: u64 => |reply, offset| reply.offset(offset.cast_signed());
    ReplyIoctl: Vec<u8> => |reply, data| reply.ioctl(0, &data);
    ReplyStatfs: Space => |reply, space| {
        let Space { block_size, blocks, free_blocks, available_blocks: available, inodes, free_inodes, .. } = space;
        let (inodes, free_inodes) = (inodes.into(), free_inodes.into());
        reply.statfs(blocks, free_blocks, available, inodes, free_inodes, block_size, MAX_NAME, block_size);
    };
}

/// A reply of a value for which the caller has `room` bytes; none asks for its length.
#[derive(Debug)]
pub(crate) struct Value {
    pub reply: ReplyXattr,
    pub room: u32,
}

impl Answer<Vec<u8>> for Value {
    fn answer(self, outcome: Outcome<Vec<u8>>) {
        let Self { reply, room } = self;
        match outcome {
            Ok(value) if room == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
            Ok(value) if value.len() > room as usize => reply.error(Failure::RANGE.errno()),
            Ok(value) => reply.data(&value),
            Err(failure) => reply.error(failure.errno()),
        }
    }
}
