//! What a change of its contents or owner takes away from a file: file capabilities and set-ID bits. The kernel leaves
//! that to us (`FUSE_HANDLE_KILLPRIV_V2`).

use parext4::{Error, FileType, Node, SetAttributes};

use crate::failure::Outcome;
use crate::server::Server;

const CAPABILITIES: &[u8] = b"security.capability";
const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o0010;

impl Server {
    /// Takes the file capabilities away, and with `set_ids` also set-ID bits.
    pub fn drop_privileges(&self, node: &Node, set_ids: bool) -> Outcome<()> {
        if node.file_type() != FileType::Regular {
            return Ok(());
        }
        if node.get_xattr(CAPABILITIES)?.is_some() {
            match node.remove_xattr(CAPABILITIES) {
                Ok(()) | Err(Error::NoAttribute(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if set_ids {
            let permissions = node.metadata().permissions;
            let left = without_set_ids(permissions);
            if left != permissions {
                node.set_attributes(&SetAttributes { permissions: Some(left), ..SetAttributes::default() })?;
            }
        }
        Ok(())
    }
}

/// Without execution by the group, set-group-ID means something else and stays.
fn without_set_ids(permissions: u16) -> u16 {
    let group = if permissions & S_IXGRP != 0 { S_ISGID } else { 0 };
    permissions & !(S_ISUID | group)
}

#[cfg(test)]
mod tests {
    use super::without_set_ids;

    #[test]
    fn set_ids_go() {
        assert_eq!([0o6755, 0o6745, 0o4644, 0o1644].map(without_set_ids), [0o755, 0o2745, 0o644, 0o1644]);
    }
}
