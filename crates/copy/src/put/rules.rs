//! Rules that replace attributes of the copied files: for people who cannot make files with the
//! right owner outside.

use std::fs::Metadata;

use crate::error::{Context, Result};
use parext4::{FileType, InodeRef, Timestamp, XattrMode};

use super::attributes::Attributes;
use super::mode_rule::ModeRule;

/// Attributes that all copies get in place of, or in addition to, the ones of their sources.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    uid: Option<u32>,
    gid: Option<u32>,
    mode: Option<ModeRule>,
    xattrs: Vec<(String, String)>,
    /// Time of the last access of all copies, because a copy changes that of its source.
    pub(super) access_time: Option<Timestamp>,
}

impl Rules {
    /// Returns rules that change nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the owner of all copies; the owner of the source if `None`.
    #[must_use]
    pub fn uid(mut self, uid: impl Into<Option<u32>>) -> Self {
        self.uid = uid.into();
        self
    }

    /// Sets the group of all copies; the group of the source if `None`.
    #[must_use]
    pub fn gid(mut self, gid: impl Into<Option<u32>>) -> Self {
        self.gid = gid.into();
        self
    }

    /// Sets the change of the permissions of all copies.
    #[must_use]
    pub fn mode(mut self, rule: impl Into<Option<ModeRule>>) -> Self {
        self.mode = rule.into();
        self
    }

    /// Adds an extended attribute that all copies get. Symbolic links and special files get none in
    /// the namespace `user`.
    #[must_use]
    pub fn xattr(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.xattrs.push((name.into(), value.into()));
        self
    }

    /// Returns the attributes of the copy of a file that is no directory.
    pub(super) fn of_file(&self, metadata: &Metadata) -> Attributes {
        self.applied(Attributes::of(metadata), false)
    }

    /// Returns the attributes of the copy of a directory.
    pub(super) fn of_directory(&self, metadata: &Metadata) -> Attributes {
        self.applied(Attributes::of(metadata), true)
    }

    /// Returns attributes with the rules applied.
    pub(super) fn applied(&self, mut attributes: Attributes, is_directory: bool) -> Attributes {
        attributes.uid = self.uid.unwrap_or(attributes.uid);
        attributes.gid = self.gid.unwrap_or(attributes.gid);
        if let Some(mode) = &self.mode {
            attributes.permissions = mode.apply(attributes.permissions, is_directory);
        }
        attributes.atime = self.access_time.unwrap_or(attributes.atime);
        attributes
    }

    /// Sets the attributes that all copies get.
    pub(super) fn set_xattrs(&self, node: &InodeRef) -> Result<()> {
        let has_user = matches!(node.file_type(), FileType::Regular | FileType::Directory);
        for (name, value) in self.xattrs.iter().filter(|(name, _)| has_user || !name.starts_with("user.")) {
            node.set_xattr(name.as_bytes(), value.as_bytes(), XattrMode::Any)
                .with_context(|| format!("attribute {name}"))?;
        }
        Ok(())
    }
}
