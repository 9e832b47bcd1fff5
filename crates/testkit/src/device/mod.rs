//! Devices that forward to another device and interfere with its requests.

mod gated;
mod hooked;
mod remote;
mod splitting;

pub use gated::GatedDevice;
pub use hooked::{HookedDevice, Hooks};
pub use remote::RemoteDevice;
pub use splitting::SplitRequests;
