//! What a user can do with an image that holds no ext4 volume itself.

use std::path::Path;

use parext4::device::signature::Contents;

/// Returns what makes the contents usable; `None` if nothing is known.
pub fn find(image: &Path, contents: &Contents) -> Option<String> {
    let image = image.display();
    contents.kinds().find_map(|kind| {
        let hint = match kind {
            "a QCOW2 image" | "a VMDK image" | "a VHDX image" | "a VDI image" => format!(
                "convert it with \"qemu-img convert -O raw {image} raw.img\", or serve it with \"qemu-nbd -k /tmp/nbd.sock {image}\" \
                 and use nbd+unix:///?socket=/tmp/nbd.sock"
            ),
            "an Android sparse image" => format!("convert it with \"simg2img {image} raw.img\""),
            "data compressed by gzip" => format!("decompress it with \"gzip -dc {image} > raw.img\""),
            "data compressed by bzip2" => format!("decompress it with \"bzip2 -dc {image} > raw.img\""),
            "data compressed by xz" => format!("decompress it with \"xz -dc {image} > raw.img\""),
            "data compressed by zstd" => format!("decompress it with \"zstd -dc {image} > raw.img\""),
            "data compressed by lz4" => format!("decompress it with \"lz4 -dc {image} > raw.img\""),
            "a GUID partition table" | "an MBR partition table" => {
                format!("\"parext4 info {image}\" lists the partitions, and {image}?partition=N is one of them")
            }
            _ => return None,
        };
        Some(hint)
    })
}
