//! Certificates for a server on this machine, made with openssl.

use std::path::Path;

use anyhow::Result;

use crate::command::{Cmd, cmd};

/// Makes an authority and a certificate for `localhost` that it has signed, in files with the names
/// that nbdkit reads.
pub fn make(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir)?;
    new_key(dir, "ca").args("-x509 -days 2 -subj /CN=authority -out ca-cert.pem").run()?;
    new_key(dir, "server").args("-subj /CN=localhost -out server.request").run()?;
    std::fs::write(dir.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n")?;
    openssl(dir, "x509 -req -days 2 -in server.request -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial")
        .args("-extfile names -out server-cert.pem")
        .run()?;
    Ok(())
}

fn new_key(dir: &Path, name: &str) -> Cmd {
    openssl(dir, "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes")
        .arg("-keyout")
        .arg(format!("{name}-key.pem"))
}

fn openssl(dir: &Path, words: &str) -> Cmd {
    cmd("openssl").dir(dir).args(words)
}
