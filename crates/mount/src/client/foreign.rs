//! Unmounts a mount that another user's server serves, as when root unmounts a mount of an ordinary
//! user.
//!
//! Such a server may give false answers or none, so the caller asks it nothing, and opens no file
//! that it names. The kernel may wait for the server within umount2(2), where no signal ends the
//! wait. So a separate process makes the call, and the caller stops waiting for that process after
//! some time.

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::elsewhere::Holders;
use super::patience::{ANNOUNCED_AFTER, Announce};
use super::process_end::ProcessEnd;
use super::server_process::ServerProcess;
use super::target::Target;
use super::umount_call::UnmountError;
use crate::connection::control::Connection;

/// Longest wait for umount2(2).
const UNMOUNTS_WITHIN: Duration = Duration::from_secs(12);
/// Longest wait for the end of the server after umount2(2).
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Unmounts `target`. `command` runs [`call_umount`](super::call_umount) on its argument.
pub(super) fn unmount(
    target: &Target,
    connection: Option<&Connection>,
    detach: bool,
    mut command: Command,
    announce: Announce<'_>,
) -> Result<(), UnmountError> {
    let dir = target.path.display();
    let failed = |cause: io::Error| UnmountError::Failed { dir: dir.to_string(), cause };
    let server = target.mount.user.and_then(|user| ServerProcess::find(user, target.mount.connection()));
    let of_user = match (target.mount.user, &server) {
        (Some(user), Some(server)) => format!("the server of user {user}, process {}", server.pid),
        (Some(user), None) => format!("the server of user {user}"),
        (None, _) => "its server".to_owned(),
    };
    command.args(detach.then_some("--lazy")).arg("--").arg(&target.path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let end = ProcessEnd::of(child.id());
    let ends_within = |time| end.as_ref().is_none_or(|end| end.happens_within(time));
    if !ends_within(ANNOUNCED_AFTER) {
        announce(&format!("{dir}: the kernel waits for {of_user}"));
        if !ends_within(UNMOUNTS_WITHIN - ANNOUNCED_AFTER) {
            let _ = child.kill();
            let connection = target.mount.connection();
            return Err(failed(io::Error::other(format!(
                "{of_user}, does not answer the kernel; end it, or write 1 to /sys/fs/fuse/connections/{connection}/abort"
            ))));
        }
    }
    if !child.wait().map_err(failed)?.success() {
        let mut said = String::new();
        child.stderr.take().map(|mut stderr| stderr.read_to_string(&mut said));
        let said = said.trim().trim_start_matches("parext4: ").to_owned();
        return Err(UnmountError::Refused(said));
    }
    // While another process or mount holds the volume, the server continues to run.
    let is_held = Holders::of(target.mount.connection(), connection).is_some();
    if let Some(server) = server.filter(|_| !detach && !is_held)
        && !server.ends_within(ENDS_WITHIN)
    {
        announce(&format!("{dir} is unmounted, but {of_user}, has not ended, and may have its image open"));
    }
    Ok(())
}
