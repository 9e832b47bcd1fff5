//! Rules that replace attributes of the copied files: for people who cannot make files with the right owner outside.

use std::fs::Metadata;

use anyhow::{Context, Result};
use parext4::{FileType, InodeRef, Timestamp, XattrMode};

use super::attributes::Attributes;
use crate::chmod::ModeRule;

/// The options.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct RuleArgs {
    /// Owner and group of all copies, as numbers, such as 0:0; either may be left out
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    owner: Option<Owner>,
    /// Permissions of all copies, as chmod takes them: 644 or u+w,go-w. With D or F before it, a rule is for directories or for
    /// other files only, such as D755,F644
    #[arg(long, value_name = "RULE")]
    mode: Option<ModeRule>,
    /// Extended attribute that all copies get; may be repeated
    #[arg(long = "xattr", value_name = "NAME=VALUE", value_parser = xattr)]
    xattrs: Vec<(String, String)>,
    /// Time of the last access of all copies, because a copy changes that of its source.
    #[arg(skip)]
    pub access_time: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Owner {
    uid: Option<u32>,
    gid: Option<u32>,
}

fn owner(text: &str) -> Result<Owner, String> {
    let number = |text: &str| match text {
        "" => Ok(None),
        "root" => Ok(Some(0)),
        _ => text.parse().map(Some).map_err(|_| format!("{text:?} is not the number of a user or group")),
    };
    let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
    Ok(Owner { uid: number(uid)?, gid: number(gid)? })
}

fn xattr(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').ok_or("expected NAME=VALUE, such as user.origin=build")?;
    Ok((pair.0.to_owned(), pair.1.to_owned()))
}

impl RuleArgs {
    /// Returns the attributes of the copy of a file that is no directory.
    pub fn of_file(&self, metadata: &Metadata) -> Attributes {
        self.applied(Attributes::of(metadata), false)
    }

    /// Returns the attributes of the copy of a directory.
    pub fn of_directory(&self, metadata: &Metadata) -> Attributes {
        self.applied(Attributes::of(metadata), true)
    }

    /// Returns attributes with the rules applied.
    pub fn applied(&self, mut attributes: Attributes, is_directory: bool) -> Attributes {
        if let Some(Owner { uid, gid }) = self.owner {
            attributes.uid = uid.unwrap_or(attributes.uid);
            attributes.gid = gid.unwrap_or(attributes.gid);
        }
        if let Some(mode) = &self.mode {
            attributes.permissions = mode.apply(attributes.permissions, is_directory);
        }
        attributes.atime = self.access_time.unwrap_or(attributes.atime);
        attributes
    }

    /// Sets the attributes that all copies get. Symbolic links and special files have none in the namespace `user`.
    pub fn set_xattrs(&self, node: &InodeRef) -> Result<()> {
        let has_user = matches!(node.file_type(), FileType::Regular | FileType::Directory);
        for (name, value) in self.xattrs.iter().filter(|(name, _)| has_user || !name.starts_with("user.")) {
            node.set_xattr(name.as_bytes(), value.as_bytes(), XattrMode::Any)
                .with_context(|| format!("attribute {name}"))?;
        }
        Ok(())
    }
}
