//! Parses lists of options, separated by commas.

use std::path::{Path, PathBuf};
use std::time::Duration;

use parext4::{OnError, QuotaKinds};
use parext4_storage::parse_size;

use super::error::OptionError;
use super::{Atime, Cache, DEFAULT_COMMIT, MAX_THREADS, MountOptions, accepted};

impl MountOptions {
    /// Adds a list of options, separated by commas. Later options override earlier ones.
    ///
    /// # Errors
    /// If an option is unknown or not supported, or its value is invalid. The error names the
    /// option.
    pub fn add(&mut self, list: &str) -> Result<(), OptionError> {
        list.split(',').filter(|option| !option.is_empty()).try_for_each(|option| self.add_one(option))
    }

    /// Checks that no option contradicts another one.
    ///
    /// # Errors
    /// If `idmap` lacks `allow_other`.
    pub fn check(&self) -> Result<(), OptionError> {
        if self.idmap && !self.allow_other {
            // With `idmap` most requests name no user, so none would count as the owner's.
            return Err(OptionError::Unsupported {
                option: "idmap".to_owned(),
                because: "it needs \"allow_other\"",
            });
        }
        Ok(())
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
            "remount" => self.remount = true,
            "nonempty" => self.nonempty = true,
            "standby" => self.standby = true,
            // fuse2fs has this option, which selects the behaviour of a mount by the kernel.
            "kernel" => (self.allow_other, self.suid, self.dev) = (true, true, true),
            "noatime" => self.atime = Atime::Never,
            "relatime" => self.atime = Atime::Relative,
            "strictatime" => self.atime = Atime::Strict,
            // As in mount(8), these three only undo an earlier option, and the default is relatime.
            "norelatime" => {}
            "atime" if self.atime == Atime::Never => self.atime = Atime::Relative,
            "nostrictatime" if self.atime == Atime::Strict => self.atime = Atime::Relative,
            "atime" | "nostrictatime" => {}
            "suid" | "nosuid" => self.suid = option == "suid",
            "dev" | "nodev" => self.dev = option == "dev",
            "exec" | "noexec" => self.exec = option == "exec",
            "sync" | "async" => self.sync = option == "sync",
            "dirsync" => self.dirsync = true,
            "diratime" | "nodiratime" => self.diratime = option == "diratime",
            "grpid" | "bsdgroups" => self.group_of_directory = Some(true),
            "nogrpid" | "sysvgroups" => self.group_of_directory = Some(false),
            "bsddf" | "minixdf" => self.minix_df = option == "minixdf",
            "quota" | "usrquota" => self.quotas.user = true,
            "grpquota" => self.quotas.group = true,
            "prjquota" => self.quotas.project = true,
            "noquota" => self.quotas = QuotaKinds::default(),
            "idmap" => self.idmap = true,
            "norecovery" | "noload" => self.recover = false,
            "explain" => self.explain = true,
            _ => return accepted::accept(option),
        }
        Ok(())
    }

    fn set_value(&mut self, option: &str, name: &str, value: &str) -> Result<(), OptionError> {
        let expected = |expected| OptionError::Value { option: option.to_owned(), expected };
        match (name, value) {
            ("offset", _) => self.offset = value.parse().map_err(|_| expected("a number of bytes"))?,
            ("partition", _) => {
                self.partition = Some(value.parse().map_err(|_| expected("the number of a partition"))?);
            }
            ("commit", _) => {
                let seconds: u32 = value.parse().map_err(|_| expected("a number of seconds"))?;
                self.commit = if seconds == 0 { DEFAULT_COMMIT } else { Duration::from_secs(seconds.into()) };
            }
            ("cache", "kernel") => self.cache = Cache::Kernel,
            ("cache", "writeback") => self.cache = Cache::Writeback,
            ("cache", "direct") => self.cache = Cache::Direct,
            ("cache", _) => return Err(expected("kernel, writeback or direct")),
            ("metadata_cache", _) => {
                let bytes = parse_size(value).ok().and_then(|bytes| usize::try_from(bytes).ok());
                self.metadata_cache = Some(bytes.ok_or_else(|| expected("a size such as 64M"))?);
            }
            ("page_cache", _) => {
                self.page_cache = Some(parse_size(value).map_err(|_| expected("a size such as 1G"))?);
            }
            ("threads", _) => {
                let threads = value.parse().ok().filter(|threads| (1..=MAX_THREADS).contains(threads));
                self.threads = threads.ok_or_else(|| expected("a number from 1 to 64"))?;
            }
            ("policy", _) => {
                self.policy = value.parse().map_err(|_| expected("range, shared-overwrite or exclusive"))?;
            }
            ("uid", _) => self.uid = Some(id(value).ok_or_else(|| expected("the number of a user"))?),
            ("gid", _) => self.gid = Some(id(value).ok_or_else(|| expected("the number of a group"))?),
            ("resuid", _) => self.resuid = Some(id(value).ok_or_else(|| expected("the number of a user"))?),
            ("resgid", _) => self.resgid = Some(id(value).ok_or_else(|| expected("the number of a group"))?),
            ("journal_path", "") => return Err(expected("a device")),
            ("journal_path", _) => self.journal = Some(value.into()),
            ("journal_dev", _) => {
                let device = number(value).and_then(device_path);
                self.journal = Some(device.ok_or_else(|| expected("the number of a block device"))?);
            }
            ("log", "") => return Err(expected("a file")),
            ("log", _) => self.log = Some(value.into()),
            ("errors", "continue") => self.on_error = Some(OnError::Continue),
            ("errors", "remount-ro") => self.on_error = Some(OnError::ReadOnly),
            ("errors", "panic") => return accepted::accept(option),
            ("errors", _) => return Err(expected("continue or remount-ro")),
            ("fsname", "") => return Err(expected("a name")),
            ("fsname", _) => self.fsname = Some(value.to_owned()),
            _ => return accepted::accept(option),
        }
        Ok(())
    }
}

/// Returns the path of a block device by its number, in the encoding of the kernel
/// (`new_decode_dev`).
fn device_path(number: u32) -> Option<PathBuf> {
    let (major, minor) = (number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xf_ff00);
    let facts = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).ok()?;
    let name = facts.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    Some(Path::new("/dev").join(name))
}

/// Parses a decimal number, or a hexadecimal one after `0x`.
fn number(value: &str) -> Option<u32> {
    match value.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}

/// Parses the number of a user or group. The largest number is invalid, because it means no user or
/// group.
fn id(value: &str) -> Option<u32> {
    value.parse().ok().filter(|&id| id != u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use parext4::Policy;

    fn parse(list: &str) -> Result<MountOptions, OptionError> {
        let mut options = MountOptions::new();
        options.add(list).map(|()| options)
    }

    #[test]
    fn options_are_parsed() {
        let all = "ro,allow_other,noatime,offset=1048576,commit=30,cache=direct,metadata_cache=64M,page_cache=2G,threads=3,\
            policy=exclusive,suid,\
            noexec,uid=1000,gid=0,norecovery,errors=continue,resuid=7,resgid=8,explain,idmap,standby,log=/tmp/log";
        let options = parse(all).unwrap();
        let expected = MountOptions::new()
            .read_only(true)
            .allow_other(true)
            .atime(Atime::Never)
            .offset(1 << 20)
            .commit(Duration::from_secs(30))
            .cache(Cache::Direct)
            .metadata_cache(64 << 20)
            .page_cache(2 << 30)
            .threads(3)
            .policy(Policy::Exclusive)
            .suid(true)
            .exec(false)
            .uid(1000)
            .gid(0)
            .recover(false)
            .on_error(OnError::Continue)
            .resuid(7)
            .resgid(8)
            .explain(true)
            .idmap(true)
            .standby(true)
            .log("/tmp/log");
        assert_eq!(options, expected);
        assert_eq!(parse("").unwrap(), MountOptions::new());
        assert_eq!(parse("defaults,rw,relatime,x-systemd.automount,commit=0").unwrap(), MountOptions::new());
    }

    #[test]
    fn numbers_of_devices_may_be_hexadecimal() {
        assert_eq!([number("2049"), number("0x801"), number("0y1")], [Some(2049), Some(2049), None]);
    }

    #[test]
    fn later_options_override_earlier_ones() {
        let options = parse("ro,rw,cache=direct,cache=kernel,noatime,strictatime").unwrap();
        assert_eq!(options, MountOptions::new().atime(Atime::Strict));
        for (list, expected) in [
            ("noatime,atime", Atime::Relative),
            ("strictatime,atime", Atime::Strict),
            ("strictatime,nostrictatime", Atime::Relative),
            ("noatime,nostrictatime", Atime::Never),
            ("noatime,norelatime", Atime::Never),
        ] {
            assert_eq!(parse(list).unwrap().atime, expected, "{list}");
        }
    }

    #[test]
    fn fstab_lines_for_ext4_and_fuse2fs_are_accepted() {
        let lists = [
            "defaults,noatime,nodiratime,errors=remount-ro,data=ordered,barrier=1,commit=15,user_xattr,acl",
            "rw,nodelalloc,noblock_validity,nobarrier,minixdf,grpid,stripe=128,discard,journal_checksum,usrquota",
            "ro,noload,nofail,x-systemd.device-timeout=9,_netdev,user,noexec,nosuid,nodev",
            "fsname=disk,subtype=ext4,default_permissions,allow_other,auto_unmount,max_read=131072",
            "kernel,no_default_opts,fuse2fs_debug,offset=512",
        ];
        for list in lists {
            assert_eq!(parse(list).err(), None, "{list}");
        }
        let options = parse("nodiratime,minixdf,grpid,fsname=disk,kernel").unwrap();
        let expected = MountOptions::new()
            .diratime(false)
            .minix_df(true)
            .group_of_directory(true)
            .fsname("disk")
            .allow_other(true)
            .suid(true)
            .dev(true);
        assert_eq!(options, expected);
    }

    #[test]
    fn errors_name_the_option() {
        let error = parse("errors=panic").unwrap_err();
        assert!(
            matches!(&error, OptionError::Unsupported { option, .. } if option == "errors=panic"),
            "{error}"
        );
        for option in ["frobnicate", "journal_checksum=1", "ro=1"] {
            assert_eq!(parse(option), Err(OptionError::Unknown(option.to_owned())));
        }
        for option in [
            "threads=0",
            "threads=65",
            "threads=x",
            "cache=none",
            "metadata_cache=",
            "metadata_cache=M",
            "metadata_cache=1X",
            "page_cache=x",
            "offset=-1",
            "commit=",
            "policy=x",
            "errors=x",
            "uid=root",
            "gid=4294967295",
            "resuid=",
            "fsname=",
            "log=",
        ] {
            assert!(matches!(parse(option), Err(OptionError::Value { .. })), "{option}");
        }
    }
}
