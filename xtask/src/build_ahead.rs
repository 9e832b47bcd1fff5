//! Builds the tests of later steps while the tests of earlier steps run, because tests do not keep all processors busy.

use crate::command::Cmd;

/// Runs the build commands one after another, with a low priority. A failure is left to the step that needs the build.
pub fn run(builds: Vec<Cmd>) {
    // On Linux this is the priority of the calling thread, and the commands inherit it.
    let _ = rustix::process::nice(10);
    for build in builds {
        if build.output().is_err() {
            return;
        }
    }
}
