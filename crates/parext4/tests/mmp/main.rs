//! Multi-mount protection: one machine at a time may write to a volume.

mod open;
mod owners;
mod replay;
mod scale;
