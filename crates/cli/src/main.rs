//! The program `parext4`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    parext4_cli::main()
}
