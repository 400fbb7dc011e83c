//! The start of a connection by this end, over any lane.

use crate::{Driver, Lane, Options, security};
use std::io;
use zerolane_core::{Config, Connection, Entropy};
use zerolane_handshake::Exchange;

/// Opens a connection over what `wrap` makes of `lane`. Where it is protected, `begin` gives the lane this end's part in the key
/// exchange first.
///
/// # Errors
/// This end has no key, the system gives no random numbers, or the cryptography refuses the key.
pub(crate) fn initiate<L, W: Lane>(
    mut lane: L,
    config: Config,
    options: &Options,
    entropy: Entropy,
    begin: impl FnOnce(&mut L, Exchange),
    wrap: impl FnOnce(L) -> W,
) -> io::Result<Driver<W>> {
    let Some(exchange) = exchange(&config, options, entropy)? else {
        return Ok(Driver::new(wrap(lane), options, |now| {
            Connection::connect(now, config, entropy)
        }));
    };
    begin(&mut lane, exchange);
    Ok(Driver::new(wrap(lane), options, |now| {
        Connection::connect_protected(now, config, entropy)
    }))
}

/// This end's part in the key exchange; `None` in plain mode.
///
/// # Errors
/// As of [`initiate`].
pub(crate) fn exchange(
    config: &Config,
    options: &Options,
    entropy: Entropy,
) -> io::Result<Option<Exchange>> {
    let Some(credentials) = options.security.credentials()? else {
        return Ok(None);
    };
    let ephemeral = security::random()?;
    Exchange::initiate(credentials, ephemeral, config.service_port, entropy)
        .ok_or_else(|| io::Error::other("the cryptography refuses this end's key"))
        .map(Some)
}
