//! The rows of the comparison: the job of parext4, and the job that it is compared with.

/// What a rate counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Operations in a second.
    Iops,
    /// Bytes in a second, for jobs whose operations have different sizes in the two programs.
    Bandwidth,
}

impl Unit {
    pub fn field_of_parext4(self) -> &'static str {
        match self {
            Self::Iops => "iops",
            Self::Bandwidth => "mib_s",
        }
    }

    pub fn field_of_fio(self) -> &'static str {
        match self {
            Self::Iops => "iops",
            Self::Bandwidth => "bw_bytes",
        }
    }

    /// The number of fio's units in one of parext4's.
    pub fn scale_of_fio(self) -> f64 {
        match self {
            Self::Iops => 1.0,
            Self::Bandwidth => f64::from(1 << 20),
        }
    }
}

/// What parext4 is compared with.
#[derive(Clone, Copy)]
pub enum Other {
    /// fio on the image without a file system.
    Fio(&'static str),
    /// Another job of parext4.
    Parext4(&'static str),
}

/// One comparison.
pub struct Row {
    pub name: &'static str,
    /// The words of `parext4-bench`.
    pub ours: &'static str,
    pub other: Other,
    pub unit: Unit,
    /// The smallest ratio that is good.
    pub goal: f64,
}

const fn raw(name: &'static str, ours: &'static str, fio: &'static str) -> Row {
    Row { name, ours, other: Other::Fio(fio), unit: Unit::Iops, goal: 0.95 }
}

const fn per_job(name: &'static str, one: &'static str, each: &'static str) -> Row {
    Row { name, ours: one, other: Other::Parext4(each), unit: Unit::Iops, goal: 0.95 }
}

const fn stream(name: &'static str, ours: &'static str, fio: &'static str) -> Row {
    Row { name, ours, other: Other::Fio(fio), unit: Unit::Bandwidth, goal: 0.9 }
}

pub const ROWS: &[Row] = &[
    raw(
        "overwrite 4k, 1 x 1, against fio",
        "--rw=randwrite --bs=4k --numjobs=1 --iodepth=1",
        "--rw=randwrite --bs=4k --numjobs=1 --iodepth=1",
    ),
    raw(
        "overwrite 4k, 10 x 10, against fio",
        "--rw=randwrite --bs=4k --numjobs=10 --iodepth=10",
        "--rw=randwrite --bs=4k --numjobs=10 --iodepth=10",
    ),
    raw(
        "overwrite 128k, 1 x 1, against fio",
        "--rw=randwrite --bs=128k --numjobs=1 --iodepth=1",
        "--rw=randwrite --bs=128k --numjobs=1 --iodepth=1",
    ),
    raw(
        "overwrite 128k, 10 x 10, against fio",
        "--rw=randwrite --bs=128k --numjobs=10 --iodepth=10",
        "--rw=randwrite --bs=128k --numjobs=10 --iodepth=10",
    ),
    raw(
        "read 4k, 10 x 10, against fio",
        "--rw=randread --bs=4k --numjobs=10 --iodepth=10",
        "--rw=randread --bs=4k --numjobs=10 --iodepth=10",
    ),
    per_job(
        "overwrite 4k, one file against one each",
        "--rw=randwrite --bs=4k --files=1",
        "--rw=randwrite --bs=4k --files=per-job",
    ),
    per_job(
        "unwritten 4k, one file against one each",
        "--rw=randwrite --bs=4k --layout=unwritten --files=1",
        "--rw=randwrite --bs=4k --layout=unwritten --files=per-job",
    ),
    per_job(
        "append 4k, one file against one each",
        "--rw=append --bs=4k --files=1",
        "--rw=append --bs=4k --files=per-job",
    ),
    stream(
        "buffered write, one stream, against fio",
        "--rw=write --direct=0 --bs=1m --numjobs=1 --iodepth=1 --layout=hole --size=1g --end-fsync",
        "--rw=write --bs=1m --numjobs=1 --iodepth=16 --end_fsync=1",
    ),
    stream(
        "buffered cold read, one stream, against fio",
        "--rw=read --direct=0 --bs=1m --numjobs=1 --iodepth=1 --size=1g",
        "--rw=read --bs=1m --numjobs=1 --iodepth=16",
    ),
    stream(
        "buffered cold read, cache an eighth of the file",
        "--rw=read --direct=0 --bs=1m --numjobs=1 --iodepth=1 --size=1g --cache-size=128m",
        "--rw=read --bs=1m --numjobs=1 --iodepth=16",
    ),
];
