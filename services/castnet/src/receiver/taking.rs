//! Runs a host as a node until its content is in place and no other host needs it, or until it fails.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use zerolane::request::WorkKind;
use zerolane::security::{Anyone, PublicKey};
use zerolane::worker::{ConnectionId, EndpointId, Event as Happened, Worker};
use zerolane_cast::{Contact, Event, Node, Options, Profile};

use super::waiting::Invited;
use super::{Progress, Received};
use crate::contact::address_bytes;
use crate::drive::{Drive, with_silence};
use crate::error::Error;
use crate::invitation::{Call, Word, confirms_last, key_of, listen, parse, say, say_last, shown};
use crate::limits::{TELL, WINDOW};
use crate::target::{Finishing, Target};

/// How often the host checks for a stop, and reports progress.
const LOOK: Duration = Duration::from_millis(100);

/// So many silences a node that has all waits for others that lack something, once none leads them; its patience, if that is
/// longer, where it has peers still.
const FORSAKEN: u32 = 10;

#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) silence: Duration,
    pub(super) patience: Duration,
}

/// A cast in progress.
pub(super) struct Taking {
    pub(super) drive: Drive,
    /// Until all is there.
    target: Option<Target>,
    /// The content is being put in place.
    finishing: Option<Finishing>,
    /// When to report that to the source.
    tells_at: Instant,
    /// It is in its place.
    in_place: Option<Duration>,
    /// When others needed this node last, and what it had sent then.
    needed: (Instant, u64),
    path: Option<PathBuf>,
    /// Where the source hears about the end, and what it is known by.
    source: Option<ConnectionId>,
    /// The source has not confirmed the result.
    unconfirmed: bool,
    source_key: Option<PublicKey>,
    source_node: Contact,
    /// The last message to the source.
    last_word: Option<Word>,
    secret: [u8; 32],
    own_key: PublicKey,
    endpoint: EndpointId,
    times: Times,
    started: Instant,
    resumed: u64,
    /// The node no longer takes part.
    over: bool,
    dismissed: Option<Error>,
    kept: bool,
    /// Chunks from the start on that are written.
    ready: u32,
    notes: Vec<String>,
}

impl Taking {
    pub(super) fn begin(
        mut worker: Worker,
        endpoint: EndpointId,
        invited: Invited,
        times: Times,
        spill: bool,
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
        let listens = worker.listen(peers_at, options)?;
        let address = worker.endpoint(listens).expect("it listens").local_addr();
        let contact = Contact {
            id: membership.id(),
            address: address_bytes(address),
        };
        let started = Instant::now();
        let options = Options {
            window: WINDOW,
            patience: times.patience,
            spill,
            ..with_silence(times.silence)
        };
        let profile = Profile {
            contact,
            rack,
            rate: 0,
        };
        let stored = target.stored().cloned();
        let node = Node::receiver(
            Duration::ZERO,
            profile,
            vec![source.clone()],
            options,
            stored,
        );
        let (secret, own_key) = (membership.secret, membership.identity.public());
        let store = (target.store(), target.name());
        let drive = Drive::new(worker, listens, node, membership, store, started)?;
        Ok(Taking {
            drive,
            path: target.path().map(PathBuf::from),
            target: Some(target),
            finishing: None,
            tells_at: started,
            in_place: None,
            needed: (started, 0),
            source: Some(connection),
            unconfirmed: false,
            source_key,
            source_node: source,
            last_word: None,
            secret,
            own_key,
            endpoint,
            times,
            started,
            resumed: 0,
            over: false,
            dismissed: None,
            kept: false,
            ready: 0,
            notes: Vec::new(),
        })
    }

    /// Tells the source about the end.
    pub(super) fn say(&mut self, word: Word) {
        if let Some(source) = self.source {
            say_last(&mut self.drive.worker, source, &word);
        }
        self.unconfirmed = true;
        self.last_word = Some(word);
    }

    /// Takes leave: of the source when it has confirmed the last word, or is taken for dead. A source that cannot call again,
    /// for the code that it was let in with is spent, hears it as the group's.
    pub(super) fn part(&mut self) -> Result<(), Error> {
        let most = self.times.silence * 2;
        let source = match (self.source, &self.last_word) {
            (None, Some(word)) if self.unconfirmed => {
                self.drive.say_to(&self.source_node, word, most)?
            }
            (source, _) => source.filter(|_| self.unconfirmed),
        };
        self.drive.settle(source.map(|it| (it, most)))
    }

    /// Ends the reader of the content, if it has not read all.
    pub(super) fn give_up(&mut self) {
        if let Some(mut target) = self.target.take() {
            // Why it failed is known already.
            target.give_up();
        }
        if let Some(finishing) = self.finishing.take() {
            finishing.give_up();
        }
    }

    pub(super) fn run(
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
            self.look_at_others();
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
            refused: 0,
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
            Event::Done => {
                // It may have had all from the start.
                self.look_at_content()?;
                self.finish()?;
            }
            Event::Finished => self.over = true,
            Event::Dismissed(fault) => {
                self.over = true;
                self.dismissed = Some(Error::Dismissed(fault));
            }
            Event::Leads => self
                .notes
                .push("the source is gone: this node leads".into()),
            Event::Stuck { lacking } => {
                let seconds = self.times.patience.as_secs();
                return Err(Error::Stuck { lacking, seconds });
            }
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
            self.tells_at = Instant::now() + TELL;
            self.finishing =
                Some(target.finish(manifest.header().bytes, self.drive.worker.waker())?);
        }
        Ok(())
    }

    /// Stores the state that another attempt needs, and lets the reader of the content continue.
    fn look_at_content(&mut self) -> Result<(), Error> {
        let (Some(target), Some(manifest)) = (&self.target, self.drive.manifest()) else {
            return Ok(());
        };
        let header = manifest.header();
        let written = self.drive.node.written();
        if !self.kept {
            self.kept = true;
            target.keep(manifest)?;
            let stored = target.stored().filter(|it| it.root == header.root);
            // The last chunk is shorter.
            let chunks = 0..header.chunks();
            let chunks = chunks.filter(|it| stored.is_some_and(|stored| stored.has.contains(*it)));
            self.resumed = chunks.map(|it| header.bytes_of(it) as u64).sum();
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

    /// The error of a reader that ended before the content was complete.
    fn reader_failed(&mut self) -> Error {
        let error = self.target.take().and_then(|mut it| it.give_up());
        error.unwrap_or_else(|| Error::Command("the reader of the content ended early".into()))
    }

    fn look_at_end(&mut self) -> Result<(), Error> {
        if let Some(done) = self.finishing.as_ref().and_then(Finishing::end) {
            self.finishing = None;
            done?;
            self.in_place = Some(self.started.elapsed());
            self.say(Word::Ended(Ok(())));
        }
        self.tell_finishing();
        Ok(())
    }

    /// A source waits for one that is at it, however long a disk or a command takes.
    fn tell_finishing(&mut self) {
        let now = Instant::now();
        if let Some(source) = self.source
            && self.finishing.is_some()
            && now >= self.tells_at
        {
            self.tells_at = now + TELL;
            say(&mut self.drive.worker, source, &Word::Finishes);
        }
    }

    /// Checks whether another node needs this one: it leads this node, or received chunks from it.
    fn look_at_others(&mut self) {
        let (node, sent) = (&self.drive.node, self.drive.sent);
        let led = self.source.is_some() || node.leads() || node.is_led();
        if led || self.in_place.is_none() || sent != self.needed.1 {
            self.needed = (Instant::now(), sent);
        }
    }

    /// It is in its place, or never will be; and no other node needs this one.
    fn is_over(&self) -> bool {
        if self.finishing.is_some() {
            return false;
        }
        if self.over {
            return self.in_place.is_some() || self.dismissed.is_some();
        }
        // It has all, and the one that led is gone for long. Others that have all, too, stay linked to it.
        let alone = self.times.silence * FORSAKEN;
        let most = match self.drive.peers() {
            0 => alone,
            _ => alone.max(self.times.patience),
        };
        self.in_place.is_some() && self.needed.0.elapsed() > most
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
            } if completion.kind() == WorkKind::Receive => {
                if let Ok(len) = completion.result {
                    let call = parse::<Call>(&completion.into_region()?[..len]);
                    self.hear(connection, call)?;
                }
            }
            Happened::Completed {
                connection,
                completion,
            } if confirms_last(&completion) && self.source == Some(connection) => {
                self.unconfirmed = false;
            }
            Happened::Closed { connection, .. } if self.source == Some(connection) => {
                self.source = None
            }
            _ => {}
        }
        Ok(())
    }

    /// Handles a message of a source. The source of this cast may have lost its connection; any other source learns
    /// that this host is busy.
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
            Some(Call::Offer(_)) if is_source && !known => {
                say(worker, connection, &Word::Joins(self.own_key.0));
                let _ = listen(worker, connection);
            }
            Some(Call::Group { secret, .. }) if is_source && secret == self.secret => {
                self.source = Some(connection);
                let _ = listen(&mut self.drive.worker, connection);
                // It misses this node.
                self.drive.reach_source()?;
                if self.in_place.is_some() {
                    self.say(Word::Ended(Ok(())));
                }
            }
            Some(Call::Offer(_) | Call::Group { .. }) => {
                say(
                    worker,
                    connection,
                    &Word::Refuses("it is in another cast".into()),
                );
                worker.close(connection);
            }
            _ => drop(worker.close(connection)),
        }
        Ok(())
    }
}
