//! Runs code as another user.

use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// Runs `act` in a thread without privileges, with user and group 65534 and no supplementary
/// groups.
pub fn as_unprivileged<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    as_unprivileged_of(65534, act)
}

/// Like [`as_unprivileged`], with another group.
pub fn as_unprivileged_of<T: Send>(group: u32, act: impl FnOnce() -> T + Send) -> T {
    let (uid, gid) = (Uid::from_raw(65534), Gid::from_raw(group));
    let enter = || {
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(gid, gid, gid).unwrap();
        set_thread_res_uid(uid, uid, uid).unwrap();
    };
    std::thread::scope(|scope| {
        let acting = scope.spawn(|| {
            enter();
            act()
        });
        acting.join().unwrap()
    })
}
