//! The URL of an export: where the server is, what the export is called, and how the client
//! behaves.
//!
//! This module reads text and opens nothing.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use crate::percent;

/// Port of an NBD server, if the URL has none.
const PORT: u16 = 10809;
/// Longest name of an export, bytes: the limit of the protocol.
const LONGEST_NAME: usize = 4096;
/// Largest number of connections that a URL may ask for.
const MAX_CONNECTIONS: usize = 64;

/// The URL of an export, such as `nbd://server/disk` or `nbd+unix:///disk?socket=/run/nbd.sock`.
///
/// Its text form, which messages use, is the text that the user typed.
///
/// | scheme | server |
/// |---|---|
/// | `nbd://HOST[:PORT]/EXPORT` | over TCP; the port is 10809 if left out |
/// | `nbds://HOST[:PORT]/EXPORT` | over TCP with TLS |
/// | `nbd+unix:///EXPORT?socket=PATH` | over a Unix socket |
/// | `nbds+unix:///EXPORT?socket=PATH&tls-hostname=NAME` | over a Unix socket with TLS |
///
/// The export and the values of options may contain `%` and two hexadecimal digits for any byte.
///
/// | option | meaning |
/// |---|---|
/// | `socket=PATH` | path of the Unix socket |
/// | `connections=N` | largest number of connections; 4 if left out. The client opens more than one only if the server declares them coherent |
/// | `reconnect=SECONDS` | time after which the client gives up a lost connection; 60 if left out |
/// | `timeout=SECONDS` | time after which a request without an answer counts as a lost connection; 60 if left out |
/// | `retain=BYTES` | memory for answered writes that the client keeps until a flush; 64 MiB if left out |
/// | `ca=FILE` | certificates (PEM) that may sign the server's; the system's if left out |
/// | `cert=FILE`, `key=FILE` | certificate and key (PEM) of the client |
/// | `tls-hostname=NAME` | name that the server's certificate must have; the host if left out |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUrl {
    typed: String,
    pub(crate) server: Server,
    pub(crate) export: Vec<u8>,
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) connections: usize,
    pub(crate) reconnect: Duration,
    pub(crate) timeout: Duration,
    pub(crate) retain: usize,
}

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// The settings of a URL for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    pub(crate) hostname: String,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

impl NbdUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`]; the message names the URL, the part that is wrong, and the
    /// form that is expected.
    ///
    /// ```
    /// use parext4_nbd::NbdUrl;
    /// let url = NbdUrl::parse("nbd://localhost/disk%201?reconnect=30")?;
    /// assert_eq!(url.to_string(), "nbd://localhost/disk%201?reconnect=30");
    /// assert!(NbdUrl::parse("nbd+unix:///disk").unwrap_err().to_string().contains("socket=PATH"));
    /// # std::io::Result::Ok(())
    /// ```
    pub fn parse(typed: &str) -> io::Result<Self> {
        Self::read(typed)
            .map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, format!("{typed}: {why}")))
    }

    fn read(typed: &str) -> Result<Self, String> {
        let (scheme, rest) = typed.split_once(':').ok_or("no scheme")?;
        let (has_tls, is_unix) = match scheme.to_ascii_lowercase().as_str() {
            "nbd" => (false, false),
            "nbds" => (true, false),
            "nbd+unix" => (false, true),
            "nbds+unix" => (true, true),
            other => return Err(format!("{other:?} is no scheme of NBD")),
        };
        let form = if is_unix { "///EXPORT?socket=PATH" } else { "//HOST[:PORT]/EXPORT" };
        let rest =
            rest.strip_prefix("//").ok_or_else(|| format!("the form of such a URL is {scheme}:{form}"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = place.split_once('/').unwrap_or((place, ""));
        let export = percent::decode(export)?;
        if export.len() > LONGEST_NAME {
            return Err(format!("the name of the export is longer than {LONGEST_NAME} bytes"));
        }
        let mut url = Self {
            typed: typed.to_owned(),
            server: Server::Unix(PathBuf::new()),
            export,
            tls: has_tls.then(TlsFiles::default),
            connections: 4,
            reconnect: Duration::from_mins(1),
            timeout: Duration::from_mins(1),
            retain: 64 << 20,
        };
        let socket = url.options(query)?;
        url.server = server(is_unix, authority, socket)?;
        url.check_tls()?;
        Ok(url)
    }

    /// Parses the options and returns the path of the socket.
    fn options(&mut self, query: &str) -> Result<Option<PathBuf>, String> {
        let mut socket = None;
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (key, value) =
                option.split_once('=').ok_or_else(|| format!("option {option} has no value"))?;
            let value = percent::decode(value)?;
            let path = || Some(PathBuf::from(OsString::from_vec(value.clone())));
            match key {
                "socket" => socket = path(),
                "connections" => self.connections = number(key, &value, 1..=MAX_CONNECTIONS as u64)? as usize,
                "reconnect" => self.reconnect = Duration::from_secs(number(key, &value, 0..=86_400)?),
                "timeout" => self.timeout = Duration::from_secs(number(key, &value, 1..=86_400)?),
                "retain" => self.retain = number(key, &value, 4096..=1 << 40)? as usize,
                "ca" | "cert" | "key" | "tls-hostname" => {
                    let tls = self.tls.as_mut();
                    let tls = tls.ok_or_else(|| format!("option {key} needs TLS (nbds://)"))?;
                    match key {
                        "ca" => tls.ca = path(),
                        "cert" => tls.cert = path(),
                        "key" => tls.key = path(),
                        _ => tls.hostname = text(key, &value)?.to_owned(),
                    }
                }
                _ => return Err(format!("unknown option {key}")),
            }
        }
        Ok(socket)
    }

    fn check_tls(&mut self) -> Result<(), String> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        if tls.cert.is_some() != tls.key.is_some() {
            return Err("a certificate of the client needs both cert=FILE and key=FILE".into());
        }
        match &self.server {
            Server::Tcp { host, .. } if tls.hostname.is_empty() => tls.hostname.clone_from(host),
            Server::Unix(_) if tls.hostname.is_empty() => {
                return Err("TLS over a Unix socket needs tls-hostname=NAME".into());
            }
            _ => {}
        }
        Ok(())
    }
}

impl fmt::Display for NbdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.typed)
    }
}

fn server(is_unix: bool, authority: &str, socket: Option<PathBuf>) -> Result<Server, String> {
    match (is_unix, socket) {
        (true, Some(path)) if authority.is_empty() => Ok(Server::Unix(path)),
        (true, Some(_)) => Err("a URL of a Unix socket names no host: begin the export with ///".into()),
        (true, None) => Err("no socket=PATH".into()),
        (false, Some(_)) => Err("socket=PATH needs the scheme nbd+unix or nbds+unix".into()),
        (false, None) => tcp(authority),
    }
}

/// Parses `HOST`, `HOST:PORT`, or an IPv6 address in brackets with or without a port.
fn tcp(authority: &str) -> Result<Server, String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("no ] after the IPv6 address")?;
            let port =
                if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or("text after ]")?) };
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err("no host".into());
    }
    let port = match port {
        None => PORT,
        Some(port) => port.parse().map_err(|_| format!("port {port:?} is not a number from 0 to 65535"))?,
    };
    Ok(Server::Tcp { host: host.to_owned(), port })
}

fn text<'a>(key: &str, value: &'a [u8]) -> Result<&'a str, String> {
    std::str::from_utf8(value).map_err(|_| format!("option {key} is not UTF-8"))
}

fn number(key: &str, value: &[u8], range: std::ops::RangeInclusive<u64>) -> Result<u64, String> {
    let number = text(key, value)?.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("option {key} is not a number from {} to {}", range.start(), range.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(typed: &str) -> NbdUrl {
        NbdUrl::parse(typed).unwrap()
    }

    #[test]
    fn servers_and_exports_are_read() {
        let tcp = |host: &str, port| Server::Tcp { host: host.into(), port };
        for (typed, server, export) in [
            ("nbd://host", tcp("host", PORT), "".as_bytes()),
            ("NBD://host/", tcp("host", PORT), b""),
            ("nbd://10.0.0.1:99/a/b", tcp("10.0.0.1", 99), b"a/b"),
            ("nbd://[::1]/x%20%ff", tcp("::1", PORT), b"x \xff"),
            ("nbds://[fe80::2]:1/x", tcp("fe80::2", 1), b"x"),
            ("nbd+unix:///x?socket=/run/a%26b", Server::Unix("/run/a&b".into()), b"x"),
            ("nbd+unix://?socket=s", Server::Unix("s".into()), b""),
        ] {
            let url = url(typed);
            assert_eq!((&url.server, &url.export[..]), (&server, export), "{typed}");
            assert_eq!(url.to_string(), typed);
        }
    }

    #[test]
    fn options_are_read() {
        let plain = url("nbd://host/x?connections=9&reconnect=0&timeout=5&retain=8192");
        assert_eq!((plain.connections, plain.retain, plain.tls), (9, 8192, None));
        assert_eq!((plain.reconnect, plain.timeout), (Duration::ZERO, Duration::from_secs(5)));
        let tls = url("nbds://host/x?ca=/a&cert=c&key=k").tls.unwrap();
        assert_eq!((tls.hostname.as_str(), tls.ca, tls.cert), ("host", Some("/a".into()), Some("c".into())));
        assert_eq!(url("nbds+unix:///x?socket=s&tls-hostname=n").tls.unwrap().hostname, "n");
    }

    #[test]
    fn mistakes_are_named() {
        for (typed, message) in [
            ("nbd:host/x", "nbd:host/x: the form of such a URL is nbd://HOST[:PORT]/EXPORT"),
            ("nbd+unix:x", "nbd+unix:///EXPORT?socket=PATH"),
            ("nbd+unix:///x", "no socket=PATH"),
            ("nbd+unix://host/x?socket=s", "names no host"),
            ("nbd:///x", "no host"),
            ("nbd://h/x?socket=s", "socket=PATH needs the scheme nbd+unix"),
            ("nbd://h:70000/x", "port \"70000\""),
            ("nbd://[::1/x", "no ]"),
            ("nbd://h/%zz", "%"),
            ("nbd://h/x?connections=0", "option connections is not a number from 1 to 64"),
            ("nbd://h/x?color=red", "unknown option color"),
            ("nbd://h/x?ca=f", "option ca needs TLS"),
            ("nbds://h/x?cert=f", "both cert=FILE and key=FILE"),
            ("nbds+unix:///x?socket=s", "tls-hostname=NAME"),
            ("tape://h/x", "\"tape\" is no scheme of NBD"),
        ] {
            let error = NbdUrl::parse(typed).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().starts_with(typed) && error.to_string().contains(message), "{error}");
        }
    }
}
