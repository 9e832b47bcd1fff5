//! `parext4`: ext4 images and devices from the command line. A library, so that the fuzzer reaches its parsers.
#![forbid(unsafe_code)]
// `output` and `error` print, and survive a reader that has ended.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod access_list;
mod activity;
mod bench;
mod cat;
mod check;
mod chmod;
mod cli;
mod completions;
mod demo;
mod disk;
mod error;
mod fallocate;
mod fiemap;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod get;
mod hints;
mod image;
mod image_path;
mod in_use;
mod info;
mod install_helper;
mod json;
mod ls;
mod man;
mod mkdir;
mod mkfs;
mod mmp;
mod mode;
mod mount;
mod on_error;
mod output;
mod policy;
mod progress;
mod put;
mod quota;
mod recorded;
mod recover;
mod rm;
mod size;
mod source_date;
mod stat;
mod takeover;
mod transfer;
mod tree;
mod umount;
mod volume_files;

use std::process::ExitCode;

/// Runs the command that the arguments of the process name, and returns its exit status.
#[must_use]
pub fn main() -> ExitCode {
    let called_by_mount = std::env::args_os().next().and_then(|name| mount::Helper::parse(&name));
    let result = match called_by_mount {
        Some(helper) => helper.run(),
        None => cli::Cli::of_process().run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::has_no_reader(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<error::Reported>() => ExitCode::FAILURE,
        Err(error) => {
            error::say(&error::describe(&error));
            error.downcast_ref().map_or(ExitCode::FAILURE, |failure: &check::Failure| failure.status().into())
        }
    }
}
