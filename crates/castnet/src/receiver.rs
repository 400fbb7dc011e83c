//! A host: it waits for a source, and takes part.

mod waiting;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zerolane::request::WorkKind;
use zerolane::security::{Anyone, PublicKey};
use zerolane::worker::{ConnectionId, EndpointId, Event as Happened, Worker};
use zerolane::{Endpoint, Options as Transport, Security};
use zerolane_cast::{Contact, Event, Node, NodeId, Options, Profile};

use crate::drive::{Drive, address_bytes};
use crate::error::Error;
use crate::invitation::{Call, Word, in_words, key_of, listen, parse, say, shown};
use crate::limits::WINDOW;
use crate::target::{Destination, Finishing, Target};
use waiting::{Invited, Waiting};

/// A host that waits for a cast.
#[derive(Debug)]
pub struct Receiver {
    worker: Worker,
    endpoint: EndpointId,
    address: SocketAddr,
    key: Option<PublicKey>,
    destination: Destination,
    /// How long it goes on without anything new.
    patience: Duration,
    /// The silence after which a peer is taken for dead.
    silence: Duration,
    max_rate: Option<u64>,
}

/// What was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Where it is, if it has a path.
    pub path: Option<PathBuf>,
    /// Bytes of the content.
    pub bytes: u64,
    /// From the invitation until all was in its place.
    pub took: Duration,
    /// Bytes that an earlier try had left.
    pub resumed: u64,
    /// Bytes of chunks that came, and that were sent on.
    pub received: u64,
    /// The same.
    pub sent: u64,
}

/// How far a host is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Chunks that it has, written.
    pub chunks: u32,
    /// Chunks of the content; 0 as long as that is not known.
    pub of: u32,
    /// What was noticed since the last time.
    pub notes: Vec<String>,
}

/// How often a stop is looked for, and the user told.
const LOOK: Duration = Duration::from_millis(100);

/// So many silences a node that has all waits for others that lack something, once none leads them.
const FORSAKEN: u32 = 10;

impl Receiver {
    /// Listens on `on` for a source that `security` trusts.
    ///
    /// # Errors
    /// The address is in use, or the destination cannot be received into.
    pub fn bind(
        on: impl ToSocketAddrs,
        security: Security,
        destination: Destination,
    ) -> Result<Receiver, Error> {
        destination.check()?;
        let endpoint = Endpoint::bind(
            on,
            Transport {
                security,
                ..Transport::default()
            },
        )?;
        let (address, key) = (endpoint.local_addr(), endpoint.public_key());
        let mut worker = Worker::new()?;
        let endpoint = worker.listen_on(endpoint)?;
        Ok(Receiver {
            worker,
            endpoint,
            address,
            key,
            destination,
            patience: Duration::from_secs(30),
            silence: Duration::from_secs(2),
            max_rate: None,
        })
    }

    /// Gives up after so long without anything new: 30 s unless set.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Receiver {
        Receiver { patience, ..self }
    }

    /// Takes a peer for dead after so long: 2 s unless set.
    #[must_use]
    pub fn with_silence(self, silence: Duration) -> Receiver {
        Receiver { silence, ..self }
    }

    /// Sends each peer at most so many bytes a second.
    #[must_use]
    pub fn with_max_rate(self, max_rate: Option<u64>) -> Receiver {
        Receiver { max_rate, ..self }
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The key by which sources know it.
    #[must_use]
    pub fn public_key(&self) -> Option<PublicKey> {
        self.key
    }

    /// Waits for a source, and takes part in one cast. `stop` is asked whether the user wants to stop, `watch` told how
    /// far it is.
    ///
    /// # Errors
    /// The content did not come, or could not be put in its place. What came stays for another try.
    pub fn run(
        self,
        stop: &dyn Fn() -> bool,
        watch: &mut dyn FnMut(&Progress),
    ) -> Result<Received, Error> {
        self.run_as(stop, watch, &mut |_| {})
    }

    /// The same, with a change of what drives it.
    pub(crate) fn run_as(
        self,
        stop: &dyn Fn() -> bool,
        watch: &mut dyn FnMut(&Progress),
        change: &mut dyn FnMut(&mut Drive),
    ) -> Result<Received, Error> {
        let transport = Transport {
            max_rate: self.max_rate,
            ..Transport::default()
        };
        let mut waiting = Waiting::new(self.worker, self.endpoint, &self.destination, transport);
        let invited = waiting.wait(stop)?;
        let times = Times {
            silence: self.silence,
            patience: self.patience,
        };
        let mut taking = Taking::begin(waiting.into_worker(), self.endpoint, invited, times)?;
        change(&mut taking.drive);
        let done = taking.run(stop, watch);
        if let Err(error) = &done {
            taking.say(&Word::Ended(Err(in_words(error))));
        }
        taking.drive.settle(self.silence * 2)?;
        if let Some(mut target) = taking.target.take() {
            // Why it failed is known already.
            target.give_up();
        }
        done
    }
}

#[derive(Clone, Copy, Debug)]
struct Times {
    silence: Duration,
    patience: Duration,
}

/// A cast in progress.
struct Taking {
    drive: Drive,
    /// Until all is there.
    target: Option<Target>,
    /// It is being put in its place.
    finishing: Option<Finishing>,
    /// It is in its place.
    in_place: Option<Duration>,
    path: Option<PathBuf>,
    /// Where the source hears about the end, and what it is known by.
    source: Option<ConnectionId>,
    source_key: Option<PublicKey>,
    secret: [u8; 32],
    own_key: PublicKey,
    endpoint: EndpointId,
    times: Times,
    begun: Instant,
    /// Chunks when anything new came last, and when.
    progressed: (u32, Instant),
    resumed: u64,
    /// The node takes part no more.
    over: bool,
    dismissed: Option<Error>,
    kept: bool,
    /// Chunks from the start on that are written.
    ready: u32,
    notes: Vec<String>,
}

impl Taking {
    fn begin(
        mut worker: Worker,
        endpoint: EndpointId,
        invited: Invited,
        times: Times,
    ) -> Result<Taking, Error> {
        let Invited {
            connection,
            target,
            membership,
            source,
            peers_at,
            source_key,
            rack,
        } = invited;
        let options = membership.options(Arc::new(Anyone));
        let listens = worker.listen(SocketAddr::new(peers_at, 0), options)?;
        let address = worker.endpoint(listens).expect("it listens").local_addr();
        let contact = Contact {
            id: membership.id(),
            address: address_bytes(address),
        };
        let begun = Instant::now();
        let options = Options {
            window: WINDOW,
            silence: times.silence,
            beat: times.silence / 8,
            patience: times.patience,
            ..Options::default()
        };
        let profile = Profile {
            contact,
            rack,
            rate: 0,
        };
        let stored = target.stored().cloned();
        let node = Node::receiver(Duration::ZERO, profile, vec![source], options, stored);
        let (secret, own_key) = (membership.secret, membership.identity.public());
        let drive = Drive::new(worker, listens, node, membership, target.store(), begun)?;
        Ok(Taking {
            drive,
            path: target.path().map(PathBuf::from),
            target: Some(target),
            finishing: None,
            in_place: None,
            source: Some(connection),
            source_key,
            secret,
            own_key,
            endpoint,
            times,
            begun,
            progressed: (0, begun),
            resumed: 0,
            over: false,
            dismissed: None,
            kept: false,
            ready: 0,
            notes: Vec::new(),
        })
    }

    fn say(&mut self, word: &Word) {
        if let Some(source) = self.source {
            say(&mut self.drive.worker, source, word);
        }
    }

    fn run(
        &mut self,
        stop: &dyn Fn() -> bool,
        watch: &mut dyn FnMut(&Progress),
    ) -> Result<Received, Error> {
        let mut looked = Instant::now();
        while !self.is_over() {
            self.drive.turn(LOOK)?;
            while let Some(event) = self.drive.others.pop_front() {
                self.take(event)?;
            }
            while let Some(event) = self.drive.events.pop_front() {
                self.note(event)?;
            }
            self.look_at_content()?;
            self.look_at_end()?;
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                if stop() {
                    return Err(Error::Stopped);
                }
                watch(&self.progress());
            }
        }
        if self.in_place.is_none() {
            return Err(self.dismissed.take().unwrap_or(Error::Stopped));
        }
        watch(&self.progress());
        Ok(Received {
            path: self.path.clone(),
            bytes: self.drive.manifest().map_or(0, |it| it.header().bytes),
            took: self.in_place.unwrap_or_default(),
            resumed: self.resumed,
            received: self.drive.received,
            sent: self.drive.sent,
        })
    }

    fn progress(&mut self) -> Progress {
        Progress {
            chunks: self.drive.node.written().count(),
            of: self.drive.node.written().len(),
            notes: std::mem::take(&mut self.notes),
        }
    }

    fn note(&mut self, event: Event) -> Result<(), Error> {
        match event {
            Event::Done => self.finish()?,
            Event::Finished => self.over = true,
            Event::Dismissed(fault) => {
                self.over = true;
                self.dismissed = Some(Error::Dismissed(fault));
            }
            Event::Leads => self
                .notes
                .push("the source is gone: this node leads".into()),
            Event::Liar { peer, fault, .. } => {
                self.notes.push(format!("{peer}: it {fault}: cut off"))
            }
            _ => {}
        }
        Ok(())
    }

    /// All is written.
    fn finish(&mut self) -> Result<(), Error> {
        if let (Some(target), Some(manifest)) = (self.target.take(), self.drive.manifest()) {
            self.finishing =
                Some(target.finish(manifest.header().bytes, self.drive.worker.waker())?);
        }
        Ok(())
    }

    /// Keeps what another try needs, and lets the reader of the content go on.
    fn look_at_content(&mut self) -> Result<(), Error> {
        let (Some(target), Some(manifest)) = (&self.target, self.drive.manifest()) else {
            return Ok(());
        };
        let header = manifest.header();
        let written = self.drive.node.written();
        if !self.kept {
            self.kept = true;
            target.keep(manifest)?;
            self.resumed = u64::from(written.count()) * u64::from(header.chunk_bytes);
        }
        let before = self.ready;
        while self.ready < header.chunks() && written.contains(self.ready) {
            self.ready += 1;
        }
        if self.ready > before {
            let ready = u64::from(self.ready) * u64::from(header.chunk_bytes);
            target.advance(ready.min(header.bytes));
        }
        match self.ready < header.chunks() && target.reader_has_ended() {
            true => Err(self.reader_failed()),
            false => Ok(()),
        }
    }

    /// What reads the content ended before all was there.
    fn reader_failed(&mut self) -> Error {
        let error = self.target.take().and_then(|mut it| it.give_up());
        error.unwrap_or_else(|| {
            Error::Command("what reads the content ended before all was there".into())
        })
    }

    fn look_at_end(&mut self) -> Result<(), Error> {
        if let Some(done) = self.finishing.as_ref().and_then(Finishing::end) {
            self.finishing = None;
            done?;
            self.in_place = Some(self.begun.elapsed());
            self.say(&Word::Ended(Ok(())));
        }
        let count = self.drive.node.written().count();
        if count != self.progressed.0 {
            self.progressed = (count, Instant::now());
        }
        let still = self.progressed.1.elapsed();
        if self.target.is_some() && still > self.times.patience {
            let lacking = self.drive.node.written().len() - count;
            return Err(Error::Stuck {
                lacking,
                seconds: still.as_secs(),
            });
        }
        Ok(())
    }

    /// It is in its place, or never will be; and no other node needs this one.
    fn is_over(&self) -> bool {
        if self.finishing.is_some() {
            return false;
        }
        if self.over {
            return self.in_place.is_some() || self.dismissed.is_some();
        }
        // It has all, and the one that led is gone for long.
        let alone = self.source.is_none() && !self.drive.node.leads() && self.drive.peers() == 0;
        self.in_place.is_some()
            && alone
            && self.progressed.1.elapsed() > self.times.silence * FORSAKEN
    }

    fn take(&mut self, event: Happened) -> Result<(), Error> {
        match event {
            Happened::Accepted {
                endpoint,
                connection,
            } if endpoint == self.endpoint => {
                // A connection that is over tells so by itself.
                let _ = listen(&mut self.drive.worker, connection);
            }
            Happened::Completed {
                connection,
                completion,
            } if completion.kind == WorkKind::Receive => {
                if let Ok(len) = completion.result {
                    let call = parse::<Call>(&completion.into_region()[..len]);
                    self.hear(connection, call)?;
                }
            }
            Happened::Closed { connection, .. } if self.source == Some(connection) => {
                self.source = None
            }
            _ => {}
        }
        Ok(())
    }

    /// What a source says: the one of this cast may have lost its connection; another is told that this host is busy.
    fn hear(&mut self, connection: ConnectionId, call: Option<Call>) -> Result<(), Error> {
        let worker = &mut self.drive.worker;
        let known = self.source == Some(connection);
        let is_source =
            known || (self.source_key.is_some() && key_of(worker, connection) == self.source_key);
        match call {
            Some(Call::Aborted(why))
                if known && self.in_place.is_none() && self.finishing.is_none() =>
            {
                return Err(Error::Aborted(shown(&why)));
            }
            Some(Call::Aborted(_)) if known => {}
            Some(Call::Offer { .. }) if is_source && !known => {
                say(worker, connection, &Word::Joins(self.own_key.0));
                let _ = listen(worker, connection);
            }
            Some(Call::Group { secret, .. }) if is_source && secret == self.secret => {
                self.source = Some(connection);
                let _ = listen(&mut self.drive.worker, connection);
                if self.in_place.is_some() {
                    self.say(&Word::Ended(Ok(())));
                }
            }
            Some(Call::Offer { .. } | Call::Group { .. }) => {
                say(
                    worker,
                    connection,
                    &Word::Refuses("it takes part in another cast".into()),
                );
                worker.close(connection);
            }
            _ => drop(worker.close(connection)),
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
