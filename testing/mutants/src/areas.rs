//! The areas: the sources that are changed, and the test programs that must notice.

/// Sources of one package that are changed, and their tests.
pub struct Area {
    /// The name, for `--only`.
    pub name: &'static str,
    /// The folder of the package, in `crates`; also the end of the package's name.
    pub package: &'static str,
    /// The folder of the sources, below `src`.
    pub folder: &'static str,
    /// The sources, without `.rs`.
    pub files: &'static [&'static str],
    /// Constant functions that no constant uses, changed like other functions.
    pub plain: &'static [&'static str],
    /// The test programs.
    pub programs: &'static [Program],
}

/// A test program.
pub struct Program {
    /// How it is built.
    pub build: Build,
    /// The name of the integration test; empty for the unit tests.
    pub name: &'static str,
    /// Starts of the names of the tests that are run; empty for all tests.
    pub only: &'static [&'static str],
}

/// A way to build tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Build {
    /// Optimised, with debug checks.
    Plain,
    /// With the primitives of the model checker.
    Shuttle,
}

const fn unit(only: &'static [&'static str]) -> Program {
    Program { build: Build::Plain, name: "", only }
}

const fn tests(name: &'static str, only: &'static [&'static str]) -> Program {
    Program { build: Build::Plain, name, only }
}

const fn models(only: &'static [&'static str]) -> Program {
    Program { build: Build::Shuttle, name: "shuttle", only }
}

/// All areas. The numbers of mutants follow this order.
pub const AREAS: &[Area] = &[
    Area {
        name: "range-lock",
        package: "rangelock",
        folder: "",
        files: &[
            "acquire", "class", "grid", "guard", "lock", "queue", "range", "request", "slot", "slot_set",
            "slots", "table", "wake", "word",
        ],
        plain: &["len", "overlaps", "contains", "round_out"],
        programs: &[
            unit(&[]),
            tests("api", &[]),
            models(&["guarantees", "states", "wide"]),
            tests("stress", &[]),
        ],
    },
    Area {
        name: "page-words",
        package: "parext4",
        folder: "page_cache",
        files: &["state", "page", "wait_queues", "file_pages", "evict", "nodes", "dirty_regions"],
        plain: &[],
        programs: &[
            unit(&["page_cache", "memory", "dirty_files"]),
            models(&["pages", "buffered"]),
            tests("buffered", &[]),
        ],
    },
    Area {
        name: "extent-view",
        package: "parext4",
        folder: "extent_map",
        files: &["view", "region", "leaf_index", "chunk_table"],
        plain: &[],
        programs: &[
            unit(&["extent_map", "block_map"]),
            models(&["conversions", "writes", "space", "layout"]),
            tests("space", &[]),
        ],
    },
    Area {
        name: "journal-gate",
        package: "parext4",
        folder: "journal",
        files: &["gate"],
        plain: &[],
        programs: &[unit(&["journal"]), models(&["gates", "commits"])],
    },
    Area {
        name: "admission",
        package: "parext4",
        folder: "admission",
        files: &["plan", "transfer", "held", "facts", "widening", "arguments", "waits"],
        plain: &[],
        programs: &[
            unit(&["admission"]),
            models(&[
                "writes", "appends", "full", "sizes", "policies", "queues", "layout", "clusters", "inline",
            ]),
            tests("queue", &[]),
            tests("buffered", &[]),
            tests("stress", &[]),
            tests("volumes", &["policies"]),
        ],
    },
];

impl Area {
    /// Returns the paths of the sources, from the root of the workspace.
    pub fn sources(&self) -> impl Iterator<Item = String> {
        let folder = if self.folder.is_empty() { String::new() } else { format!("{}/", self.folder) };
        self.files.iter().map(move |file| format!("crates/{}/src/{folder}{file}.rs", self.package))
    }
}
