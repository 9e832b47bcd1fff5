//! Multi-mount protection: one machine at a time may write to a volume.

mod owners;
mod scale;
