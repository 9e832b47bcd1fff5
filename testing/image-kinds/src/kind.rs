//! A kind of image, and the commands that make it.

use std::borrow::Cow;
use std::path::Path;

/// A kind of image.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Its name, for messages and to select it.
    pub name: Cow<'static, str>,
    /// Size of the image in MiB.
    pub mib: u64,
    /// Arguments of mke2fs.
    pub mke2fs: Cow<'static, str>,
    /// How the image is changed after mke2fs made it.
    pub then: Then,
    /// Arguments of tune2fs, for the image once it has files; empty if it stays as it is.
    pub convert: &'static str,
    /// Mount options with which the kernel mounts the image; `None` if it does not.
    pub kernel: Option<&'static str>,
}

/// A change of an image that mke2fs cannot make.
#[derive(Clone, Copy, Debug)]
pub enum Then {
    /// No change.
    Nothing,
    /// A request for debugfs.
    Debugfs(&'static str),
    /// Meta groups begin after the first block of descriptors, and resize2fs grows the volume to
    /// this many MiB.
    Grow(u64),
}

/// A program and its arguments.
pub type Command = (&'static str, Vec<String>);

impl Kind {
    /// Returns a kind that the kernel mounts.
    pub(crate) const fn new(name: &'static str, mib: u64, mke2fs: &'static str) -> Self {
        let (name, mke2fs) = (Cow::Borrowed(name), Cow::Borrowed(mke2fs));
        Self { name, mib, mke2fs, then: Then::Nothing, convert: "", kernel: Some("") }
    }

    /// Adds a change after mke2fs.
    pub(crate) const fn then(mut self, then: Then) -> Self {
        self.then = then;
        self
    }

    /// Adds a change by tune2fs of the image with files.
    pub(crate) const fn converted(mut self, tune2fs: &'static str) -> Self {
        self.convert = tune2fs;
        self
    }

    /// Has the kernel mount the image with options.
    pub(crate) const fn mounted(mut self, options: &'static str) -> Self {
        self.kernel = Some(options);
        self
    }

    /// Marks a kind that not every kernel can mount, such as casefold without `CONFIG_UNICODE`.
    pub(crate) const fn not_mounted(mut self) -> Self {
        self.kernel = None;
        self
    }

    /// Returns true if mke2fs makes images of this kind for files with extents.
    pub fn has_extents(&self) -> bool {
        !self.says_one_of(&["-t ext2", "-t ext3", "-O none", "^extent"]) || self.says_one_of(&["none,extent"])
    }

    /// Returns true if files made after the [conversion](Self::conversion) have extents.
    pub fn gets_extents(&self) -> bool {
        self.has_extents() || self.convert.contains("extent")
    }

    /// Returns true if mke2fs makes images of this kind with a journal.
    pub fn has_journal(&self) -> bool {
        !self.says_one_of(&["-t ext2", "-O none", "^has_journal"])
    }

    fn says_one_of(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.mke2fs.contains(word))
    }

    /// Returns the commands that make an image of this kind in the sparse file `path`, whose size
    /// is that of the kind. With `tree`, the image gets the files of that directory.
    pub fn commands(&self, path: &Path, tree: Option<&Path>) -> Vec<Command> {
        let path = path.display().to_string();
        let mut mke2fs = words("-q -F");
        if !self.mke2fs.contains("-t ext") {
            mke2fs.extend(words("-t ext4"));
        }
        mke2fs.extend(words(&self.mke2fs));
        mke2fs.extend(tree.into_iter().flat_map(|tree| ["-d".to_owned(), tree.display().to_string()]));
        mke2fs.push(path.clone());
        let mut commands = vec![("mke2fs", mke2fs)];
        let debugfs =
            |request: &str| ("debugfs", vec!["-w".into(), "-R".into(), request.into(), path.clone()]);
        match self.then {
            Then::Nothing => {}
            Then::Debugfs(request) => commands.push(debugfs(request)),
            Then::Grow(mib) => {
                commands.push(debugfs("feature meta_bg"));
                commands.push(debugfs("ssv first_meta_bg 1"));
                commands.push(("resize2fs", vec!["-f".into(), path.clone(), format!("{mib}M")]));
            }
        }
        commands
    }

    /// Returns the command that converts an image with files, if this kind is converted.
    pub fn conversion(&self, path: &Path) -> Option<Command> {
        let mut arguments = words(self.convert);
        arguments.push(path.display().to_string());
        (!self.convert.is_empty()).then_some(("tune2fs", arguments))
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}
