//! What other tests use, too.

#[allow(dead_code, reason = "a part is used")]
#[path = "../common/mod.rs"]
mod bench;
#[path = "../../../parext4/tests/common/rng.rs"]
pub mod rng;
#[allow(dead_code, reason = "a part is used")]
#[path = "../../../parext4/tests/common/settings.rs"]
pub mod settings;

pub use bench::*;
