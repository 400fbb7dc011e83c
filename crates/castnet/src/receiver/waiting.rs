//! A host before it is a node: it listens to callers until one that is trusted offers something that it can take.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use zerolane::Options as Transport;
use zerolane::request::WorkKind;
use zerolane::security::PublicKey;
use zerolane::worker::{ConnectionId, EndpointId, Event, Worker};
use zerolane_cast::{Contact, NodeId};

use crate::drive::{Membership, address_bytes};
use crate::error::Error;
use crate::invitation::{Call, Word, in_words, key_of, listen, parse, say};
use crate::limits::{CALLER_PATIENCE, CALLERS};
use crate::target::{Destination, Target};

/// What a host needs to be a node.
pub(super) struct Invited {
    pub(super) connection: ConnectionId,
    pub(super) target: Target,
    pub(super) membership: Membership,
    /// The source.
    pub(super) source: Contact,
    pub(super) source_key: Option<PublicKey>,
    /// The label of this host's rack.
    pub(super) rack: u32,
    /// The address of this host that the source reached.
    pub(super) peers_at: IpAddr,
}

/// A host that waits.
pub(super) struct Waiting<'a> {
    worker: Worker,
    endpoint: EndpointId,
    destination: &'a Destination,
    transport: Transport,
    /// Callers, and until when they may say something.
    callers: HashMap<ConnectionId, Instant>,
    /// The source whose offer was taken, and what it needs.
    taken: Option<(ConnectionId, Target, Membership)>,
}

const LOOK: Duration = Duration::from_millis(100);

impl<'a> Waiting<'a> {
    pub(super) fn new(
        worker: Worker,
        endpoint: EndpointId,
        destination: &'a Destination,
        transport: Transport,
    ) -> Waiting<'a> {
        Waiting {
            worker,
            endpoint,
            destination,
            transport,
            callers: HashMap::new(),
            taken: None,
        }
    }

    pub(super) fn into_worker(self) -> Worker {
        self.worker
    }

    /// Waits for an invitation.
    pub(super) fn wait(&mut self, stop: &dyn Fn() -> bool) -> Result<Invited, Error> {
        loop {
            if stop() {
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
                if let Some(invited) = self.take(event)? {
                    return Ok(invited);
                }
            }
        }
    }

    fn take(&mut self, event: Event) -> Result<Option<Invited>, Error> {
        match event {
            Event::Accepted { connection, .. } if self.callers.len() < CALLERS => {
                self.callers
                    .insert(connection, Instant::now() + CALLER_PATIENCE);
                listen(&mut self.worker, connection)?;
            }
            Event::Accepted { connection, .. } => drop(self.worker.close(connection)),
            Event::EndpointFailed { endpoint, error } if endpoint == self.endpoint => {
                return Err(error.into());
            }
            Event::Completed {
                connection,
                completion,
            } if completion.kind == WorkKind::Receive => {
                if let Ok(len) = completion.result {
                    let call = parse::<Call>(&completion.into_region()[..len]);
                    return self.hear(connection, call);
                }
            }
            Event::Closed { connection, .. } => {
                self.callers.remove(&connection);
                if self.taken.as_ref().is_some_and(|it| it.0 == connection) {
                    self.taken
                        .take()
                        .into_iter()
                        .for_each(|mut it| drop(it.1.give_up()));
                }
            }
            _ => {}
        }
        Ok(None)
    }

    fn hear(
        &mut self,
        connection: ConnectionId,
        call: Option<Call>,
    ) -> Result<Option<Invited>, Error> {
        match call {
            Some(Call::Offer { .. }) if self.taken.is_some() => {
                say(
                    &mut self.worker,
                    connection,
                    &Word::Refuses("it takes part in another cast".into()),
                );
                self.worker.close(connection);
            }
            Some(Call::Offer { name, form, bytes }) => {
                match self.destination.open(&name, form, bytes) {
                    Ok(target) => {
                        let membership = Membership::new([0; 32], self.transport.clone())?;
                        let key = membership.identity.public();
                        self.taken = Some((connection, target, membership));
                        say(&mut self.worker, connection, &Word::Joins(key.0));
                        listen(&mut self.worker, connection)?;
                    }
                    Err(error) => {
                        say(
                            &mut self.worker,
                            connection,
                            &Word::Refuses(in_words(&error)),
                        );
                        self.part(connection)?;
                        return Err(error);
                    }
                }
            }
            Some(Call::Group {
                secret,
                key,
                port,
                rack,
            }) => {
                let taken = self.taken.take_if(|it| it.0 == connection);
                let own = self
                    .worker
                    .connection(connection)
                    .and_then(|it| Some((it.local_addr()?, it.peer_addr())));
                let (Some((_, target, membership)), Some((own, peer))) = (taken, own) else {
                    self.worker.close(connection);
                    return Ok(None);
                };
                self.callers.remove(&connection);
                listen(&mut self.worker, connection)?;
                let source_key = key_of(&mut self.worker, connection);
                return Ok(Some(Invited {
                    connection,
                    target,
                    membership: Membership {
                        secret,
                        ..membership
                    },
                    source: source_contact(key, SocketAddr::new(peer.ip(), port)),
                    source_key,
                    rack,
                    peers_at: own.ip(),
                }));
            }
            Some(Call::Aborted(_)) | None => drop(self.worker.close(connection)),
        }
        Ok(None)
    }

    /// Lets the last word be sent.
    fn part(&mut self, connection: ConnectionId) -> Result<(), Error> {
        self.worker.close(connection);
        let until = Instant::now() + CALLER_PATIENCE / 5;
        while self.worker.connection(connection).is_some() && Instant::now() < until {
            self.worker.wait(Some(Duration::from_millis(20)))?;
            while self.worker.next_event().is_some() {}
        }
        Ok(())
    }
}

/// The source as a contact.
fn source_contact(key: [u8; 32], at: SocketAddr) -> Contact {
    Contact {
        id: NodeId::of_key(&key),
        address: address_bytes(at),
    }
}
