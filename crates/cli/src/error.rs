//! Errors as one line for the user.

use std::fmt;

use parext4::Error;

/// An error that another process has printed.
#[derive(Debug)]
pub struct Reported;

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the process in the background has failed")
    }
}

impl std::error::Error for Reported {}

/// Returns the error with its causes as one line, and what to do about it if that is known.
pub fn describe(error: &anyhow::Error) -> String {
    let causes: Vec<String> = error.chain().map(|cause| plain(&cause.to_string())).collect();
    let mut line = printable(&causes.join(": "));
    if error.chain().filter_map(|cause| cause.downcast_ref()).any(needs_check) {
        line.push_str("; run e2fsck on the image");
    }
    line
}

/// Makes a message one line without control characters, which names from an image or an archive may contain.
pub fn printable(message: &str) -> String {
    message.replace('\n', " ").replace(char::is_control, "?")
}

/// Returns true if the volume is damaged.
fn needs_check(error: &Error) -> bool {
    match error {
        Error::Corrupt { .. } => true,
        // A volume that another machine has taken over is not damaged.
        Error::Stopped(why) => !TAKEN_OVER.iter().any(|words| why.contains(words)),
        _ => false,
    }
}

/// Words of the reasons why a volume stops whose machine no longer owns it.
const TAKEN_OVER: [&str; 3] =
    ["another client took over", "lost the exclusive lock", "taken the volume over"];

/// Rewrites what the standard library says of an error of the system, `No such file or directory (os error 2)`, in lower
/// case and without the number.
fn plain(text: &str) -> String {
    let Some((text, _)) = text.rsplit_once(" (os error ") else { return text.to_owned() };
    let start = text.rfind(": ").map_or(0, |colon| colon + 2);
    let (before, message) = text.split_at(start);
    let mut letters = message.chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    before.chars().chain(first).chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use anyhow::{Context, anyhow};

    #[test]
    fn errors_of_the_system_are_lower_case() {
        let error = anyhow::Error::new(io::Error::from_raw_os_error(2)).context("a.img");
        assert_eq!(describe(&error), "a.img: no such file or directory");
        let named = format!("a.img: {}", io::Error::from_raw_os_error(13));
        assert_eq!(describe(&anyhow!(named)), "a.img: permission denied");
        assert_eq!(describe(&anyhow!("a: B\nc\x1b[m")), "a: B c?[m");
    }

    #[test]
    fn damage_comes_with_advice() {
        let stopped = Err::<(), _>(Error::Stopped("a reason".into())).context("a.img:/f");
        assert!(describe(&stopped.unwrap_err()).ends_with("a reason; run e2fsck on the image"));
        let taken = Error::Stopped("fenced: another client took over the image".into());
        assert!(describe(&taken.into()).ends_with("another client took over the image"));
    }
}
