//! The options of a mount, as `-o` and fstab have them.

use std::time::Duration;

use parext4::{OpenOptions, Policy};

/// When a read changes the time of last access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atime {
    /// Never.
    Never,
    /// If the file has changed since it was read last, or that was a day ago.
    #[default]
    Relative,
    /// Always.
    Strict,
}

/// Who keeps the contents of files in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cache {
    /// The kernel, with write-back. Files opened with `O_DIRECT` go past it.
    #[default]
    Kernel,
    /// The volume: every read and write comes to the server, and files are shared by range.
    Direct,
}

/// How a volume is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Change nothing on the device.
    pub read_only: bool,
    /// Let other users in; the permissions say what they may do.
    pub allow_other: bool,
    /// Where the volume begins in the image, in bytes.
    pub offset: u64,
    /// When reads change the time of last access.
    pub atime: Atime,
    /// How long a change may wait for its commit.
    pub commit: Duration,
    /// Who keeps contents in memory.
    pub cache: Cache,
    /// Threads that take requests from the kernel.
    pub threads: usize,
    /// Which operations on one file may go on at once.
    pub policy: Policy,
    /// Heed set-ID bits.
    pub suid: bool,
    /// Heed device files.
    pub dev: bool,
    /// Let programs be run.
    pub exec: bool,
    /// Make every change durable before it returns.
    pub sync: bool,
    /// Make every change of a directory durable before it returns.
    pub dirsync: bool,
}

impl Default for MountOptions {
    /// As without `-o`. What an image has of set-ID bits and device files is not trusted.
    fn default() -> Self {
        Self {
            read_only: false,
            allow_other: false,
            offset: 0,
            atime: Atime::default(),
            commit: COMMIT,
            cache: Cache::default(),
            threads: default_threads(),
            policy: Policy::default(),
            suid: false,
            dev: false,
            exec: true,
            sync: false,
            dirsync: false,
        }
    }
}

/// As the kernel's ext4.
const COMMIT: Duration = Duration::from_secs(5);
/// More gain nothing: one takes requests while the others work.
const MOST_THREADS: usize = 64;

fn default_threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    (2 * processors).clamp(4, MOST_THREADS)
}

/// Why options were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// There is no such option.
    #[error("unknown mount option {0:?}")]
    Unknown(String),
    /// The option is one of ext4's that parext4 does not have.
    #[error("mount option {option:?} is not supported: {because}")]
    Unsupported {
        /// The option.
        option: String,
        /// What is done instead.
        because: &'static str,
    },
    /// The value of an option is none.
    #[error("mount option {option:?}: expected {expected}")]
    Value {
        /// The option with its value.
        option: String,
        /// What it may be.
        expected: &'static str,
    },
}

impl MountOptions {
    /// Adds a list of options, separated by commas; later ones win.
    ///
    /// # Errors
    /// If an option is unknown or not supported, or its value is none; the error names it.
    pub fn add(&mut self, list: &str) -> Result<(), OptionError> {
        list.split(',').filter(|option| !option.is_empty()).try_for_each(|option| self.add_one(option))
    }

    /// How to open the volume.
    #[must_use]
    pub fn open_options(&self) -> OpenOptions {
        OpenOptions {
            read_only: self.read_only,
            commit_interval: Some(self.commit),
            policy: self.policy,
            ..OpenOptions::default()
        }
    }

    fn add_one(&mut self, option: &str) -> Result<(), OptionError> {
        match option.split_once('=') {
            None => self.set_flag(option),
            Some((name, value)) => self.set_value(option, name, value),
        }
    }

    fn set_flag(&mut self, option: &str) -> Result<(), OptionError> {
        match option {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "allow_other" => self.allow_other = true,
            "noatime" => self.atime = Atime::Never,
            "relatime" | "norelatime" => self.atime = Atime::Relative,
            "strictatime" => self.atime = Atime::Strict,
            "suid" | "nosuid" => self.suid = option == "suid",
            "dev" | "nodev" => self.dev = option == "dev",
            "exec" | "noexec" => self.exec = option == "exec",
            "sync" | "async" => self.sync = option == "sync",
            "dirsync" => self.dirsync = true,
            // What is always so: times ride along with the next commit.
            "lazytime" | "defaults" => {}
            // Of mount(8) and systemd, not for us.
            "auto" | "noauto" | "nofail" | "_netdev" | "user" | "nouser" => {}
            _ if option.starts_with("x-") => {}
            "norecovery" | "noload" => {
                return unsupported(option, "the journal is always replayed, with \"ro\" in memory only");
            }
            _ => return Err(OptionError::Unknown(option.to_owned())),
        }
        Ok(())
    }

    fn set_value(&mut self, option: &str, name: &str, value: &str) -> Result<(), OptionError> {
        let expected = |expected| OptionError::Value { option: option.to_owned(), expected };
        match (name, value) {
            ("offset", _) => self.offset = value.parse().map_err(|_| expected("a number of bytes"))?,
            ("commit", _) => {
                let seconds: u32 = value.parse().map_err(|_| expected("a number of seconds"))?;
                self.commit = if seconds == 0 { COMMIT } else { Duration::from_secs(seconds.into()) };
            }
            ("cache", "kernel") => self.cache = Cache::Kernel,
            ("cache", "direct") => self.cache = Cache::Direct,
            ("cache", _) => return Err(expected("kernel or direct")),
            ("threads", _) => {
                let threads = value.parse().ok().filter(|threads| (1..=MOST_THREADS).contains(threads));
                self.threads = threads.ok_or_else(|| expected("a number from 1 to 64"))?;
            }
            ("policy", _) => {
                self.policy = value.parse().map_err(|_| expected("range, shared-overwrite or exclusive"))?;
            }
            // What always happens: the volume can still be read.
            ("errors", "remount-ro") => {}
            ("errors", "continue" | "panic") => {
                return unsupported(option, "after an error the volume can only be read (\"remount-ro\")");
            }
            ("errors", _) => return Err(expected("remount-ro")),
            _ if name.starts_with("x-") => {}
            _ => return Err(OptionError::Unknown(option.to_owned())),
        }
        Ok(())
    }
}

fn unsupported(option: &str, because: &'static str) -> Result<(), OptionError> {
    Err(OptionError::Unsupported { option: option.to_owned(), because })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<MountOptions, OptionError> {
        let mut options = MountOptions::default();
        options.add(list).map(|()| options)
    }

    #[test]
    fn options_are_what_users_know() {
        let all = "ro,allow_other,noatime,offset=1048576,commit=30,cache=direct,threads=3,policy=exclusive,suid,noexec";
        let options = parse(all).unwrap();
        let expected = MountOptions {
            read_only: true,
            allow_other: true,
            atime: Atime::Never,
            offset: 1 << 20,
            commit: Duration::from_secs(30),
            cache: Cache::Direct,
            threads: 3,
            policy: Policy::Exclusive,
            suid: true,
            exec: false,
            ..MountOptions::default()
        };
        assert_eq!(options, expected);
        assert_eq!(parse("").unwrap(), MountOptions::default());
        assert_eq!(
            parse("defaults,rw,relatime,errors=remount-ro,x-systemd.automount,commit=0").unwrap(),
            MountOptions::default()
        );
    }

    #[test]
    fn later_options_win() {
        let options = parse("ro,rw,cache=direct,cache=kernel,noatime,strictatime").unwrap();
        assert_eq!(options, MountOptions { atime: Atime::Strict, ..MountOptions::default() });
    }

    #[test]
    fn what_is_refused_is_named() {
        for option in ["norecovery", "noload", "errors=continue", "errors=panic"] {
            let error = parse(option).unwrap_err();
            assert!(
                matches!(&error, OptionError::Unsupported { option: named, .. } if named == option),
                "{error}"
            );
        }
        for option in ["data=journal", "journal_checksum", "quota", "ro=1"] {
            assert_eq!(parse(option), Err(OptionError::Unknown(option.to_owned())));
        }
        for option in [
            "threads=0",
            "threads=65",
            "threads=x",
            "cache=none",
            "offset=-1",
            "commit=",
            "policy=x",
            "errors=x",
        ] {
            assert!(matches!(parse(option), Err(OptionError::Value { .. })), "{option}");
        }
    }
}
