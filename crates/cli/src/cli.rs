//! The command line: the commands, and the functions that run them.

use std::path::PathBuf;

use anyhow::Result;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser, Subcommand};

use crate::{
    cat, check, completions, demo, fallocate, fiemap, get, image, info, install_helper, ls, man, mkdir, mkfs,
    mount, put, quota, recover, rm, stat, takeover, umount,
};

/// The meaning of the exit status, for the help and the manual page.
const EXIT_STATUS: &str = "\
Exit status: 0 if all was done, also if the reader of the output ended first; 1 if the command failed, with a line on
stderr that names the image and the path; 2 if the command line is wrong.

Sizes take a unit: K, M, G, T or KiB, MiB, GiB, TiB for powers of 1024, and KB, MB, GB, TB for powers of 1000, such as 64K, 1.5G or 4GB.";

/// Make, read, write and mount ext4 images and devices in user space, without root
///
/// IMAGE is an image file, a block device, or the URL of a device on the network; IMAGE?partition=N
/// is a partition of it (GPT or MBR). For a file whose own name ends so, make a symbolic link of
/// another name. A path inside an image is written IMAGE:/path; ls, get and put take IMAGE for
/// IMAGE:/.
#[derive(Debug, Parser)]
#[command(name = "parext4", version, after_long_help = EXIT_STATUS)]
pub struct Cli {
    /// The device with the journal, if the volume has it on a device of its own
    #[arg(long, global = true, value_name = "DEVICE")]
    journal: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Mkfs(Box<mkfs::Args>),
    Info(info::Args),
    Check(check::Args),
    Ls(ls::Args),
    Cat(cat::Args),
    Get(get::Args),
    Put(put::Args),
    Rm(rm::Args),
    Mkdir(mkdir::Args),
    Fallocate(fallocate::Args),
    Fiemap(fiemap::Args),
    Quota(quota::Args),
    Mount(mount::Args),
    /// Abort the connection of a mount when its server is killed; run by the server
    #[command(hide = true)]
    Guard,
    Umount(umount::Args),
    InstallHelper(install_helper::Args),
    Stat(stat::Args),
    Recover(recover::Args),
    Takeover(takeover::Args),
    Completions(completions::Args),
    Man(man::Args),
    Demo(demo::Args),
}

impl Cli {
    /// Parses the command line of the process. Prints an error, or the help, and ends the process.
    pub fn of_process() -> Self {
        Self::try_parse().unwrap_or_else(|error| with_advice(error).exit())
    }

    /// Runs the command.
    pub fn run(self) -> Result<()> {
        image::set_journal(self.journal);
        match self.command {
            Command::Mkfs(args) => mkfs::run(*args),
            Command::Info(args) => info::run(&args),
            Command::Check(args) => check::run(&args),
            Command::Ls(args) => ls::run(&args),
            Command::Cat(args) => cat::run(&args),
            Command::Get(args) => get::run(&args),
            Command::Put(args) => put::run(&args),
            Command::Rm(args) => rm::run(&args),
            Command::Mkdir(args) => mkdir::run(&args),
            Command::Fallocate(args) => fallocate::run(&args),
            Command::Fiemap(args) => fiemap::run(&args),
            Command::Quota(args) => quota::run(&args),
            Command::Mount(args) => mount::run(&args),
            Command::Guard => mount::guard(),
            Command::Umount(args) => umount::run(&args),
            Command::InstallHelper(args) => install_helper::run(&args),
            Command::Stat(args) => stat::run(&args),
            Command::Recover(args) => recover::run(&args),
            Command::Takeover(args) => takeover::run(&args),
            Command::Completions(args) => completions::run(&args, Self::command()),
            Command::Man(args) => man::run(&args, Self::command(), mount::helper_commands()),
            Command::Demo(args) => demo::run(&args),
        }
    }
}

/// Commands that a user may expect, and what there is instead.
const OTHERS: &[(&[&str], &str)] = &[
    (&["cp", "copy", "tar", "extract"], "put copies files into a volume, get copies them out of it"),
    (&["fsck", "e2fsck", "verify"], "check verifies a volume, and e2fsck repairs it"),
    (&["df", "dumpe2fs", "blkid"], "info shows the free space and the properties of a volume"),
    (&["find", "tree", "dir"], "ls -R lists all directories"),
    (&["unmount"], "umount unmounts a directory"),
    (&["mke2fs", "format", "mkfs.ext4", "create"], "mkfs makes a volume"),
];
const MOUNTED: &str = "programs do all else with files once \"parext4 mount\" has mounted the volume";

/// Replaces what clap suggests by what there is: clap suggests the name with the most similar
/// letters.
fn with_advice(mut error: clap::Error) -> clap::Error {
    let is_json = |value: &ContextValue| matches!(value, ContextValue::String(text) if text == "--json");
    let tip = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(name)) => {
            let other = OTHERS.iter().find(|(names, _)| names.contains(&name.as_str())).map(|(_, tip)| *tip);
            let is_misspelt = error.get(ContextKind::SuggestedSubcommand).is_some();
            let Some(tip) = other.or((!is_misspelt).then_some(MOUNTED)) else { return error };
            tip.to_owned()
        }
        _ if error.get(ContextKind::InvalidArg).is_some_and(is_json) => {
            format!("the commands that print JSON are {}", with_json().join(", "))
        }
        _ => return error,
    };
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

/// Returns the commands that have `--json`.
fn with_json() -> Vec<String> {
    let has_json =
        |command: &&clap::Command| command.get_arguments().any(|argument| argument.get_id() == "json");
    Cli::command().get_subcommands().filter(has_json).map(|command| command.get_name().to_owned()).collect()
}

#[cfg(any(test, fuzzing))]
impl Cli {
    /// Parses what the commands parse after the command line, for the fuzzer. Returns the volume
    /// that mkfs makes.
    pub fn prepare(self) -> Result<Option<parext4::MemDevice>> {
        match self.command {
            Command::Mkfs(args) => mkfs::make_in_memory(&args),
            Command::Mount(args) => args.mount_options().map(|_| None),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn errors_suggest_what_there_is() {
        let cases: [(&[&str], &str, &str); 4] = [
            (&["rm", "--json", "a.img:/f"], "print JSON are mkfs, info", "similar"),
            (&["cp", "a", "b"], "put copies", "completions"),
            (&["mv", "a", "b"], "parext4 mount", "similar"),
            (&["chekc", "a.img"], "'check'", "once"),
        ];
        for (words, expected, other) in cases {
            let error = Cli::try_parse_from(["parext4"].iter().chain(words)).unwrap_err();
            let text = with_advice(error).to_string();
            assert!(text.contains(expected) && !text.contains(other), "{words:?}: {text}");
        }
    }

    #[test]
    fn every_command_and_option_has_a_help_text() {
        let mut waiting = mount::helper_commands();
        waiting.push(Cli::command());
        while let Some(mut command) = waiting.pop() {
            command.build();
            let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
            check(&name, command.get_about());
            for argument in command.get_arguments() {
                check(&format!("{name} {}", argument.get_id()), argument.get_help());
            }
            waiting.extend(command.get_subcommands().filter(|command| command.get_name() != "help").cloned());
        }
    }

    /// A help text is not empty; its first line has no full stop.
    fn check(name: &str, help: Option<&clap::builder::StyledStr>) {
        let help = help.map(ToString::to_string).unwrap_or_default();
        assert!(!help.is_empty() && !help.ends_with('.') && help.trim() == help, "{name}: {help:?}");
    }
}
