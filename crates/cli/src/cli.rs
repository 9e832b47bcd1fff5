//! The command line.

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{
    bench, cat, demo, fallocate, fiemap, get, info, install_helper, ls, mkdir, mkfs, mount, put, recover, rm,
    stat, umount,
};

/// ext4 images and devices without root: make, look into, fill and empty them.
///
/// IMAGE is an image file or a block device. A path inside one is written IMAGE:/path; ls, get and put take IMAGE for
/// IMAGE:/.
#[derive(Debug, Parser)]
#[command(name = "parext4", version)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Mkfs(mkfs::Args),
    Info(info::Args),
    Ls(ls::Args),
    Cat(cat::Args),
    Get(get::Args),
    Put(put::Args),
    Rm(rm::Args),
    Mkdir(mkdir::Args),
    Fallocate(fallocate::Args),
    Fiemap(fiemap::Args),
    Mount(mount::Args),
    /// Watch over the server that has started this process
    #[command(hide = true)]
    Guard,
    Umount(umount::Args),
    InstallHelper(install_helper::Args),
    Stat(stat::Args),
    Recover(recover::Args),
    Demo(demo::Args),
    Bench(bench::Args),
}

impl Cli {
    /// Does what the command line asks.
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::Mkfs(args) => mkfs::run(args),
            Command::Info(args) => info::run(&args),
            Command::Ls(args) => ls::run(&args),
            Command::Cat(args) => cat::run(&args),
            Command::Get(args) => get::run(&args),
            Command::Put(args) => put::run(&args),
            Command::Rm(args) => rm::run(&args),
            Command::Mkdir(args) => mkdir::run(&args),
            Command::Fallocate(args) => fallocate::run(&args),
            Command::Fiemap(args) => fiemap::run(&args),
            Command::Mount(args) => mount::run(&args),
            Command::Guard => mount::guard(),
            Command::Umount(args) => umount::run(&args),
            Command::InstallHelper(args) => install_helper::run(&args),
            Command::Stat(args) => stat::run(&args),
            Command::Recover(args) => recover::run(&args),
            Command::Demo(args) => demo::run(&args),
            Command::Bench(args) => bench::run(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
