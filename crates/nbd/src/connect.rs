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

/// Makes all connections of a session before the deadline.
///
/// # Errors
/// The errors of the negotiation of the first connection, and `InvalidData` if another connection found another export. The session
/// does without further connections that cannot be made.
pub(crate) fn connect(
    url: &NbdUrl,
    (retained, guard): (&Arc<Retained>, &Arc<Guard>),
    until: Instant,
) -> io::Result<(Vec<Arc<Connection>>, Export)> {
    let first = negotiate(url, until)?;
    let export = first.export;
    let connection = |negotiated| {
        let (retained, guard) = (Arc::clone(retained), Arc::clone(guard));
        Arc::new(Connection::new(negotiated, retained, guard, url.timeout))
    };
    let mut connections = vec![connection(first)];
    let wanted = if export.has_coherent_connections() { url.connections } else { 1 };
    while connections.len() < wanted {
        match negotiate(url, until) {
            Ok(next) => {
                export.check_same(&next.export)?;
                connections.push(connection(next));
            }
            Err(error) => {
                tracing::debug!("{url}: only {} connections: {error}", connections.len());
                break;
            }
        }
    }
    Ok((connections, export))
}
