//! The block of multi-mount protection.

use parext4_format::mmp::Mmp;

use crate::problem::{PR_0_MMP_CSUM_INVALID, PR_0_MMP_INVALID_BLK, PR_0_MMP_INVALID_MAGIC};
use crate::volume::Volume;

/// Checks the block, if the volume has one.
pub(crate) fn check(volume: &Volume<'_>) {
    let block = match volume.sb.mmp_block() {
        Ok(None) => return,
        Ok(Some(block)) => block,
        Err(error) => return volume.report(error, PR_0_MMP_INVALID_BLK),
    };
    let mut buf = volume.buffer(1);
    if volume.read(block.get(), &mut buf, "mmp block", PR_0_MMP_INVALID_BLK)
        && let Err(error) = Mmp::parse(&buf, volume.seed, block)
    {
        let is_checksum = error.field == "checksum";
        volume.report(error, if is_checksum { PR_0_MMP_CSUM_INVALID } else { PR_0_MMP_INVALID_MAGIC });
    }
}
