//! Work on a whole volume, recorded: making a volume over an old one, and deleting orphans. A crash
//! leaves one of two trees, or while a volume is made none.

use std::sync::Arc;

use parext4::{Device, DirectFile, MemDevice, OpenOptions, Result, Volume};
use testkit::cut::Cut;
use testkit::ops::{Tree, read_tree};
use testkit::rng::Rng;

use crate::experiment::Experiment;
use crate::kind::{Kind, open, options};
use crate::record::{Recorder, Recording};
use crate::verify::make_used;

/// The most orphans.
const ORPHANS: u64 = 40;

/// Work on a volume.
#[derive(Debug)]
pub struct Upkeep {
    recording: Recording,
    /// The trees that a crash may leave.
    trees: Vec<Tree>,
    /// Events before a crash after which a volume must open.
    sound_from: usize,
    about: String,
}

impl Upkeep {
    /// Makes a volume over the one on `old`.
    ///
    /// # Errors
    /// A call that failed.
    pub fn make(old: &MemDevice, kind: &Kind) -> std::result::Result<Self, String> {
        let recorder = Recorder::new(old);
        kind.make_over(&*recorder);
        let trees = vec![tree_of(old)?, Tree::default()];
        let recording = Recording::new(old.fork(), &recorder);
        let about = format!("  a volume made, {} events", recorder.events());
        Ok(Self { recording, trees, sound_from: recorder.events(), about })
    }

    /// Recovers a volume with orphans, and closes it.
    ///
    /// # Errors
    /// A call that failed.
    pub fn delete_orphans(base: &MemDevice, rng: &mut Rng) -> std::result::Result<Self, String> {
        let count = 1 + rng.below(ORPHANS);
        let crashed = with_orphans(base, count, rng).map_err(|e| e.to_string())?;
        let recorder = Recorder::new(&crashed);
        let recover = || -> Result<()> {
            let volume = Volume::open_device(Arc::clone(&recorder) as Arc<dyn Device>, &options())?;
            make_used(&volume)?;
            volume.close()
        };
        recover().map_err(|e| e.to_string())?;
        let trees = vec![tree_of(&crashed)?];
        let about = format!("  {count} orphans deleted, {} events", recorder.events());
        Ok(Self { recording: Recording::new(crashed, &recorder), trees, sound_from: 0, about })
    }
}

fn tree_of(device: &MemDevice) -> std::result::Result<Tree, String> {
    let volume = open(&Arc::new(device.fork())).map_err(|e| e.to_string())?;
    read_tree(&volume, "")
}

/// Returns a volume that crashed with orphans: files without a name, some of them being cut.
fn with_orphans(base: &MemDevice, count: u64, rng: &mut Rng) -> Result<MemDevice> {
    let device = Arc::new(base.fork());
    let volume = open(&device)?;
    let orphan = |number: u64| -> Result<DirectFile> {
        let path = format!("/orphan-{number}");
        let file = volume.open_direct(&path, &OpenOptions::read_write().create_new(true))?;
        for block in 0..rng.below(6) {
            file.write_all_at(&[0xdd; 1024], block * 4096)?;
        }
        volume.remove_file(&path)?;
        Ok(file)
    };
    let mut files = (0..count).map(orphan).collect::<Result<Vec<_>>>()?;
    volume.sync()?;
    let deleted = files.len() / 4;
    files.drain(..deleted);
    files.iter().step_by(3).try_for_each(|file| file.set_len(1000))?;
    volume.sync()?;
    Ok(device.fork())
}

impl Experiment for Upkeep {
    fn recording(&self) -> &Recording {
        &self.recording
    }

    fn first(&self) -> usize {
        0
    }

    fn may_be_refused(&self, cut: &Cut) -> bool {
        cut.latest() < self.sound_from
    }

    fn check(&self, cut: &Cut, tree: &Tree) -> std::result::Result<(), String> {
        let trees =
            if self.may_be_refused(cut) { &self.trees[..] } else { &self.trees[self.trees.len() - 1..] };
        let differs = trees.iter().map(|wanted| wanted.compare(tree).err()).collect::<Option<Vec<_>>>();
        differs.map_or(Ok(()), |differences| Err(differences.join("; ")))
    }

    fn describe(&self) -> String {
        self.about.clone()
    }
}
