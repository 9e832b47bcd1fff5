//! Durations as users write them: `90us`, `100ms`, `1.5s`.

use std::time::Duration;

/// Parses `90us`, `100ms`, `1.5s` or a number of seconds.
///
/// # Errors
/// A message for the user if `text` is not a duration.
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: f64 = digits.parse().map_err(|_| "expected a time like 90us, 100ms or 5s".to_owned())?;
    let unit = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        other => return Err(format!("unknown unit {other:?}: use us, ms or s")),
    };
    Duration::try_from_secs_f64(number * unit).map_err(|_| "expected a time of 0 or more".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        assert_eq!(parse("90us"), Ok(Duration::from_micros(90)));
        assert_eq!(parse("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse("5"), Ok(Duration::from_secs(5)));
        for text in ["", "s", "-1s", "5m", "nan"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
