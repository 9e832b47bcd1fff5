//! Prints options in the form in which they are parsed.

use std::fmt;

use parext4::OnError;

use super::{Atime, Cache, MountOptions};

impl fmt::Display for MountOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let either = |is_set: bool, yes: &'static str, no: &'static str| if is_set { yes } else { no };
        f.write_str(either(self.read_only, "ro", "rw"))?;
        for (is_set, flag) in [
            (self.remount, "remount"),
            (self.nonempty, "nonempty"),
            (self.standby, "standby"),
            (!self.recover, "norecovery"),
            (!self.diratime, "nodiratime"),
            (self.idmap, "idmap"),
            (self.group_of_directory == Some(true), "grpid"),
            (self.group_of_directory == Some(false), "nogrpid"),
            (self.minix_df, "minixdf"),
            (self.allow_other, "allow_other"),
            (self.sync, "sync"),
            (self.dirsync, "dirsync"),
            (self.explain, "explain"),
            (self.quotas.user, "usrquota"),
            (self.quotas.group, "grpquota"),
            (self.quotas.project, "prjquota"),
        ] {
            if is_set {
                write!(f, ",{flag}")?;
            }
        }
        let atime = match self.atime {
            Atime::Never => "noatime",
            Atime::Relative => "relatime",
            Atime::Strict => "strictatime",
        };
        let (suid, dev, exec) = (
            either(self.suid, "suid", "nosuid"),
            either(self.dev, "dev", "nodev"),
            either(self.exec, "exec", "noexec"),
        );
        write!(f, ",{atime},{suid},{dev},{exec}")?;
        let cache = match self.cache {
            Cache::Kernel => "kernel",
            Cache::Writeback => "writeback",
            Cache::Direct => "direct",
        };
        write!(f, ",cache={cache},threads={},policy={}", self.threads, self.policy)?;
        write!(f, ",commit={},offset={}", self.commit.as_secs(), self.offset)?;
        match self.on_error {
            Some(OnError::Continue) => f.write_str(",errors=continue")?,
            // This is the strictest reaction that an option can express.
            Some(_) => f.write_str(",errors=remount-ro")?,
            None => {}
        }
        let ids = [("uid", self.uid), ("gid", self.gid), ("resuid", self.resuid), ("resgid", self.resgid)];
        for (name, id) in ids {
            if let Some(id) = id {
                write!(f, ",{name}={id}")?;
            }
        }
        if let Some(journal) = &self.journal {
            write!(f, ",journal_path={}", journal.display())?;
        }
        if let Some(name) = &self.fsname {
            write!(f, ",fsname={name}")?;
        }
        if let Some(bytes) = self.metadata_cache {
            write!(f, ",metadata_cache={bytes}")?;
        }
        if let Some(bytes) = self.page_cache {
            write!(f, ",page_cache={bytes}")?;
        }
        self.log.as_ref().map_or(Ok(()), |log| write!(f, ",log={}", log.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_options_can_be_parsed() {
        let lists = [
            "",
            "remount,nonempty,standby,nodiratime,grpid,minixdf,fsname=disk",
            "nogrpid",
            "quota,prjquota",
            "ro,norecovery,allow_other,noatime,offset=512,commit=9,cache=direct,threads=2,policy=exclusive,suid,dev",
            "cache=writeback,metadata_cache=16M,page_cache=1073741824,strictatime,sync,dirsync,explain,idmap,noexec,uid=1,gid=2,resuid=3,resgid=4,errors=remount-ro,log=/a b",
        ];
        for list in lists {
            let (mut options, mut again) = (MountOptions::new(), MountOptions::new());
            options.add(list).unwrap();
            again.add(&options.to_string()).unwrap();
            assert_eq!(options, again, "{options}");
        }
    }
}
