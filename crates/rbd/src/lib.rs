//! A Ceph RBD image as a [`Device`](parext4_device::Device), through librbd.

#![deny(unsafe_code)]
