//! parext4 killed under load on a volume of a network block device.

use std::path::Path;

use anyhow::Result;
use fastrand::Rng;

use super::server::kinds;
use super::server::nbd::Folder;
use super::{Campaign, Part};
use crate::campaign::kill::{self, SETS, Source};
use crate::report::Report;

/// Runs the part.
pub fn run(campaign: &Campaign<'_>, report: &mut Report) -> Result<()> {
    campaign.case(Part::Kills, kinds::FILE.name, ", put", report, || {
        let (bed, mut rng) = (campaign.bed, Rng::with_seed(campaign.seed));
        let server = Folder::new(bed)?;
        let source = Source::new(bed, &mut rng)?;
        let name = |image: &Path| server.url(image);
        kill::killed(bed, &source, SETS[0], campaign.scope.pick(4, 100), &mut rng, &name)
    });
    Ok(())
}
