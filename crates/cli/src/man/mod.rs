//! `man`: writes the manual pages.

mod markdown;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap_mangen::Man;

use crate::mount::MOUNT_NAMES;

/// Write the manual pages into a directory, such as /usr/local/share/man
///
/// The pages of parext4 and its commands go into man1, the pages of the programs that mount(8) and
/// umount(8) call, with all mount options, into man8, parext4-json(5) into man5 and
/// parext4-network(7) into man7.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The directory that holds man1 to man8; made if it does not exist
    #[arg(long)]
    dir: PathBuf,
}

/// A document that is a page of its own.
struct Page {
    name: &'static str,
    section: &'static str,
    about: &'static str,
    document: &'static str,
}

const PAGES: [Page; 2] = [
    Page {
        name: "parext4-json",
        section: "5",
        about: "JSON that the commands of parext4 print",
        document: include_str!("../../../../docs/json.md"),
    },
    Page {
        name: "parext4-network",
        section: "7",
        about: "ext4 volumes on network block devices",
        document: include_str!("../../../../docs/network.md"),
    },
];
/// The section of a page of clap_mangen before which mount options are explained.
const AFTER_OPTIONS: &str = ".SH VERSION";
const MOUNT_OPTIONS: &str = include_str!("../../../../docs/mount-options.md");

impl Page {
    fn text(&self) -> String {
        let Self { name, section, about, document } = self;
        let name = name.replace('-', "\\-");
        let version = env!("CARGO_PKG_VERSION");
        let head = format!(".TH {name} {section} \"\" \"parext4 {version}\"\n.SH NAME\n{name} \\- {about}\n");
        head + &markdown::to_roff(document, "DESCRIPTION")
    }
}

/// Writes the pages of `command` with its subcommands, and of `helpers`.
pub fn run(args: &Args, command: clap::Command, helpers: Vec<clap::Command>) -> Result<()> {
    write(&args.dir, command, helpers).with_context(|| args.dir.display().to_string())
}

fn write(dir: &Path, command: clap::Command, helpers: Vec<clap::Command>) -> io::Result<()> {
    let [user, system] = ["1", "8"].map(|section| folder(dir, section));
    clap_mangen::generate_to(command, user?)?;
    let system = system?;
    for helper in helpers {
        let page = Man::new(helper.clone()).section("8");
        let path = page.generate_to(&system)?;
        if helper.get_name() == MOUNT_NAMES[0] {
            let options = markdown::to_roff(MOUNT_OPTIONS, "MOUNT OPTIONS");
            let text = fs::read_to_string(&path)?;
            let (before, after) = text.split_at(text.find(AFTER_OPTIONS).unwrap_or(text.len()));
            fs::write(&path, [before, &options, after].concat())?;
        }
    }
    for page in PAGES {
        let Page { name, section, .. } = page;
        fs::write(folder(dir, section)?.join(format!("{name}.{section}")), page.text())?;
    }
    Ok(())
}

/// Makes the folder of a section.
fn folder(dir: &Path, section: &str) -> io::Result<PathBuf> {
    let folder = dir.join(format!("man{section}"));
    fs::create_dir_all(&folder)?;
    Ok(folder)
}
