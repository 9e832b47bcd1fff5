//! PAX records of one member of an archive.

use parext4::Timestamp;

/// Records, each of which is its length in decimal digits, a space, `KEY=VALUE`, and a line end.
#[derive(Debug, Default)]
pub struct Records(Vec<u8>);

impl Records {
    /// Adds a record. The key must not contain `=`.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        // The length counts its own digits.
        let rest = key.len() + value.len() + b" =\n".len();
        let mut len = rest;
        while len != rest + len.to_string().len() {
            len = rest + len.to_string().len();
        }
        let len = len.to_string();
        self.0.extend_from_slice(&[len.as_bytes(), b" ", key, b"=", value, b"\n"].concat());
    }

    /// Adds a time in seconds with a fraction.
    pub fn push_time(&mut self, key: &[u8], time: Timestamp) {
        self.push(key, decimal(time).as_bytes());
    }

    /// Returns the data of the member that holds the records.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Returns seconds with a fraction. The fraction of a negative number counts away from zero.
fn decimal(time: Timestamp) -> String {
    match (time.seconds, time.nanoseconds) {
        (seconds, 0) => seconds.to_string(),
        (seconds, nanoseconds) if seconds < 0 => {
            let whole = (seconds + 1).unsigned_abs();
            format!("-{whole}.{:09}", 1_000_000_000 - nanoseconds)
        }
        (seconds, nanoseconds) => format!("{seconds}.{nanoseconds:09}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_count_their_own_digits() {
        for len in (0..=1000).chain(9_980..10_010) {
            let mut records = Records::default();
            records.push(b"key", &vec![b'x'; len]);
            let bytes = records.as_bytes();
            assert!(bytes.starts_with(format!("{} key=", bytes.len()).as_bytes()), "{len}");
        }
    }
}
