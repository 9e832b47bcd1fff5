//! Making the connections of a session.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::export::Export;
use crate::guard::Guard;
use crate::negotiate::negotiate;
use crate::retained::Retained;
use crate::url::NbdUrl;

/// Time that connecting and negotiating may last.
pub(crate) const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Shortest time limit for a further connection. The limit is twice the time that the first
/// connection took, if that is longer.
const FURTHER_TIME: Duration = Duration::from_secs(1);

/// Makes all connections of a session before the deadline.
///
/// # Errors
/// The errors of the negotiation of the first connection, and `InvalidData` if another connection
/// found another export. If a further connection cannot be made, the session works without it.
pub(crate) fn connect(
    url: &NbdUrl,
    (retained, guard): (&Arc<Retained>, &Arc<Guard>),
    until: Instant,
) -> io::Result<(Vec<Arc<Connection>>, Export)> {
    let start = Instant::now();
    let first = negotiate(url, guard, until)?;
    let further_time = FURTHER_TIME.max(start.elapsed() * 2);
    let export = first.export;
    let connection = |negotiated| Arc::new(Connection::new(negotiated, Arc::clone(retained), url.timeout));
    let mut connections = vec![connection(first)];
    let wanted = if export.has_coherent_connections() { url.connections } else { 1 };
    while connections.len() < wanted {
        match negotiate(url, guard, until.min(Instant::now() + further_time)) {
            Ok(next) => {
                export.check_same(&next.export)?;
                connections.push(connection(next));
            }
            Err(error) => {
                log::debug!("{url}: only {} connections: {error}", connections.len());
                break;
            }
        }
    }
    Ok((connections, export))
}
