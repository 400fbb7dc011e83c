//! Starts a connection from this end, over any lane.

use crate::driver::Driver;
use crate::lane::Lane;
use crate::options::Options;
use crate::seal::security;
use std::io;
use zerolane_core::{Config, Connection, Entropy};
use zerolane_handshake::Exchange;

/// Opens a connection over the lane that `wrap` makes of `lane`. If the connection is protected, `begin` first gives
/// the lane this end's part of the key exchange.
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

/// This end's part of the key exchange; `None` in plain mode.
///
/// # Errors
/// As [`initiate`].
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
