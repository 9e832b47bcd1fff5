//! A client of network block devices (NBD) as a [`Device`](parext4_device::Device).

#![forbid(unsafe_code)]
