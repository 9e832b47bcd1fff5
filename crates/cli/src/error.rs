//! Errors as one line for the user.

use std::fmt;
use std::io::Write;

use parext4::Error;

/// The errors were printed already, by another process or one by one.
#[derive(Debug)]
pub struct Reported;

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failed, for reasons that were printed")
    }
}

impl std::error::Error for Reported {}

/// Prints a line on stderr. Nothing is printed if its reader is gone, or its file system full: that
/// is no reason to stop.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "parext4: {line}");
}

/// Prints a text of whole lines on stderr, with errors as by [`say`].
pub fn explain(text: &str) {
    let _ = write!(std::io::stderr(), "{text}");
}

/// Returns the error with its causes as one line, and what to do about it if that is known.
pub fn describe(error: &anyhow::Error) -> String {
    let mut line = printable(&join(error.chain().map(|cause| plain(&cause.to_string()))));
    if error.chain().filter_map(of_volume).any(needs_check) {
        line.push_str("; run e2fsck on the image");
    }
    line
}

/// Joins the causes of an error, the outermost first. Leaves out a name with which the next cause
/// begins, too.
fn join(causes: impl Iterator<Item = String>) -> String {
    let join = |line: String, outer: String| match line.strip_prefix(&format!("{outer}: ")) {
        Some(_) => line,
        None => format!("{outer}: {line}"),
    };
    causes.collect::<Vec<_>>().into_iter().rev().reduce(join).unwrap_or_default()
}

/// Makes a message one line without control characters, which names from an image or an archive may
/// contain.
pub fn printable(message: &str) -> String {
    message.replace('\n', " ").replace(char::is_control, "?")
}

/// Returns the error of the volume that a cause is.
fn of_volume<'a>(cause: &'a (dyn std::error::Error + 'static)) -> Option<&'a Error> {
    match cause.downcast_ref() {
        Some(parext4_copy::Error::Volume(error)) => Some(error),
        _ => cause.downcast_ref(),
    }
}

/// Returns true if the volume is damaged.
fn needs_check(error: &Error) -> bool {
    match error {
        Error::Corrupt { .. } => true,
        Error::Stopped(why) => !UNDAMAGED.iter().any(|words| why.contains(words)),
        _ => false,
    }
}

/// Words of the reasons why a volume stops that is not damaged: its machine no longer owns it, or
/// its device was made smaller.
const UNDAMAGED: [&str; 5] = [
    "another client took over",
    "lost the exclusive lock",
    "taken the volume over",
    "the image was shrunk",
    "the export has changed",
];

/// Rewrites what the standard library says of an error of the system,
/// `No such file or directory (os error 2)`, in lower case and without the number.
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
    fn a_name_is_said_once() {
        let named = anyhow!("rbd:p/i: in use: client.1 holds the lock").context("rbd:p/i");
        assert_eq!(describe(&named), "rbd:p/i: in use: client.1 holds the lock");
        let other = anyhow!("rbd:p/i2: in use").context("rbd:p/i").context("mounting");
        assert_eq!(describe(&other), "mounting: rbd:p/i: rbd:p/i2: in use");
        let inner = anyhow!("a.img: in use").context("a.img").context("a.img");
        assert_eq!(describe(&inner), "a.img: in use");
    }

    #[test]
    fn damage_comes_with_advice() {
        let stopped = || Error::Stopped("a reason".into());
        let of_copy = |error| parext4_copy::Error::In { name: "a.img:/f".into(), error: Box::new(error) };
        for error in [
            Err::<(), _>(stopped()).context("a.img:/f").unwrap_err(),
            parext4_copy::Error::Volume(stopped()).into(),
            of_copy(parext4_copy::Error::Volume(stopped())).into(),
        ] {
            assert!(describe(&error).ends_with("a reason; run e2fsck on the image"));
        }
        for why in [
            "fenced: another client took over the image",
            "writing metadata block 9: the image was shrunk to 4096 bytes while it was open",
            "reading: the export has changed: its size was 8192 and is 4096",
        ] {
            assert!(describe(&Error::Stopped(why.into()).into()).ends_with(why));
        }
    }
}
