//! JSON on standard output; docs/json.md documents the fields of each command.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use anyhow::Result;
use serde_json::Value;

use crate::output;

/// Prints one value.
pub fn print(value: &Value) -> Result<()> {
    output::print(|out| Ok(writeln!(out, "{value:#}")?))
}

/// Adds names to an object without loss: each `key` is the name as text, with U+FFFD for bytes that
/// are not UTF-8. If there are such bytes, `key_hex` is all bytes of the name in hexadecimal
/// digits.
pub fn with_names<'a>(mut object: Value, names: impl IntoIterator<Item = (&'a str, &'a OsStr)>) -> Value {
    for (key, name) in names {
        let bytes = name.as_bytes();
        object[key] = String::from_utf8_lossy(bytes).into();
        if str::from_utf8(bytes).is_err() {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            object[format!("{key}_hex")] = digits.into();
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_lose_no_bytes() {
        let names = [("name", OsStr::new("\u{e4}")), ("target", OsStr::from_bytes(b"a\xff/\n"))];
        let expected =
            json!({"size": 1, "name": "\u{e4}", "target": "a\u{fffd}/\n", "target_hex": "61ff2f0a"});
        assert_eq!(with_names(json!({"size": 1}), names), expected);
    }
}
