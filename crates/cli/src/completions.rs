//! `completions`: prints a script that completes the command line in a shell.

use std::io::Write;

use anyhow::Result;
use clap_complete::Shell;

use crate::output;

/// Print a script that completes commands and options in a shell
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell that will read the script
    shell: Shell,
}

/// Prints the script for `command`, the whole command line.
pub fn run(args: &Args, mut command: clap::Command) -> Result<()> {
    let name = command.get_name().to_owned();
    // `generate` panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    output::print(|out| Ok(out.write_all(&script)?))
}
