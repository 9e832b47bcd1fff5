//! The kinds of ext4 images that tests and campaigns are run over: each feature of mke2fs alone,
//! and combinations of features in which each pair of them occurs. It makes no images itself:
//! callers run the [commands](Kind::commands) of a kind. No program uses this crate.
//!
//! | module | contents |
//! |---|---|
//! | `kind` | [`Kind`], and the commands that make an image of it |
//! | `table` | [`KINDS`], one line for each kind |
//! | `pairs` | [`combinations`] of features, from a seed |

#![forbid(unsafe_code)]

mod kind;
mod pairs;
mod table;

pub use kind::{Command, Kind, Then};
pub use pairs::combinations;
pub use table::KINDS;
