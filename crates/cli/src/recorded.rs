//! Describes the errors that a superblock has on record.

use jiff::{Timestamp, tz::TimeZone};
use parext4::RecordedErrors;

/// Describes the record: how many errors, when and where the last one was found, and what to do.
pub fn describe(errors: &RecordedErrors) -> String {
    let count = match errors.count {
        0 => "errors".to_owned(),
        1 => "1 error".to_owned(),
        count => format!("{count} errors"),
    };
    let last = &errors.last;
    let place = match errors.count {
        0 => String::new(),
        _ => format!(", the last on {} in {last}", date(last.seconds)),
    };
    format!("{count} on record{place}; run e2fsck")
}

fn date(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(
        |_| format!("second {seconds}"),
        |time| time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use parext4::RecordedError;

    #[test]
    fn the_last_error_is_named() {
        let error = |seconds| RecordedError {
            seconds,
            function: "ext4_find_extent".to_owned(),
            line: 944,
            inode: 12,
            block: 8962,
        };
        let record = |count| RecordedErrors { count, first: error(0), last: error(1 << 33) };
        let text = describe(&record(2));
        assert!(text.starts_with("2 errors on record, the last on 2242-03-1"), "{text}");
        assert!(text.ends_with(" in ext4_find_extent:944, inode 12, block 8962; run e2fsck"), "{text}");
        assert_eq!(describe(&record(0)), "errors on record; run e2fsck");
    }
}
