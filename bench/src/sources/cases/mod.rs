//! The cases: the measurements of each source, and their participants.

mod databases;
mod metadata;
mod passes;
mod pressure;

use std::time::Duration;

use parext4::{Policy, SplitAt};

use super::command;
use super::mount::{CacheMode, FileSystem};
use super::workload::Workload;
use crate::engine::Engine;
use crate::job::{BlockSize, Files, IoEngine, Job, Layout, Rw};

/// The size and duration of the runs.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Bytes of the files.
    pub size: u64,
    /// Largest duration of a run.
    pub runtime: Duration,
    /// Names that are created, looked up, renamed and removed.
    pub names: u32,
}

impl Scale {
    /// For a test that every case works; the figures mean little.
    pub const QUICK: Self = Self { size: 64 << 20, runtime: Duration::from_millis(100), names: 2000 };

    /// For figures to report.
    pub const fn full(runtime: Duration) -> Self {
        Self { size: 512 << 20, runtime, names: 50_000 }
    }
}

/// One case of a source.
#[derive(Clone, Debug)]
pub struct Case {
    pub source: &'static str,
    pub case: String,
    pub work: Workload,
    /// Operations per second that the source measured before its change. The simulated device gets
    /// a latency that gives this rate.
    pub before: Option<f64>,
    /// Bytes of the cache of every run, if it must not hold all files: of the engine's page cache,
    /// or of a memory control group that limits the kernel's.
    pub cache: Option<u64>,
    /// The participants. Rates are relative to the first.
    pub runs: Vec<Participant>,
}

/// A participant of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participant {
    pub on: Subject,
    pub files: Files,
    pub engine: Engine,
    /// Overrides the layout of the job.
    pub layout: Option<Layout>,
    /// Whether a thread punches holes during the run.
    pub punch: bool,
}

/// The subject of a measurement, and its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    Lib(Storage),
    Raw(Storage),
    /// Plain copies out of an array.
    Copy,
    FileSystem(FileSystem),
}

/// The storage of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// Memory.
    Memory,
    /// Memory with simulated latency.
    Simulated,
    /// The image file, or the given device.
    Plain,
    /// The loop device that the kernel's file systems use.
    Loop,
}

/// Returns all cases.
pub fn all(scale: Scale) -> Vec<Case> {
    let blocks = [
        s1(scale),
        s1_disk(scale),
        s2(scale),
        s3(scale),
        s4(scale),
        s5(scale),
        one_file(scale),
        buffered(scale),
        pressure::cases(scale),
    ];
    [blocks.concat(), metadata::cases(scale), databases::cases(scale)].concat()
}

const PLAIN: Participant = on(Subject::Lib(Storage::Plain));
const LOOP: Participant = on(Subject::Lib(Storage::Loop));
const RAW: Participant = on(Subject::Raw(Storage::Plain));
const RAW_LOOP: Participant = on(Subject::Raw(Storage::Loop));
const COPY: Participant = on(Subject::Copy);
const EXT4: Participant = on(Subject::FileSystem(FileSystem::Ext4));
const XFS: Participant = on(Subject::FileSystem(FileSystem::Xfs));
const MOUNTED: Participant = on(Subject::FileSystem(FileSystem::Mounted(CacheMode::Kernel)));
const MOUNTED_WRITEBACK: Participant = on(Subject::FileSystem(FileSystem::Mounted(CacheMode::Writeback)));
const MOUNTED_DIRECT: Participant = on(Subject::FileSystem(FileSystem::Mounted(CacheMode::Direct)));
const NULL: Participant = on(Subject::FileSystem(FileSystem::Null));
const FUSE2FS: Participant = on(Subject::FileSystem(FileSystem::Fuse2fs));

/// Returns a participant with the default engine whose jobs share one file.
const fn on(on: Subject) -> Participant {
    Participant { on, files: Files::One, engine: Engine::DEFAULT, layout: None, punch: false }
}

impl Participant {
    const fn policy(self, policy: Policy) -> Self {
        Self { engine: Engine { policy, ..self.engine }, ..self }
    }

    const fn split_at(self, split_at: SplitAt) -> Self {
        Self { engine: Engine { split_at, ..self.engine }, ..self }
    }

    const fn serialize_from(self, serialize_from: Option<u32>) -> Self {
        Self { engine: Engine { serialize_from, ..self.engine }, ..self }
    }

    const fn layout(self, layout: Layout) -> Self {
        Self { layout: Some(layout), ..self }
    }

    const fn punched(self) -> Self {
        Self { punch: true, ..self }
    }

    const fn per_job(self) -> Self {
        Self { files: Files::PerJob, ..self }
    }

    /// Returns the job of a case with the settings of this participant.
    pub fn job(&self, job: &Job) -> Job {
        Job { files: self.files, layout: self.layout_in(job), punch: self.punch, ..job.clone() }
    }

    /// Returns the contents of the files at the start of a job.
    pub fn layout_in(&self, job: &Job) -> Layout {
        self.layout.unwrap_or(job.layout)
    }
}

/// Returns the cases of S1: writes into preallocated blocks in parallel. The table of the source,
/// on a device as slow as there.
fn s1(scale: Scale) -> Vec<Case> {
    let sim = on(Subject::Lib(Storage::Simulated));
    let runs = [
        sim.policy(Policy::Exclusive),
        sim.policy(Policy::SharedOverwrite),
        sim.split_at(SplitAt::Submission),
        sim,
    ];
    let mut cases: Vec<Case> = [4, 16, 64]
        .into_iter()
        .map(|k| {
            let job = job(scale, Layout::Unwritten, k << 10, 10, 10);
            Case { before: Some(11_100.0), ..row("S1", &format!("unwritten-{k}k-qd10x10-sim"), job, &runs) }
        })
        .collect();
    let mem = on(Subject::Lib(Storage::Memory));
    let mem = [Layout::Written, Layout::Unwritten].map(|layout| mem.layout(layout));
    cases.push(row("S1", "written-unwritten-4k-mem", job(scale, Layout::Unwritten, 4096, 8, 1), &mem));
    cases
}

/// Returns the cases of S1 on a disk, with the peers.
fn s1_disk(scale: Scale) -> Vec<Case> {
    let peers = [
        RAW.layout(Layout::Written),
        LOOP,
        RAW_LOOP.layout(Layout::Written),
        EXT4,
        XFS,
        MOUNTED,
        FUSE2FS,
        NULL,
    ];
    let exclusive = PLAIN.policy(Policy::Exclusive);
    let overwrite = [&[exclusive, PLAIN], &peers[..]].concat();
    let shared = PLAIN.policy(Policy::SharedOverwrite);
    let unwritten = [&[exclusive, shared, PLAIN.split_at(SplitAt::Submission), PLAIN], &peers[..]].concat();
    let job = |layout| job(scale, layout, 4096, 10, 10);
    vec![
        row("S1", "overwrite-4k-qd10x10", job(Layout::Written), &overwrite),
        row("S1", "unwritten-4k-qd10x10", job(Layout::Unwritten), &unwritten),
    ]
}

/// Returns the cases of S2: the blocks of a large request are allocated in one step.
fn s2(scale: Scale) -> Vec<Case> {
    const JOBS: u32 = 32;
    let settings = [None, Some(0), Some(33)].map(|from| PLAIN.serialize_from(from));
    let mut append = settings.to_vec();
    append.extend(settings.map(Participant::per_job));
    append.extend([LOOP, EXT4, XFS]);
    let mixed = BlockSize { min: 4 << 10, max: 1 << 20 };
    let sizes = [4, 128, 2048].map(|k| fixed(k << 10)).into_iter().chain([mixed]);
    let appends = sizes.map(|block| {
        let job = with_block(job(scale, Layout::Append, 4096, JOBS, 1), block);
        row("S2", &format!("append-{block}-32"), Job { rw: Rw::Append, ..job }, &append)
    });
    let overwrites = [fixed(4 << 10), fixed(32 << 10), mixed].map(|block| {
        let job = with_block(job(scale, Layout::Written, 4096, JOBS, 1), block);
        row("S2", &format!("overwrite-{block}-32"), job, &settings[..2])
    });
    appends.chain(overwrites).collect()
}

/// Returns the cases of S3: overwrites of parts of blocks in parallel.
fn s3(scale: Scale) -> Vec<Case> {
    let sim = on(Subject::Lib(Storage::Simulated));
    let runs = [sim.policy(Policy::Exclusive), sim.policy(Policy::SharedOverwrite), sim];
    // A device moves data without processor time. So the memory of the simulated device should fit
    // the processor's caches.
    let size = scale.size.min(64 << 20);
    let overwrite = job(Scale { size, ..scale }, Layout::Written, 2048, 8, 256);
    let unwritten = half_blocks(job(scale, Layout::Unwritten, 2048, 8, 16), 0);
    vec![
        Case { before: Some(4_328.0), ..row("S3", "unaligned-overwrite-2k-qd256x8-sim", overwrite, &runs) },
        row(
            "S3",
            "unaligned-unwritten-2k-qd16x8",
            unwritten,
            &[PLAIN.policy(Policy::Exclusive), PLAIN, LOOP, EXT4, XFS, MOUNTED, FUSE2FS, NULL],
        ),
    ]
}

/// Returns the cases that compare threads in one file with a file for each thread.
fn one_file(scale: Scale) -> Vec<Case> {
    let runs = [PLAIN, LOOP, EXT4, XFS].map(|run| [run, run.per_job()]).concat();
    let through_fuse = [MOUNTED, FUSE2FS, NULL].map(|run| [run, run.per_job()]).concat();
    let with_fuse = [&runs[..], &through_fuse].concat();
    let threads = |layout, bytes| job(scale, layout, bytes, 8, 1);
    let case = |case, job, runs: &[Participant]| row("one-file", case, job, runs);
    vec![
        case("overwrite-4k", threads(Layout::Written, 4096), &runs),
        case("unwritten-4k", threads(Layout::Unwritten, 4096), &runs),
        case("unaligned-overwrite-2k", half_blocks(threads(Layout::Written, 2048), 1024), &with_fuse),
        case("unaligned-unwritten-2k", half_blocks(threads(Layout::Unwritten, 2048), 1024), &runs),
        case("hole-4k", threads(Layout::Hole, 4096), &with_fuse),
        case("append-4k", Job { rw: Rw::Append, ..threads(Layout::Append, 4096) }, &with_fuse),
    ]
}

/// Returns the cases of S4: buffered reads and writes of one file in parallel. The file stays in
/// memory.
fn s4(scale: Scale) -> Vec<Case> {
    let policies =
        [Policy::Exclusive, Policy::SharedOverwrite, Policy::Range].map(|policy| PLAIN.policy(policy));
    let peers = [&policies[..], &[EXT4, XFS, MOUNTED, FUSE2FS, NULL]].concat();
    let mixed = cached(job(scale, Layout::Written, 4096, 16, 1), Rw::RandMixed);
    let read = cached(job(scale, Layout::Written, 4096, 2, 1), Rw::RandRead);
    vec![
        row("S4", "randrw-4k-16", mixed, &peers),
        row("S4", "randread-4k-2", read, &[COPY, PLAIN, EXT4, XFS]),
    ]
}

/// Returns the cases of S5: changes of ranges in parallel to I/O elsewhere in the file, and the
/// cost of range locks.
fn s5(scale: Scale) -> Vec<Case> {
    let runs = [PLAIN, LOOP, EXT4, XFS].map(|run| [run, run.punched()]).concat();
    let punched = row("S5", "overwrite-4k-8-beside-punch", job(scale, Layout::Written, 4096, 8, 1), &runs);
    [vec![punched], passes::cases(scale)].concat()
}

/// Returns the cases of buffered I/O: threads in one file, a file for each thread, and one thread
/// that streams.
fn buffered(scale: Scale) -> Vec<Case> {
    let runs = [PLAIN, EXT4, XFS].map(|run| [run, run.per_job()]).concat();
    let random = |rw| cached(job(scale, Layout::Written, 4096, 8, 1), rw);
    let append = cached(job(scale, Layout::Append, 4096, 8, 1), Rw::Append);
    let stream = |layout, rw| cached(job(scale, layout, 1 << 20, 1, 1), rw);
    let durable = Job { end_fsync: true, ..stream(Layout::Append, Rw::Write) };
    let cold = stream(Layout::Written, Rw::Read);
    let streamed = [PLAIN, LOOP, EXT4, XFS, MOUNTED, FUSE2FS, NULL];
    let case = |case, job, runs: &[Participant]| row("buffered", case, job, runs);
    vec![
        case("buffered-read-4k", random(Rw::RandRead), &runs),
        case("buffered-overwrite-4k", random(Rw::RandWrite), &runs),
        case("buffered-randrw-4k", random(Rw::RandMixed), &runs),
        case("buffered-append-4k", append, &runs),
        case("stream-write-1m", durable, &streamed),
        case("stream-read-1m-cold", cold.clone(), &streamed),
        case("stream-read-1m-warm", Job { pre_read: true, ..cold }, &streamed),
    ]
}

fn row(source: &'static str, case: &str, job: Job, runs: &[Participant]) -> Case {
    Case {
        source,
        case: case.into(),
        work: Workload::Blocks(job),
        before: None,
        cache: None,
        runs: runs.to_vec(),
    }
}

/// Returns a job of random writes.
fn job(scale: Scale, layout: Layout, bytes: u64, numjobs: u32, iodepth: u32) -> Job {
    Job {
        rw: Rw::RandWrite,
        layout,
        files: Files::One,
        size: scale.size,
        block: fixed(bytes),
        align: bytes,
        shift: 0,
        read_percent: 0,
        numjobs,
        iodepth,
        ioengine: IoEngine::Auto,
        direct: true,
        pre_read: false,
        loops: None,
        in_step: false,
        runtime: scale.runtime,
        ramp: Duration::ZERO,
        end_fsync: false,
        punch: false,
    }
}

/// Returns the job with buffered I/O.
fn cached(job: Job, rw: Rw) -> Job {
    Job { rw, direct: false, read_percent: 50, ..job }
}

/// Returns a single size for all operations.
fn fixed(bytes: u64) -> BlockSize {
    BlockSize { min: bytes, max: bytes }
}

fn with_block(job: Job, block: BlockSize) -> Job {
    Job { block, align: block.max, ..job }
}

/// Returns the job with one write in each block of 4 KiB, `shift` bytes from its start.
fn half_blocks(job: Job, shift: u64) -> Job {
    Job { align: 4096, shift, ..job }
}

impl Case {
    /// Returns true if `only` is empty, or names the source or a part of the name of the case.
    pub fn is_wanted(&self, only: &[String]) -> bool {
        only.is_empty()
            || only.iter().any(|name| self.source.eq_ignore_ascii_case(name) || self.case.contains(name))
    }

    /// Returns true if the programs of the workload are installed. Prints the missing one if not.
    pub fn has_programs(&self) -> bool {
        let missing = self.work.programs().iter().find(|program| !command::exists(program));
        if let Some(program) = missing {
            eprintln!("parext4: without the case {}: {program} is not installed", self.case);
        }
        missing.is_none()
    }

    /// Returns the label of a participant: the settings in which the participants of the case
    /// differ.
    pub fn label(&self, which: usize) -> String {
        let run = &self.runs[which];
        let lib: Vec<Engine> =
            self.runs.iter().filter(|run| matches!(run.on, Subject::Lib(_))).map(|run| run.engine).collect();
        let differ = |one: fn(&Engine) -> String| {
            let is_lib = matches!(run.on, Subject::Lib(_));
            (is_lib && lib.iter().any(|engine| one(engine) != one(&lib[0]))).then(|| one(&run.engine))
        };
        let mut words = vec![run.on.name().to_owned()];
        words.extend(differ(|engine| engine.policy.to_string()));
        words.extend(differ(|engine| format!("split at {}", engine.split_at)));
        words.extend(differ(|engine| match engine.serialize_from {
            None => "serialize none".into(),
            Some(0) => "serialize all".into(),
            Some(blocks) => format!("serialize from {blocks}"),
        }));
        if self.runs.iter().any(|other| other.files != run.files) {
            words.push(match run.files {
                Files::One => "one file".into(),
                Files::PerJob => "a file per job".into(),
            });
        }
        words.extend(run.punch.then(|| "with holes punched".to_owned()));
        words.extend(run.layout.map(|layout| layout.name().to_owned()));
        words.join(", ")
    }
}

impl Subject {
    fn name(self) -> &'static str {
        match self {
            Self::Lib(Storage::Memory | Storage::Simulated | Storage::Plain) => "parext4",
            Self::Lib(Storage::Loop) => "parext4 on loop",
            Self::Raw(Storage::Loop) => "raw loop",
            Self::Raw(_) => "raw",
            Self::Copy => "memory copies",
            Self::FileSystem(peer) => peer.name(),
        }
    }

    /// Returns the name in JSON.
    pub fn target(self) -> &'static str {
        match self {
            Self::Lib(Storage::Simulated) => "sim",
            Self::Lib(_) => "lib",
            Self::Raw(_) => "raw",
            Self::Copy => "copy",
            Self::FileSystem(peer) => peer.name(),
        }
    }
}
