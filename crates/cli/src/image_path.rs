//! Paths inside an image, as the command line writes them: `IMAGE:/path`.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use parext4_storage::{Location, scheme};

/// A path inside an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePath {
    /// The image file, block device or URL.
    pub image: PathBuf,
    /// The absolute path inside.
    pub path: PathBuf,
}

impl ImagePath {
    /// Returns a parser for commands that accept the root: `IMAGE` alone means `IMAGE:/`.
    pub fn or_root() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(|text| match Self::split(&text) {
            Some(path) => Ok(path),
            None => Self::root(text),
        })
    }

    /// Returns a parser for commands that need the path of an entry.
    pub fn parser() -> impl TypedValueParser<Value = Self> {
        OsStringValueParser::new().try_map(|text| {
            Self::split(&text).ok_or_else(|| format!("expected IMAGE:/PATH, such as {}", suggestion(&text)))
        })
    }

    /// Returns the image and the path as fields of JSON.
    pub fn names(&self) -> [(&'static str, &OsStr); 2] {
        [("image", self.image.as_os_str()), ("path", self.path.as_os_str())]
    }

    /// Splits at the first `:/` after the `scheme://` of a URL.
    pub fn split(text: &OsStr) -> Option<Self> {
        let bytes = text.as_bytes();
        let url = scheme(text).map(|scheme| scheme.len()).filter(|&colon| bytes[colon..].starts_with(b"://"));
        let start = url.map_or(0, |colon| colon + "://".len());
        let colon = bytes[start..].windows(2).position(|pair| pair == b":/").map(|colon| start + colon);
        let colon = colon.filter(|&colon| colon > 0)?;
        let (image, path) = (&bytes[..colon], &bytes[colon + 1..]);
        Some(Self { image: OsStr::from_bytes(image).into(), path: OsStr::from_bytes(path).into() })
    }

    /// Returns the root of `image`. Fails for what looks like a path without its slash,
    /// `IMAGE:path`.
    fn root(image: OsString) -> Result<Self, String> {
        if image.is_empty() {
            return Err("expected IMAGE or IMAGE:/PATH".to_owned());
        }
        let (before_colon, _) = split_at_colon(&image);
        let is_path = !is_url(&image)
            && !Path::new(&image).exists()
            && before_colon.is_some_and(|image| Path::new(image).exists());
        if is_path {
            return Err(format!("expected IMAGE:/PATH, such as {}", suggestion(&image)));
        }
        Ok(Self { image: image.into(), path: "/".into() })
    }
}

impl fmt::Display for ImagePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        PathInImage { image: &self.image, path: &self.path }.fmt(f)
    }
}

/// An absolute path inside an image, for messages.
#[derive(Clone, Copy, Debug)]
pub struct PathInImage<'a> {
    pub image: &'a Path,
    pub path: &'a Path,
}

impl fmt::Display for PathInImage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.image.display(), self.path.display())
    }
}

/// Returns true if `text` is a URL of a known scheme.
pub fn is_url(text: &OsStr) -> bool {
    scheme(text).is_some() && Location::parse(text).is_ok()
}

/// Returns what precedes the last colon, if there is one, and the rest.
fn split_at_colon(text: &OsStr) -> (Option<&OsStr>, &OsStr) {
    let bytes = text.as_bytes();
    match bytes.iter().rposition(|&byte| byte == b':').filter(|&colon| colon > 0) {
        Some(colon) => (Some(OsStr::from_bytes(&bytes[..colon])), OsStr::from_bytes(&bytes[colon + 1..])),
        None => (None, text),
    }
}

/// Returns the argument that the user probably meant by `text`, which has no `:/`.
fn suggestion(text: &OsStr) -> String {
    if is_url(text) {
        return format!("{}:/PATH", text.display());
    }
    match split_at_colon(text) {
        (Some(image), path) => format!("{}:/{}", image.display(), path.display()),
        (None, image) if image.is_empty() => "disk.img:/dir/file".to_owned(),
        (None, image) => format!("{}:/PATH", image.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Option<(String, String)> {
        let parsed = ImagePath::split(text.as_ref())?;
        Some((parsed.image.to_str()?.to_owned(), parsed.path.to_str()?.to_owned()))
    }

    #[test]
    fn paths_split_at_the_first_colon_slash() {
        let pair = |image: &str, path: &str| Some((image.to_owned(), path.to_owned()));
        assert_eq!(split("a.img:/"), pair("a.img", "/"));
        assert_eq!(split("/x/a.img:/dir/file"), pair("/x/a.img", "/dir/file"));
        assert_eq!(split("a:b.img:/c:/d"), pair("a:b.img", "/c:/d"));
        assert_eq!(split("nbd://host/disk:/c"), pair("nbd://host/disk", "/c"));
        assert_eq!(split("rbd:pool/disk:/c"), pair("rbd:pool/disk", "/c"));
        for text in ["nbd://host/disk", "", "a.img", "a.img:file", ":/file", "/a/b"] {
            assert_eq!(split(text), None, "{text}");
        }
    }

    #[test]
    fn an_image_alone_means_its_root() {
        let root = |text: &str| ImagePath::root(text.into());
        assert_eq!(root("a:b.img").unwrap(), ImagePath { image: "a:b.img".into(), path: "/".into() });
        assert!(root("").is_err());
        let image = tempfile::NamedTempFile::new().unwrap();
        let name = image.path().to_str().unwrap();
        assert_eq!(root(name).unwrap().to_string(), format!("{name}:/"));
        assert!(root(&format!("{name}:etc")).unwrap_err().ends_with(&format!("such as {name}:/etc")));
    }

    #[test]
    fn suggestions_have_the_missing_slash() {
        for (text, meant) in
            [("a.img", "a.img:/PATH"), ("a.img:x/y", "a.img:/x/y"), ("", "disk.img:/dir/file")]
        {
            assert_eq!(suggestion(text.as_ref()), meant);
        }
    }
}
