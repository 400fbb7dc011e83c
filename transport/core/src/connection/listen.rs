//! Answers a Request_Connection from an unauthenticated peer: rejects it, or makes a connection.

use super::Connection;
use crate::config::{Config, Entropy};
use crate::limits;
use crate::session::{Life, Protection, Session};
use crate::time::Instant;
use crate::timers::Timer;
use zerolane_wire::{
    Capabilities, ConnectionAnswer, ConnectionVerdict, Operation, Packet, Reason,
    RequestConnection, Route, VERSION, VERSION_MIN,
};

/// Takes the first datagram of an unauthenticated peer, parsed as `packet`.
///
/// # Errors
/// The rejection to send back, or `None` if `packet` deserves no answer. No answer is longer than its request, so this
/// end cannot be used to flood a third party.
#[allow(
    clippy::result_large_err,
    reason = "the rejection is the answer, made once a connection"
)]
pub fn listen(
    now: Instant,
    config: Config,
    entropy: Entropy,
    packet: &Packet,
) -> Result<Connection, Option<Packet>> {
    respond(now, config, entropy, packet, Protection::Plain)
}

/// As [`listen()`], with this protection.
#[allow(
    clippy::result_large_err,
    reason = "the rejection is the answer, made once a connection"
)]
pub(super) fn respond(
    now: Instant,
    config: Config,
    entropy: Entropy,
    packet: &Packet,
    protection: Protection,
) -> Result<Connection, Option<Packet>> {
    let Operation::RequestConnection(request) = packet.operation else {
        return Err(None);
    };
    let reject = |reason| Err(Some(rejection(packet.route, &request, reason)));
    if packet.route.d_port != config.service_port {
        return reject(Reason::NoListener);
    }
    if request.version_min > VERSION || request.version_max < VERSION_MIN {
        return reject(Reason::VersionMismatch);
    }
    let Some(profile) = config.profiles.common(request.capabilities.profiles) else {
        return reject(Reason::NoCommonProfile);
    };
    if !acceptable(&request.capabilities) {
        return reject(Reason::ProtocolViolation);
    }
    let route = Route {
        d_port: packet.route.s_port,
        s_port: entropy.port,
        d_key: request.s_key,
    };
    let give_up = config.connect_timeout;
    let mut session = Session::new(now, Life::Answered, entropy, protection);
    session.respond_to(request.sync, config.asks);
    let mut connection = Connection::new(now, config, entropy, route, session);
    connection.open(request.capabilities, profile);
    let Connection { cx, session, .. } = &mut connection;
    session.answer_connection(cx);
    cx.timers.set(Timer::GiveUp, now + give_up);
    Ok(connection)
}

/// The rejection of `packet` for the caller's own reason (busy, for example). `None` if it is no Request_Connection and
/// deserves no answer.
pub fn reject(packet: &Packet, reason: Reason) -> Option<Packet> {
    match packet.operation {
        Operation::RequestConnection(request) => Some(rejection(packet.route, &request, reason)),
        _ => None,
    }
}

/// Whether a peer with these capabilities can be served at a reasonable cost.
pub(super) fn acceptable(capabilities: &Capabilities) -> bool {
    capabilities.max_stu >= limits::MIN_STU && capabilities.buffer_log2 >= limits::MIN_BUFFER_LOG2
}

fn rejection(route: Route, request: &RequestConnection, reason: Reason) -> Packet {
    Packet {
        route: Route {
            d_port: route.s_port,
            s_port: route.d_port,
            d_key: request.s_key,
        },
        operation: Operation::ConnectionAnswer(ConnectionAnswer {
            verdict: ConnectionVerdict::Reject {
                reason,
                version_min: VERSION_MIN,
                version_max: VERSION,
            },
            sync: request.sync,
        }),
    }
}
