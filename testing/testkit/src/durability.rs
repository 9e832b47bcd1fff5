//! A model of what a volume may hold after a crash or a fault of operations that run one after the
//! other, given the syncs among them. Files are of whole sectors.

use parext4::Volume;

use crate::ops::{Content, Durable, FileOp, Op, Oracle, Persist, Tree, Zeros, read_tree};

/// The states of a volume during a workload, and which of them its syncs made durable.
#[derive(Clone, Debug)]
pub struct DurabilityModel {
    oracle: Oracle,
    durable: Durable,
    /// The point before the last operation.
    last_whole: usize,
    /// Bytes of a block.
    block: u64,
}

impl DurabilityModel {
    /// Returns the model of an empty volume with blocks of `block_size` bytes.
    pub fn new(block_size: u32) -> Self {
        Self::starting_from(Tree::default(), block_size)
    }

    fn starting_from(tree: Tree, block_size: u32) -> Self {
        let oracle = Oracle::new(tree, Zeros::Never);
        Self { oracle, durable: Durable::default(), last_whole: 0, block: block_size.into() }
    }

    /// Returns the model of a volume that nothing has changed since it was opened.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(volume: &Volume, block_size: u32) -> Result<Self, String> {
        Ok(Self::starting_from(read_tree(volume, "")?, block_size))
    }

    /// Returns the tree after the last operation.
    pub fn tree(&self) -> &Tree {
        self.oracle.tree()
    }

    /// Notes that an operation that writes `content` begins: from now on all, a part or nothing of
    /// it may be found.
    ///
    /// # Panics
    /// If it would fail.
    pub fn begin(&mut self, op: Op, content: Content) {
        self.last_whole = self.oracle.now();
        if let Op::File(path, FileOp::SetLen { size }) = op {
            // A truncation first zeroes the rest of the new last block.
            let end = size.next_multiple_of(self.block);
            let zero = FileOp::ZeroRange { offset: size, len: end - size, keep_size: true };
            self.oracle.add(Op::File(path, zero), content);
        }
        self.oracle.add(op, content);
    }

    /// Notes that an operation of several threads begins, after which the tree is `tree`.
    pub fn begin_as(&mut self, op: Op, tree: Tree) {
        self.oracle.add_as(op, tree);
    }

    /// Notes that the last operation succeeded.
    pub fn succeeded(&mut self) {
        let last = self.oracle.now() - 1;
        self.durable.merge(&self.oracle.persisted(last, Persist::None));
    }

    /// Returns this model with only the syncs of `earlier`, a former state of the same model.
    #[must_use]
    pub fn with_syncs_of(&self, earlier: &Self) -> Self {
        Self { durable: earlier.durable.clone(), ..self.clone() }
    }

    /// Notes that everything so far is durable.
    pub fn all_durable(&mut self) {
        self.durable.merge(&self.oracle.all(self.oracle.now()));
    }

    /// Notes that everything so far is durable, except the last operation if it has `failed`.
    pub fn all_durable_but_the_last(&mut self, failed: bool) {
        let point = if failed { self.last_whole } else { self.oracle.now() };
        self.durable.merge(&self.oracle.all(point));
    }

    /// Returns the last tree that a sync made durable.
    pub fn durable_tree(&self) -> &Tree {
        self.oracle.tree_at(self.durable.names)
    }

    /// Checks that an open volume is in the last state.
    ///
    /// # Errors
    /// A description of a difference.
    pub fn check_now(&self, volume: &Volume) -> Result<usize, String> {
        let mut now = self.clone();
        now.all_durable();
        now.check(volume)
    }

    /// Checks an open volume, and returns the number of inodes with names.
    ///
    /// # Errors
    /// A description of what is missing, or should not be there.
    pub fn check(&self, volume: &Volume) -> Result<usize, String> {
        let found = read_tree(volume, "")?;
        self.oracle.check_any(&found, &self.durable, self.oracle.now())?;
        Ok(found.inodes())
    }
}
