//! Makes the sound images of all kinds that the fuzz targets damage, as sparse files.

use image_kinds::{KINDS, combinations};
use testkit::damage::seeds;

fn main() -> std::io::Result<()> {
    let folder = parext4_fuzz::folder();
    std::fs::create_dir_all(&folder)?;
    // Volumes with multi-mount protection only open after a wait.
    let kinds = KINDS.iter().cloned().chain(combinations(1)).filter(|kind| !kind.mke2fs.contains("mmp"));
    for kind in kinds {
        for (nth, device) in seeds(&kind).into_iter().flatten().enumerate() {
            let name: String = kind.name.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
            device.save(folder.join(format!("{name}-{nth}")))?;
        }
    }
    Ok(())
}
