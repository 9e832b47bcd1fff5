#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod access_list;
mod error;
mod get;
mod input;
mod observer;
mod options;
mod put;
mod report;
mod transfer;
pub mod tree;
mod volume_files;
mod volume_name;

pub use error::{Error, Result};
pub use get::{Get, Output};
pub use input::Input;
pub use observer::{Observer, Summary};
pub use options::CopyOptions;
pub use put::{ModeRule, Put, Rules, apply_manifest};
pub use volume_files::VolumeFiles;
