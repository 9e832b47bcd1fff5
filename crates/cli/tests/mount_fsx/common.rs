//! What other tests use, too.

#[allow(dead_code, reason = "a part is used")]
#[path = "../common/mod.rs"]
mod bench;

pub use bench::*;
pub use testkit::{rng, settings};
