//! The options of `put` that replace attributes of the copied files.

use parext4_copy::{ModeRule, Rules};

/// The options.
#[derive(Clone, Debug, clap::Args)]
pub struct RuleArgs {
    /// Owner and group of all copies, as numbers, such as 0:0; either may be left out
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    owner: Option<Owner>,
    /// Permissions of all copies, as chmod takes them: 644 or u+w,go-w. With D or F before it, a
    /// rule is for directories or for other files only, such as D755,F644
    #[arg(long, value_name = "RULE")]
    mode: Option<ModeRule>,
    /// Extended attribute that all copies get; may be repeated
    #[arg(long = "xattr", value_name = "NAME=VALUE", value_parser = xattr)]
    xattrs: Vec<(String, String)>,
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
    /// Returns the rules that the options name.
    pub fn rules(&self) -> Rules {
        let Owner { uid, gid } = self.owner.unwrap_or(Owner { uid: None, gid: None });
        let rules = Rules::new().uid(uid).gid(gid).mode(self.mode.clone());
        self.xattrs.iter().fold(rules, |rules, (name, value)| rules.xattr(name, value))
    }
}
