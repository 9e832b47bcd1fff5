//! `parext4`: ext4 images and devices from the command line. A library, so that the fuzzer reaches
//! its parsers, and that parext4-bench handles signals and prints as a command does.
#![forbid(unsafe_code)]
// `output` and `error` print, and survive a reader that has ended.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod activity;
mod cat;
mod check;
mod cli;
mod completions;
mod demo;
mod disk;
mod error;
pub mod explain;
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
pub mod interrupt;
mod json;
mod ls;
mod man;
pub mod median;
mod mkdir;
mod mkfs;
mod mmp;
mod mode;
mod mount;
pub mod output;
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
mod umount;

use std::process::ExitCode;

/// Runs the command that the arguments of the process name, and returns its exit status.
#[must_use]
pub fn main() -> ExitCode {
    let called_by_mount = std::env::args_os().next().and_then(|name| mount::Helper::parse(&name));
    exit_status(match called_by_mount {
        Some(helper) => helper.run(),
        None => cli::Cli::of_process().run(),
    })
}

/// Returns the exit status of the program after a command, and prints the error of the command. It
/// is no error that the reader of the output has ended.
#[must_use]
pub fn exit_status(result: anyhow::Result<()>) -> ExitCode {
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
