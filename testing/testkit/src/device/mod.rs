//! Devices that forward to another device and interfere with its requests.

mod gated;
mod hooked;
mod splitting;

pub use device_testkit::RemoteDevice;
pub use gated::GatedDevice;
pub use hooked::{HookedDevice, Hooks};
pub use splitting::SplitRequests;
