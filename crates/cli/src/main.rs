//! `parext4`: ext4 images and devices from the command line.
#![forbid(unsafe_code)]

mod bench;
mod cat;
mod cli;
mod completions;
mod demo;
mod fallocate;
mod fiemap;
mod get;
mod image;
mod image_path;
mod in_use;
mod info;
mod install_helper;
mod ls;
mod man;
mod mkdir;
mod mkfs;
mod mode;
mod mount;
mod policy;
mod progress;
mod put;
mod recorded;
mod recover;
mod rm;
mod size;
mod stat;
mod transfer;
mod tree;
mod umount;

use std::io;
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let called_by_mount = std::env::args_os().next().and_then(|name| mount::Helper::parse(&name));
    let result = match called_by_mount {
        Some(helper) => helper.run(),
        None => cli::Cli::parse().run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output has had enough (`parext4 cat ... | head`).
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("parext4: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_pipe = |cause: &io::Error| cause.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(is_pipe))
}
