//! Files from one person to another on the same network, who know a code and nothing else of each other.
//!
//! ```text
//! receiver                               sender
//!   question for the channel  --------->  by broadcast, again and again
//!                             <---------  answer: a port
//!   key exchange by the secret <------->  one guess for each who takes part
//!   Meet                      --------->
//!                             <---------  Offer: what there is
//! another connection, by the keys that the exchange has bound to the code:
//!   Get | Decline             --------->  as any copy
//! ```
//! The code is used up by the first connection. The second one, and those that take it up again after an outage, are
//! let in by the receiver's key, and know the sender by its own.

mod code;
mod discovery;
mod links;

pub use code::{MeetingCode, MeetingCodeError};

use crate::client::Client;
use crate::confine::{Confinement, confine_to_sources};
use crate::error::{Cause, Error};
use crate::limits::{
    CONTROL_BYTES, ENTRY_OVERHEAD_BYTES, MEETING_ANSWER_MILLISECONDS, MEETING_PLACES,
    MEETING_PLACES_OF_HOST, QUESTION_MILLISECONDS, REPLY_SECONDS, REQUEST_SECONDS, SEARCH_SECONDS,
};
use crate::links::Links;
use crate::location::Host;
use crate::message::{CopyOptions, OfferedEntry, Reply, Request, Totals};
use crate::observe::Observer;
use crate::opening::{hear, say};
use crate::root::{kind_of, meta_of, stat_at};
use crate::send::{Start, count};
use crate::server::{ServeOptions, Server};
use crate::stop::Stop;
use discovery::{Beacon, Search};
use links::links;
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerolane::failure::{CloseReason, Reason};
use zerolane::keys::Access;
use zerolane::security::{CODE_GUESSES, Identity, PublicKey, random};
use zerolane::{Connection, Endpoint, Options, Security};

/// What a sender offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Files in all.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was named to be sent, as much of it as one message holds.
    pub entries: Vec<OfferedEntry>,
    /// How many more there are.
    pub more: u64,
}

/// Files that are offered to whoever knows a code.
#[derive(Debug)]
pub struct Invitation {
    code: MeetingCode,
    offer: Offer,
    sources: Vec<PathBuf>,
    endpoint: Endpoint,
    transport: Options,
    beacon: io::Result<Beacon>,
}

impl Invitation {
    /// Takes from the calling thread, and from all threads that it starts from now on, what sending `sources` does not
    /// need, by Landlock: other files, writing, starting programs, TCP, signals to other processes. To be called before
    /// [`Invitation::new`], which starts a thread that hears strangers. It cannot be undone. A file that is replaced by
    /// another after that cannot be read.
    ///
    /// # Errors
    /// The kernel has Landlock and refuses.
    pub fn confine(sources: &[PathBuf]) -> io::Result<Confinement> {
        confine_to_sources(sources)
    }

    /// Offers local files and directories, listening on `address`, to be found on the networks of the
    /// `interfaces` with these names (of all that are up, if none is named).
    ///
    /// # Errors
    /// [`Error::Local`] for a source that is not there; [`Error::Listen`]; no random numbers.
    pub fn new(
        sources: Vec<PathBuf>,
        address: SocketAddr,
        interfaces: &[String],
        transport: Options,
    ) -> Result<Invitation, Error> {
        let offer = offer(&sources)?;
        let code = MeetingCode::from_random(draw()?, draw()?);
        let identity = Arc::new(Identity::from_secret(draw()?));
        let mut transport = transport;
        transport.security = Security {
            identity: Some(identity),
            ..Security::default()
        };
        let mut by_code = transport.clone();
        by_code.security.pre_shared = Some(code.secret().clone().into());
        let endpoint = Endpoint::bind(address, by_code).map_err(|source| Error::Listen {
            address: address.to_string(),
            source,
        })?;
        let port = endpoint.local_addr().port();
        let beacon = links(interfaces).and_then(|links| Beacon::new(&links, code.channel(), port));
        Ok(Invitation {
            code,
            offer,
            sources,
            endpoint,
            transport,
            beacon,
        })
    }

    /// What the receiver is to be told.
    pub fn code(&self) -> &MeetingCode {
        &self.code
    }

    /// What is offered.
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }

    /// Why it cannot be found, but by its address.
    pub fn hidden(&self) -> Option<&io::Error> {
        self.beacon.as_ref().err()
    }

    /// Waits for somebody with the code, and gives the server of these files for the owner of that key alone.
    /// `wrong_code` is told of each wrong guess, and how many are left.
    ///
    /// # Errors
    /// [`Error::CodeGuessed`]: wrong codes were tried so often that the code is void. [`Error::ClientLost`]: the one who
    /// had the code went at once.
    pub fn wait(self, stop: &Stop, mut wrong_code: impl FnMut(u32)) -> Result<Server, Error> {
        let mut endpoint = self.endpoint;
        let mut told = 0;
        let mut connection = loop {
            stop.check()?;
            let accepted = endpoint.accept(Some(LOOK))?;
            let wrong = endpoint.gate_counters().map_or(0, |it| it.wrong_codes);
            while u64::from(told) < wrong {
                told += 1;
                wrong_code(CODE_GUESSES.saturating_sub(told));
            }
            match accepted {
                Some(connection) => break connection,
                None if endpoint.is_spent() => {
                    return Err(match endpoint.gate_counters() {
                        Some(strangers) if strangers.admitted > 0 => Error::ClientLost,
                        _ => Error::CodeGuessed,
                    });
                }
                None => {}
            }
        };
        let key = connection.peer_key().ok_or(Error::Internal)?;
        let address = endpoint.local_addr();
        drop((self.beacon, endpoint));
        let greet = |connection: &mut Connection| {
            match hear(connection, stop, Duration::from_secs(REQUEST_SECONDS))? {
                Request::Meet => {}
                _ => return Err(Error::Protocol("asks before it meets")),
            }
            // The receiver may come as soon as it knows what there is.
            let server = Server::offering(
                self.sources.into(),
                address,
                ServeOptions {
                    read_only: true,
                    access: Access::Anyone,
                    transport: trusting(self.transport, key),
                },
            )?;
            let offer = Reply::Offer {
                files: self.offer.files,
                bytes: self.offer.bytes,
                entries: self.offer.entries,
                more: self.offer.more,
            };
            say(connection, &offer, stop, PATIENCE)?;
            Ok(server)
        };
        let server = greet(&mut connection);
        let _ = connection.close();
        match server {
            Err(Error::Transport(_) | Error::Stalled) => Err(Error::ClientLost),
            server => server,
        }
    }
}

/// Speaks to the owner of this key alone, and shows its own.
fn trusting(mut transport: Options, key: PublicKey) -> Options {
    transport.security.pre_shared = None;
    transport.security.trust = Arc::new(HashSet::from([key]));
    transport
}

fn draw() -> Result<[u8; 32], Error> {
    random().map_err(|_| Error::NoRandom)
}

/// What these sources are.
fn offer(sources: &[PathBuf]) -> Result<Offer, Error> {
    let options = CopyOptions {
        recursive: true,
        ..CopyOptions::default()
    };
    let starts: Vec<_> = sources
        .iter()
        .map(|source| crate::client::local_start(source, &options))
        .collect();
    let (files, bytes) = count(&starts, &options, &Links::Kept, || Ok(()))?;
    let mut offer = Offer {
        files,
        bytes,
        entries: Vec::new(),
        more: 0,
    };
    let mut names = HashSet::new();
    let mut room = CONTROL_BYTES - 1024;
    for (start, source) in starts.iter().zip(sources) {
        let (directory, name) = match start {
            Start::Named { directory, name } => (directory, name),
            Start::Contents(_) | Start::Below { .. } => continue,
            Start::Missing { cause, .. } => return Err(Error::local(source, cause.clone())),
        };
        if !names.insert(name) {
            return Err(Error::local(source, Cause::SameName));
        }
        let stat = stat_at(directory, name).map_err(|cause| Error::local(source, cause))?;
        let start = std::slice::from_ref(start);
        let (_, size) = count(start, &options, &Links::Kept, || Ok(()))?;
        let entry = OfferedEntry {
            name: name.clone(),
            kind: kind_of(&stat),
            size,
            meta: meta_of(&stat),
        };
        match room.checked_sub(name.len() + ENTRY_OVERHEAD_BYTES) {
            Some(left) => {
                room = left;
                offer.entries.push(entry);
            }
            None => offer.more += 1,
        }
    }
    Ok(offer)
}

/// Where to look for a sender.
#[derive(Clone, Debug)]
pub enum Whereabouts {
    /// On the networks of the interfaces with these names; of all that are up, if none is named.
    Near(Vec<String>),
    /// There.
    At(Host),
}

/// A sender that was found, and what it offers.
#[derive(Debug)]
pub struct Meeting {
    offer: Offer,
    client: Client,
}

impl Meeting {
    /// Finds the one who sends with this code.
    ///
    /// # Errors
    /// [`Error::NoSender`]: nobody answers. [`Error::Connect`]: who answers does not know the code, or is gone.
    pub fn find(
        code: &MeetingCode,
        whereabouts: &Whereabouts,
        transport: &Options,
        stop: &Stop,
    ) -> Result<Meeting, Error> {
        let mut transport = transport.clone();
        transport.security = Security {
            identity: Some(Arc::new(Identity::from_secret(draw()?))),
            ..Security::default()
        };
        let interfaces = match whereabouts {
            Whereabouts::At(host) => return greet(host, code, &transport, stop),
            Whereabouts::Near(interfaces) => interfaces,
        };
        let none = |why: io::Error| Error::NoSender(Some(why));
        let [nonce, _]: [[u8; 16]; 2] = halves(draw()?);
        let search = links(interfaces).and_then(|it| Search::new(&it, code.channel(), nonce));
        let search = search.map_err(none)?;
        let quick = Options {
            connect_timeout: Duration::from_millis(MEETING_ANSWER_MILLISECONDS),
            ..transport
        };
        let mut places = Places::default();
        let until = Instant::now() + Duration::from_secs(SEARCH_SECONDS);
        let mut asked: Option<Instant> = None;
        let mut why = Error::NoSender(None);
        while Instant::now() < until {
            stop.check()?;
            let due = Duration::from_millis(QUESTION_MILLISECONDS);
            if asked.is_none_or(|at| at.elapsed() >= due) {
                search.ask().map_err(none)?;
                asked = Some(Instant::now());
            }
            search.hear(|place| places.add(place));
            // One at a time: in between others are heard.
            let Some(place) = places.next() else {
                continue;
            };
            let host = Host::from(place);
            match greet(&host, code, &quick, stop) {
                Err(Error::Stopped) => return Err(Error::Stopped),
                // Another may be the right one. That a code was wrong says more than that there was no answer.
                Err(error) if !is_denied(&why) => why = error,
                Err(_) => {}
                met => return met,
            }
            if places.is_full() && places.tried == places.known.len() {
                break;
            }
        }
        Err(why)
    }

    /// What there is to receive.
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Receives all of it into a directory, which is made if need be. A name that is there already is refused, unless
    /// `overwrite`. When the connection breaks, another goes on, for as long as `patience`.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn receive(
        &self,
        directory: &Path,
        options: &CopyOptions,
        overwrite: bool,
        patience: Duration,
        observer: &dyn Observer,
    ) -> Result<Totals, Error> {
        let client = self.client.clone().with_patience(patience);
        client.get_offered(directory, options, overwrite, observer)
    }

    /// Tells the sender that nothing of it is wanted.
    ///
    /// # Errors
    /// The sender is gone.
    pub fn decline(&self) -> Result<(), Error> {
        self.client.decline()
    }
}

/// Proves the code to who is at `host`, and hears what there is.
fn greet(
    host: &Host,
    code: &MeetingCode,
    transport: &Options,
    stop: &Stop,
) -> Result<Meeting, Error> {
    let mut by_code = transport.clone();
    by_code.security.pre_shared = Some(code.secret().clone().into());
    let client = Client::new(host.clone()).with_stop(stop.clone());
    let mut connection = client.clone().with_transport(by_code).connect_once()?;
    say(&mut connection, &Request::Meet, stop, PATIENCE)?;
    let offer = match hear(&mut connection, stop, PATIENCE)? {
        Reply::Offer {
            files,
            bytes,
            entries,
            more,
        } => Offer {
            files,
            bytes,
            entries,
            more,
        },
        _ => return Err(Error::Protocol("offers nothing")),
    };
    let key = connection.peer_key().ok_or(Error::Internal)?;
    let _ = connection.close();
    let usual = Options {
        connect_timeout: Options::default().connect_timeout,
        ..transport.clone()
    };
    Ok(Meeting {
        offer,
        client: client.with_transport(trusting(usual, key)),
    })
}

/// The places to try: a bounded number, and of one host a part of that.
#[derive(Debug, Default)]
struct Places {
    known: Vec<SocketAddr>,
    tried: usize,
}

impl Places {
    fn add(&mut self, place: SocketAddr) {
        let of_host = self.known.iter().filter(|it| it.ip() == place.ip());
        let room = !self.is_full() && of_host.count() < MEETING_PLACES_OF_HOST;
        if room && !self.known.contains(&place) {
            self.known.push(place);
        }
    }

    fn next(&mut self) -> Option<SocketAddr> {
        let place = self.known.get(self.tried).copied()?;
        self.tried += 1;
        Some(place)
    }

    /// Whether as many as may be are known.
    fn is_full(&self) -> bool {
        self.known.len() >= MEETING_PLACES
    }
}

fn halves(bytes: [u8; 32]) -> [[u8; 16]; 2] {
    let (halves, _) = bytes.as_chunks();
    [halves[0], halves[1]]
}

fn is_denied(error: &Error) -> bool {
    let Error::Connect {
        source: zerolane::Error::Closed(CloseReason::ExchangeRefused(reason)),
        ..
    } = error
    else {
        return false;
    };
    *reason == Reason::Denied
}

const PATIENCE: Duration = Duration::from_secs(REPLY_SECONDS);
/// How often a wait checks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);

#[cfg(test)]
#[path = "meet_tests.rs"]
mod tests;
