//! The users that threads act as.

use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use testkit::slowest;

/// A user, with a group of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    Root,
    Owner,
    /// A member of the owner's group.
    Friend,
    Stranger,
}

pub const USERS: [User; 4] = [User::Root, User::Owner, User::Friend, User::Stranger];

impl User {
    pub const fn id(self) -> u32 {
        match self {
            Self::Root => 0,
            Self::Owner => 2001,
            Self::Friend => 2002,
            Self::Stranger => 2003,
        }
    }

    /// Makes the calling thread act as this user. A later call can change the user again.
    pub fn enter(self) {
        let (root, id) = (Uid::from_raw(0), self.id());
        // Back to root first, because only root may become another user.
        set_thread_res_uid(root, root, root).expect("the saved user is root");
        slowest::open();
        let groups: &[u32] = if self == Self::Friend { &[id, Self::Owner.id()] } else { &[id] };
        let groups: Vec<_> = groups.iter().copied().map(Gid::from_raw).collect();
        set_thread_groups(&groups).expect("root may");
        let group = Gid::from_raw(id);
        set_thread_res_gid(group, group, Gid::from_raw(0)).expect("root may");
        set_thread_res_uid(Uid::from_raw(id), Uid::from_raw(id), root).expect("root may");
    }
}
