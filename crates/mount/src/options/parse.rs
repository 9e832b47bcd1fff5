//! Options as they are written: separated by commas.

use std::time::Duration;

use parext4::OnError;

use super::{Atime, COMMIT, Cache, MOST_THREADS, MountOptions};

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
    /// One option needs another.
    #[error("mount option {0:?} needs {1:?}")]
    Needs(&'static str, &'static str),
}

impl MountOptions {
    /// Adds a list of options, separated by commas; later ones win.
    ///
    /// # Errors
    /// If an option is unknown or not supported, or its value is none; the error names it.
    pub fn add(&mut self, list: &str) -> Result<(), OptionError> {
        list.split(',').filter(|option| !option.is_empty()).try_for_each(|option| self.add_one(option))
    }

    /// Checks options that say something about each other, once all are there.
    ///
    /// # Errors
    /// If one lacks another.
    pub fn check(&self) -> Result<(), OptionError> {
        if self.recover || self.read_only { Ok(()) } else { Err(OptionError::Needs("norecovery", "ro")) }
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
            "norecovery" | "noload" => self.recover = false,
            "explain" => self.explain = true,
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
            ("uid", _) => self.uid = Some(id(value).ok_or_else(|| expected("the number of a user"))?),
            ("gid", _) => self.gid = Some(id(value).ok_or_else(|| expected("the number of a group"))?),
            ("resuid", _) => self.resuid = Some(id(value).ok_or_else(|| expected("the number of a user"))?),
            ("resgid", _) => self.resgid = Some(id(value).ok_or_else(|| expected("the number of a group"))?),
            ("log", "") => return Err(expected("a file")),
            ("log", _) => self.log = Some(value.into()),
            ("errors", "continue") => self.on_error = Some(OnError::Continue),
            ("errors", "remount-ro") => self.on_error = Some(OnError::ReadOnly),
            ("errors", "panic") => {
                return unsupported(option, "a program cannot stop the machine; use \"remount-ro\"");
            }
            ("errors", _) => return Err(expected("continue or remount-ro")),
            _ if name.starts_with("x-") => {}
            _ => return Err(OptionError::Unknown(option.to_owned())),
        }
        Ok(())
    }
}

/// The number of a user or group; the largest stands for none.
fn id(value: &str) -> Option<u32> {
    value.parse().ok().filter(|&id| id != u32::MAX)
}

fn unsupported(option: &str, because: &'static str) -> Result<(), OptionError> {
    Err(OptionError::Unsupported { option: option.to_owned(), because })
}

#[cfg(test)]
mod tests {
    use super::*;
    use parext4::Policy;

    fn parse(list: &str) -> Result<MountOptions, OptionError> {
        let mut options = MountOptions::default();
        options.add(list).map(|()| options)
    }

    #[test]
    fn options_are_what_users_know() {
        let all = "ro,allow_other,noatime,offset=1048576,commit=30,cache=direct,threads=3,policy=exclusive,suid,\
            noexec,uid=1000,gid=0,norecovery,errors=continue,resuid=7,resgid=8,explain,log=/tmp/log";
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
            uid: Some(1000),
            gid: Some(0),
            recover: false,
            on_error: Some(OnError::Continue),
            resuid: Some(7),
            resgid: Some(8),
            explain: true,
            log: Some("/tmp/log".into()),
            ..MountOptions::default()
        };
        assert_eq!(options, expected);
        assert_eq!(parse("").unwrap(), MountOptions::default());
        assert_eq!(
            parse("defaults,rw,relatime,x-systemd.automount,commit=0").unwrap(),
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
        let error = parse("errors=panic").unwrap_err();
        assert!(
            matches!(&error, OptionError::Unsupported { option, .. } if option == "errors=panic"),
            "{error}"
        );
        for option in ["norecovery", "noload,ro,rw"] {
            assert_eq!(parse(option).unwrap().check(), Err(OptionError::Needs("norecovery", "ro")));
        }
        assert_eq!(parse("noload,ro").unwrap().check(), Ok(()));
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
            "uid=root",
            "gid=4294967295",
            "resuid=",
            "log=",
        ] {
            assert!(matches!(parse(option), Err(OptionError::Value { .. })), "{option}");
        }
    }
}
