//! `quota`: reports what users, groups and projects use, and sets their limits.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use parext4::{Quota, QuotaKind, QuotaLimits, Volume};
use serde_json::{Value, json};

use crate::output::{self, Output};
use crate::{image, json, size};

/// Show what users, groups and projects use, or set the limits of one
///
/// The volume is not mounted, and has the feature quota (mkfs -O quota, or quota,project). Limits
/// are enforced on mounts with the options usrquota, grpquota and prjquota. Space in the output is
/// in KiB, and a limit of 0 is none.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The volume
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    #[command(flatten)]
    of: Of,
    /// Space that is never exceeded, such as 1G; 0 for no limit, here and below. Limits that are
    /// not given stay
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "Of")]
    block_hard: Option<u64>,
    /// Space that may be exceeded for a week, or for the time that the quota file has
    #[arg(long, value_name = "SIZE", value_parser = size::parse, requires = "Of")]
    block_soft: Option<u64>,
    /// Number of inodes that is never exceeded
    #[arg(long, value_name = "COUNT", requires = "Of")]
    inode_hard: Option<u64>,
    /// Number of inodes that may be exceeded for a time
    #[arg(long, value_name = "COUNT", requires = "Of")]
    inode_soft: Option<u64>,
    /// Print as JSON, with the fields that parext4-json(5) lists
    #[arg(long)]
    json: bool,
}

/// The user, the group or the project that the command is about; all if none is given.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Of {
    /// The number of a user
    #[arg(long, value_name = "ID")]
    user: Option<u32>,
    /// The number of a group
    #[arg(long, value_name = "ID")]
    group: Option<u32>,
    /// The number of a project
    #[arg(long, value_name = "ID")]
    project: Option<u32>,
}

impl Of {
    fn one(&self) -> Option<(QuotaKind, u32)> {
        let ids = [self.user, self.group, self.project];
        QuotaKind::ALL.into_iter().zip(ids).find_map(|(kind, id)| Some((kind, id?)))
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let sets =
        [args.block_hard, args.block_soft, args.inode_hard, args.inode_soft].iter().any(Option::is_some);
    match args.of.one().filter(|_| sets) {
        Some((kind, id)) => {
            image::write(&args.image, |volume| set(args, volume, kind, id).with_context(of(args)))?;
        }
        None => image::read(&args.image, |volume| report(args, volume).with_context(of(args)))?,
    }
    Ok(())
}

fn of(args: &Args) -> impl FnOnce() -> String {
    || args.image.display().to_string()
}

fn set(args: &Args, volume: &Volume, kind: QuotaKind, id: u32) -> Result<()> {
    let quotas = volume.quotas(kind)?.unwrap_or_default();
    let old =
        quotas.iter().find(|quota| quota.id == id).map_or_else(QuotaLimits::default, |quota| quota.limits);
    let limits = QuotaLimits {
        space_hard: args.block_hard.unwrap_or(old.space_hard),
        space_soft: args.block_soft.unwrap_or(old.space_soft),
        inodes_hard: args.inode_hard.unwrap_or(old.inodes_hard),
        inodes_soft: args.inode_soft.unwrap_or(old.inodes_soft),
    };
    Ok(volume.set_quota_limits(kind, id, &limits)?)
}

fn report(args: &Args, volume: &Volume) -> Result<()> {
    let mut rows = Vec::new();
    let mut has_any = false;
    for kind in QuotaKind::ALL {
        let Some(quotas) = volume.quotas(kind)? else { continue };
        has_any = true;
        let wanted = |quota: &Quota| args.of.one().is_none_or(|one| one == (kind, quota.id));
        // Entries stay when nothing counts for them any more.
        let is_used =
            |quota: &Quota| quota.inodes != 0 || quota.space != 0 || quota.limits != QuotaLimits::default();
        rows.extend(
            quotas.into_iter().filter(|quota| wanted(quota) && is_used(quota)).map(|quota| (kind, quota)),
        );
    }
    if !has_any {
        return Err(
            parext4::Error::Unsupported("the volume does not have the feature quota".to_owned()).into()
        );
    }
    if args.json { print_json(args, &rows) } else { output::print(|out| print(out, &rows)) }
}

fn print(out: &mut Output, rows: &[(QuotaKind, Quota)]) -> Result<()> {
    let heads = ["KIB", "SOFT", "HARD", "INODES", "SOFT", "HARD"];
    let [space, space_soft, space_hard, inodes, inodes_soft, inodes_hard] = heads;
    writeln!(
        out,
        "{:<8}{:>10} {space:>12} {space_soft:>12} {space_hard:>12} {inodes:>10} {inodes_soft:>10} {inodes_hard:>10}",
        "KIND", "ID"
    )?;
    for (kind, quota) in rows {
        let Quota { id, space, inodes, limits, .. } = quota;
        let [space, soft, hard] =
            [*space, limits.space_soft, limits.space_hard].map(|bytes| bytes.div_ceil(1024));
        let (inodes_soft, inodes_hard) = (limits.inodes_soft, limits.inodes_hard);
        let kind = kind.name();
        writeln!(
            out,
            "{kind:<8}{id:>10} {space:>12} {soft:>12} {hard:>12} {inodes:>10} {inodes_soft:>10} {inodes_hard:>10}"
        )?;
    }
    Ok(())
}

fn print_json(args: &Args, rows: &[(QuotaKind, Quota)]) -> Result<()> {
    let quotas: Vec<Value> = rows
        .iter()
        .map(|(kind, quota)| {
            json!({
                "kind": kind.name(),
                "id": quota.id,
                "space": quota.space,
                "space_soft": quota.limits.space_soft,
                "space_hard": quota.limits.space_hard,
                "space_until": quota.space_until,
                "inodes": quota.inodes,
                "inodes_soft": quota.limits.inodes_soft,
                "inodes_hard": quota.limits.inodes_hard,
                "inodes_until": quota.inodes_until,
            })
        })
        .collect();
    json::print(&json::with_names(json!({"quotas": quotas}), [("image", args.image.as_os_str())]))
}
