//! [`ImageUrl`]: the name of an image, read from what a user typed.
//!
//! `rbd:POOL[/NAMESPACE]/IMAGE[@SNAPSHOT][?conf=PATH&id=USER&keyring=PATH&reconnect=SECONDS]`. Any
//! byte may be written as `%` and two hexadecimal digits.

use std::fmt;
use std::io;

/// Form of a URL, for messages.
const FORM: &str = "rbd:POOL[/NAMESPACE]/IMAGE[@SNAPSHOT][?conf=PATH&id=USER&keyring=PATH&reconnect=SECONDS]";
/// Longest time of the option `reconnect`, seconds: a day.
const LONGEST: u64 = 86_400;

/// Name of an image and of the client that opens it.
///
/// ```
/// use parext4_rbd::ImageUrl;
/// let url = ImageUrl::parse("rbd:pool/tenant/disk@monday?id=backup")?;
/// assert_eq!((url.pool(), url.image(), url.snapshot()), ("pool", "disk", Some("monday")));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageUrl {
    typed: String,
    pub(crate) pool: String,
    pub(crate) namespace: Option<String>,
    pub(crate) image: String,
    pub(crate) snapshot: Option<String>,
    /// Path of the configuration file. By default librados searches for it.
    pub(crate) conf: Option<String>,
    /// Name of the user without `client.`. The default is that of the environment, or `admin`.
    pub(crate) id: Option<String>,
    /// Path of the user's keyring. The default is that of the configuration.
    pub(crate) keyring: Option<String>,
    /// Time in seconds after which a request without an answer fails. The default is that of the
    /// configuration, or [`RECONNECT`](crate::reconnect_timeout::RECONNECT).
    pub(crate) reconnect: Option<u64>,
}

impl ImageUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the text has another form, with a message that repeats
    /// the text.
    pub fn parse(typed: &str) -> io::Result<Self> {
        read(typed).map_err(|why| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("{typed}: {why}; expected {FORM}"))
        })
    }

    /// Returns the name of the pool.
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// Returns the name of the image.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// Returns the name of the snapshot.
    pub fn snapshot(&self) -> Option<&str> {
        self.snapshot.as_deref()
    }

    /// Returns the name of the image as the command `rbd` reads it.
    pub(crate) fn spec(&self) -> String {
        let namespace = self.namespace.as_ref().map_or(String::new(), |namespace| format!("{namespace}/"));
        format!("{}/{namespace}{}", self.pool, self.image)
    }

    /// Returns the error `kind` with a message that begins with the URL.
    pub(crate) fn error(&self, kind: io::ErrorKind, message: impl fmt::Display) -> io::Error {
        io::Error::new(kind, format!("{self}: {message}"))
    }
}

impl fmt::Display for ImageUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.typed)
    }
}

fn read(typed: &str) -> Result<ImageUrl, String> {
    let rest = typed.strip_prefix("rbd:").ok_or("not an RBD image")?;
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let parts: Vec<&str> = path.split('/').collect();
    let (pool, namespace, image) = match parts[..] {
        [pool, image] => (pool, None, image),
        [pool, namespace, image] => (pool, Some(namespace), image),
        _ => return Err("needs a pool and an image".to_owned()),
    };
    let (image, snapshot) = match image.split_once('@') {
        Some((image, snapshot)) => (image, Some(snapshot)),
        None => (image, None),
    };
    let mut url = ImageUrl {
        typed: typed.to_owned(),
        pool: decode("pool", pool)?,
        namespace: namespace.map(|name| decode("namespace", name)).transpose()?,
        image: decode("image", image)?,
        snapshot: snapshot.map(|name| decode("snapshot", name)).transpose()?,
        conf: None,
        id: None,
        keyring: None,
        reconnect: None,
    };
    for option in query.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').ok_or_else(|| format!("{option:?} has no value"))?;
        let value = decode(name, value)?;
        match name {
            "conf" => url.conf = Some(value),
            "id" => url.id = Some(value),
            "keyring" => url.keyring = Some(value),
            "reconnect" => {
                let seconds = value.parse().ok().filter(|seconds| (1..=LONGEST).contains(seconds));
                let wrong = || format!("reconnect={value} is not a number of seconds from 1 to {LONGEST}");
                url.reconnect = Some(seconds.ok_or_else(wrong)?);
            }
            _ => return Err(format!("unknown option {name:?}")),
        }
    }
    Ok(url)
}

/// Replaces `%` and two hexadecimal digits by the byte that they stand for.
fn decode(what: &str, text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
        match (digit(), digit()) {
            // Two hexadecimal digits make at most 255.
            (Some(high), Some(low)) => bytes.push((high << 4 | low) as u8),
            _ => return Err(format!("the {what} has a % without two hexadecimal digits")),
        }
    }
    match String::from_utf8(bytes) {
        Ok(text) if text.is_empty() => Err(format!("the {what} is empty")),
        Ok(text) if !text.contains('\0') => Ok(text),
        _ => Err(format!("the {what} is not UTF-8 text without zero bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_read() {
        let url = ImageUrl::parse("rbd:p/n/i@s?conf=/etc/a.conf&id=me&keyring=k").unwrap();
        assert_eq!((url.pool(), url.namespace.as_deref(), url.image()), ("p", Some("n"), "i"));
        assert_eq!(
            (url.snapshot(), url.conf.as_deref(), url.id.as_deref()),
            (Some("s"), Some("/etc/a.conf"), Some("me"))
        );
        assert_eq!((url.keyring.as_deref(), url.reconnect, url.spec()), (Some("k"), None, "p/n/i".into()));
        assert_eq!(ImageUrl::parse("rbd:p/i?reconnect=20").unwrap().reconnect, Some(20));
        let url = ImageUrl::parse("rbd:a%2Fb/%40c%3f?id=%26").unwrap();
        assert_eq!((url.pool(), url.image(), url.id.as_deref()), ("a/b", "@c?", Some("&")));
        assert_eq!((url.namespace, url.snapshot, url.conf), (None, None, None));
    }

    #[test]
    fn other_texts_are_refused_with_the_form() {
        for (typed, why) in [
            ("rbd:", "needs a pool and an image"),
            ("rbd:pool", "needs a pool and an image"),
            ("rbd://pool/image", "needs a pool and an image"),
            ("rbd:a/b/c/d", "needs a pool and an image"),
            ("rbd:/image", "the pool is empty"),
            ("rbd:pool//image", "the namespace is empty"),
            ("rbd:pool/image@", "the snapshot is empty"),
            ("rbd:pool/image?id", "\"id\" has no value"),
            ("rbd:pool/image?user=x", "unknown option \"user\""),
            ("rbd:pool/image?reconnect=0", "reconnect=0 is not a number of seconds from 1 to 86400"),
            ("rbd:pool/image?reconnect=soon", "reconnect=soon is not a number of seconds from 1 to 86400"),
            ("rbd:pool/im%4", "the image has a % without two hexadecimal digits"),
            ("rbd:pool/im%+1", "the image has a % without two hexadecimal digits"),
            ("rbd:pool/%00", "the image is not UTF-8 text without zero bytes"),
            ("rbd:pool/%ff", "the image is not UTF-8 text without zero bytes"),
        ] {
            let error = ImageUrl::parse(typed).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert_eq!(error.to_string(), format!("{typed}: {why}; expected {FORM}"));
        }
    }
}
