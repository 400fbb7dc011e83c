//! Accepts callers until a trusted one makes an offer that this host can take.
//!
//! The host refuses an offer that it cannot take, and keeps listening. A host with a one-time code stops, because the code
//! is spent.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use zerolane::Options as Transport;
use zerolane::request::WorkKind;
use zerolane::security::PublicKey;
use zerolane::worker::{ConnectionId, EndpointId, Event, Worker};
use zerolane_cast::{Contact, NodeId};

use super::Progress;
use crate::contact::{address_bytes, interface_of};
use crate::drive::Membership;
use crate::error::Error;
use crate::invitation::{Call, Word, in_words, key_of, listen, parse, say};
use crate::limits::{CALLER_PATIENCE, CALLERS, TELL};
use crate::target::{Destination, Target};

/// The data with which a host becomes a node.
pub(super) struct Invited {
    pub(super) connection: ConnectionId,
    pub(super) target: Target,
    pub(super) membership: Membership,
    /// The source.
    pub(super) source: Contact,
    pub(super) source_key: Option<PublicKey>,
    /// The label of this host's rack.
    pub(super) rack: u32,
    /// The address of this host that the source reached, at any port.
    pub(super) peers_at: SocketAddr,
}

/// A host that waits.
pub(super) struct Waiting<'a> {
    worker: Worker,
    endpoint: EndpointId,
    destination: &'a Destination,
    transport: Transport,
    /// Callers, with the deadline for their offers.
    callers: HashMap<ConnectionId, Instant>,
    /// The source whose offer was accepted.
    taken: Option<Taken>,
    /// It has a one-time code: there is one source, whatever that offers.
    by_code: bool,
    pub(super) refused: Refused,
    /// The only source was refused: where it hears so, until when, and why.
    ending: Option<(ConnectionId, Instant, Error)>,
}

/// Offers that were refused.
#[derive(Debug, Default)]
pub(super) struct Refused {
    pub(super) count: u64,
    /// The number of refused offers not yet reported to the user. `why` is the reason of the last.
    untold: u64,
    why: String,
    told: Option<Instant>,
}

impl Refused {
    fn add(&mut self, error: &Error) {
        self.count += 1;
        self.untold += 1;
        self.why = in_words(error);
    }

    /// Messages for the user, delivered periodically whatever callers do.
    fn note(&mut self, now: Instant) -> Option<String> {
        let due = self.told.is_none_or(|it| now >= it + TELL);
        if self.untold == 0 || !due {
            return None;
        }
        self.told = Some(now);
        let why = &self.why;
        Some(match std::mem::take(&mut self.untold) {
            1 => format!("refused an offer: {why}"),
            more => format!("refused {more} offers, the last because of this: {why}"),
        })
    }
}

/// The state of an accepted offer.
struct Taken {
    connection: ConnectionId,
    target: Target,
    membership: Membership,
    group: Option<Group>,
    /// When to report progress to the source.
    tells_at: Instant,
}

/// The source's data of its group.
struct Group {
    secret: [u8; 32],
    source: Contact,
    source_key: Option<PublicKey>,
    rack: u32,
    peers_at: SocketAddr,
}

const LOOK: Duration = Duration::from_millis(100);

impl<'a> Waiting<'a> {
    pub(super) fn new(
        worker: Worker,
        endpoint: EndpointId,
        destination: &'a Destination,
        transport: Transport,
        by_code: bool,
    ) -> Waiting<'a> {
        Waiting {
            worker,
            endpoint,
            destination,
            transport,
            callers: HashMap::new(),
            taken: None,
            by_code,
            refused: Refused::default(),
            ending: None,
        }
    }

    pub(super) fn into_worker(self) -> Worker {
        self.worker
    }

    /// Waits for an invitation, until the process that started this host for one is gone.
    pub(super) fn wait(
        &mut self,
        stop: &dyn Fn() -> bool,
        starter_gone: &AtomicBool,
        watch: &mut dyn FnMut(&Progress),
    ) -> Result<Invited, Error> {
        loop {
            let forsaken = self.taken.is_none() && starter_gone.load(Ordering::Relaxed);
            if forsaken || stop() {
                return Err(Error::Stopped);
            }
            self.worker.wait(Some(LOOK))?;
            let now = Instant::now();
            let silent: Vec<_> = self
                .callers
                .iter()
                .filter(|it| *it.1 < now)
                .map(|it| *it.0)
                .collect();
            for connection in silent {
                self.callers.remove(&connection);
                self.worker.close(connection);
            }
            while let Some(event) = self.worker.next_event() {
                self.take(event)?;
            }
            if let Some(note) = self.refused.note(now) {
                watch(&Progress {
                    chunks: 0,
                    of: 0,
                    notes: vec![note],
                });
            }
            let worker = &mut self.worker;
            let heard = |it: &mut (ConnectionId, Instant, Error)| {
                worker.connection(it.0).is_none() || now > it.1
            };
            if let Some((_, _, error)) = self.ending.take_if(heard) {
                return Err(error);
            }
            if let Some(invited) = self.look(now) {
                return Ok(invited);
            }
        }
    }

    /// Checks whether the host can become a node: it must know the group, and the state of an earlier attempt.
    fn look(&mut self, now: Instant) -> Option<Invited> {
        let taken = self.taken.as_mut()?;
        let looked = taken.target.has_looked();
        if looked && taken.group.is_some() {
            let taken = self.taken.take()?;
            let group = taken.group?;
            return Some(Invited {
                connection: taken.connection,
                target: taken.target,
                membership: Membership {
                    secret: group.secret,
                    interface: interface_of(group.peers_at),
                    ..taken.membership
                },
                source: group.source,
                source_key: group.source_key,
                rack: group.rack,
                peers_at: group.peers_at,
            });
        }
        if !looked && now >= taken.tells_at {
            taken.tells_at = now + TELL;
            let word = Word::Looks(taken.target.looked_at());
            say(&mut self.worker, taken.connection, &word);
        }
        None
    }

    fn take(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Accepted { connection, .. } if self.callers.len() < CALLERS => {
                self.callers
                    .insert(connection, Instant::now() + CALLER_PATIENCE);
                self.listen(connection);
            }
            Event::Accepted { connection, .. } => drop(self.worker.close(connection)),
            Event::EndpointFailed { endpoint, error } if endpoint == self.endpoint => {
                return Err(error.into());
            }
            Event::Completed {
                connection,
                completion,
            } if completion.kind() == WorkKind::Receive => {
                if let Ok(len) = completion.result {
                    let call = parse::<Call>(&completion.into_region()?[..len]);
                    self.hear(connection, call)?;
                }
            }
            Event::Closed { connection, .. } => {
                self.callers.remove(&connection);
                self.leave(connection);
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles a departed source whose offer was accepted, or one that withdrew it.
    fn leave(&mut self, connection: ConnectionId) {
        if let Some(mut taken) = self.taken.take_if(|it| it.connection == connection) {
            drop(taken.target.give_up());
        }
    }

    /// Listens to a caller. The event of a caller that has left already arrives anyway.
    fn listen(&mut self, connection: ConnectionId) {
        let _ = listen(&mut self.worker, connection);
    }

    fn hear(&mut self, connection: ConnectionId, call: Option<Call>) -> Result<(), Error> {
        match call {
            Some(Call::Offer(_)) if self.taken.is_some() || self.ending.is_some() => {
                say(
                    &mut self.worker,
                    connection,
                    &Word::Refuses("it is in another cast".into()),
                );
                self.worker.close(connection);
            }
            Some(Call::Offer(offer)) => {
                let waker = self.worker.waker();
                match self.destination.open(&offer, waker) {
                    Ok(target) => self.join(connection, target)?,
                    Err(error) => self.refuse(connection, error),
                }
            }
            Some(Call::Group {
                secret,
                key,
                port,
                rack,
            }) => {
                let source_key = key_of(&mut self.worker, connection);
                let own = self
                    .worker
                    .connection(connection)
                    .and_then(|it| Some((it.local_addr()?, it.peer_addr())));
                let taken = self.taken.as_mut();
                let taken = taken.filter(|it| it.connection == connection && it.group.is_none());
                let (Some(taken), Some((mut own, mut peer))) = (taken, own) else {
                    self.worker.close(connection);
                    return Ok(());
                };
                own.set_port(0);
                peer.set_port(port);
                taken.group = Some(Group {
                    secret,
                    source: source_contact(key, peer),
                    source_key,
                    rack,
                    peers_at: own,
                });
                // From here on it may be silent.
                self.callers.remove(&connection);
                self.listen(connection);
            }
            Some(Call::Aborted(_)) | None => {
                self.leave(connection);
                self.worker.close(connection);
            }
        }
        Ok(())
    }

    /// Accepts the offer whose target is open.
    fn join(&mut self, connection: ConnectionId, target: Target) -> Result<(), Error> {
        let membership = Membership::new([0; 32], self.transport.clone())?;
        let key = membership.identity.public();
        self.taken = Some(Taken {
            connection,
            target,
            membership,
            group: None,
            tells_at: Instant::now() + TELL,
        });
        say(&mut self.worker, connection, &Word::Joins(key.0));
        self.listen(connection);
        Ok(())
    }

    /// Refuses an offer that cannot be taken. The connection ends when that is said.
    fn refuse(&mut self, connection: ConnectionId, error: Error) {
        say(
            &mut self.worker,
            connection,
            &Word::Refuses(in_words(&error)),
        );
        self.worker.close(connection);
        self.refused.add(&error);
        if self.by_code {
            let until = Instant::now() + CALLER_PATIENCE / 5;
            self.ending = Some((connection, until, error));
        }
    }
}

/// The source as a contact.
fn source_contact(key: [u8; 32], at: SocketAddr) -> Contact {
    Contact {
        id: NodeId::of_key(&key),
        address: address_bytes(at),
    }
}
