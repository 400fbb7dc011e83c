//! Drives the engine of one node: carries its messages and chunks over connections.
//!
//! Each message of the engine is a Transfer. A chunk is a Transfer with its number as control data and its bytes as payload.
//! For each requested chunk, the node posts a receive into a slot of the pool. The payload stays in that slot while the node
//! checks it, writes it and forwards it. A chunk without a posted receive stays at its sender.

mod chunks;
mod membership;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use zerolane::failure::TransferError;
use zerolane::request::{Transfer, WorkKind};
use zerolane::worker::{ConnectionId, EndpointId, Event as Happened, Worker};
use zerolane::{Completion, Region};
use zerolane_cast::limits::MESSAGE_BYTES;
use zerolane_cast::{
    Action, Contact, Event, Fault, Header, Manifest, Message, Node, NodeId, Options, window_for,
};

use crate::contact::address_of;
use crate::error::Error;
use crate::invitation::{Word, confirms_last, is_word, key_of, parse, say_last};
use crate::jobs::Jobs;
use crate::limits::{
    BEATS, LONGEST_BEAT, MAX_SENDS, MAX_UNSENT_BYTES, MESSAGE_RECEIVES, PARTING, SUSPICIOUS_BEATS,
    WINDOW_BYTES, WORD_BYTES,
};
use crate::links::{Link, Links};
use crate::pace::Pace;
use crate::pool::{Chunk, Pool};
use crate::store::Store;

use membership::Only;
pub(crate) use membership::{Membership, random};

/// Options of a node over connections. The beat follows from the silence after which a node counts as dead.
pub(crate) fn with_silence(silence: Duration) -> Options {
    let beat = (silence / BEATS).min(LONGEST_BEAT);
    Options {
        fills: true,
        beat,
        suspicion: beat * SUSPICIOUS_BEATS,
        silence,
        ..Options::default()
    }
}

/// A node, its connections, its memory and its store.
pub(crate) struct Drive {
    pub(crate) worker: Worker,
    pub(crate) node: Node,
    /// Events of the node, for the caller to take.
    pub(crate) events: VecDeque<Event>,
    /// Events of connections that do not belong to a peer, for the caller to take.
    pub(crate) others: VecDeque<Happened>,
    /// At the source: the last word of each node that lost the connection of its invitation. The caller takes them. The
    /// source accepts only nodes that it invited, and they may all end at once.
    pub(crate) words: BTreeMap<NodeId, Option<Word>>,
    endpoint: EndpointId,
    membership: Membership,
    started: Instant,
    links: Links,
    memory: BTreeMap<u32, Chunk>,
    pool: Pool,
    pace: Pace,
    manifest: Option<Arc<Manifest>>,
    pub(crate) jobs: Jobs,
    /// The name of the source or target, for error messages.
    name: String,
    /// Bytes of chunks that peers have taken, and that came.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// Damages the chunks that it sends, for tests of receivers.
    #[cfg(test)]
    pub(crate) lies: bool,
}

/// Chunks in memory with which the stripes of a content do not wait for each other, as far as that may be.
fn window_of(header: &Header) -> u32 {
    let most = WINDOW_BYTES / u64::from(header.chunk_bytes.max(1));
    window_for(header.arity).min(u32::try_from(most).unwrap_or(u32::MAX))
}

impl Drive {
    /// Drives `node`, which listens for peers at `endpoint` of `worker`, over a store of this name.
    pub(crate) fn new(
        worker: Worker,
        endpoint: EndpointId,
        node: Node,
        membership: Membership,
        (store, name): (&Store, String),
        started: Instant,
    ) -> Result<Drive, Error> {
        let jobs = Jobs::start(store, &worker.waker())?;
        let mut drive = Drive {
            worker,
            node,
            events: VecDeque::new(),
            others: VecDeque::new(),
            words: BTreeMap::new(),
            endpoint,
            membership,
            started,
            links: Links::default(),
            memory: BTreeMap::new(),
            pool: Pool::new(0),
            pace: Pace::default(),
            manifest: None,
            jobs,
            name,
            sent: 0,
            received: 0,
            #[cfg(test)]
            lies: false,
        };
        drive.act()?;
        Ok(drive)
    }

    /// The time as the node counts it.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether the node started at least `time` ago.
    pub(crate) fn begun_for(&self, time: Duration) -> bool {
        self.now() >= time
    }

    /// How many peers there are.
    pub(crate) fn peers(&self) -> usize {
        self.links.len()
    }

    /// The manifest, once known.
    pub(crate) fn manifest(&self) -> Option<&Arc<Manifest>> {
        self.manifest.as_ref()
    }

    /// Waits at most `most` for an event, and handles it.
    pub(crate) fn turn(&mut self, most: Duration) -> Result<(), Error> {
        let beat = self.node.next_timeout().saturating_sub(self.now());
        self.worker.wait(Some(beat.min(most)))?;
        while let Some(event) = self.worker.next_event() {
            self.take(event)?;
            self.act()?;
        }
        while let Some(done) = self.jobs.next_done() {
            self.take_done(done)?;
            self.act()?;
        }
        let now = self.now();
        if now >= self.node.next_timeout() {
            self.node.timeout(now);
            self.act()?;
        }
        Ok(())
    }

    /// The source has called again: the node joins its group.
    pub(crate) fn reach_source(&mut self) -> Result<(), Error> {
        self.node.reach_source(self.now());
        self.act()
    }

    /// Says the last word to a peer whose node this one need not be connected to, which takes `most` at most; on which connection, if
    /// there was one.
    pub(crate) fn say_to(
        &mut self,
        contact: &Contact,
        word: &Word,
        most: Duration,
    ) -> Result<Option<ConnectionId>, Error> {
        let link = self.links.link_to(contact.id);
        let mut there = link.filter(|(_, it)| it.up).map(|(it, _)| it);
        let options = self.membership.options(Arc::new(Only(contact.id)));
        let address = address_of(contact, self.membership.interface);
        let address = address.filter(|_| there.is_none());
        let dialed = address.and_then(|it| self.worker.connect(it, &options).ok());
        let started = Instant::now();
        while let (Some(dialed), None, true) = (dialed, there, started.elapsed() < most) {
            self.worker.wait(Some(Duration::from_millis(20)))?;
            while let Some(event) = self.worker.next_event() {
                match event {
                    Happened::Connected { connection } if connection == dialed => {
                        there = Some(dialed);
                    }
                    Happened::Closed { connection, .. } if connection == dialed => return Ok(None),
                    _ => {}
                }
            }
        }
        if let Some(there) = there {
            say_last(&mut self.worker, there, word);
        }
        Ok(there)
    }

    /// Lets the connections end, for [`PARTING`] at most: a peer that is gone confirms nothing. The connection of `owed` has
    /// that long instead, until the last word that was said on it is confirmed.
    pub(crate) fn settle(
        &mut self,
        mut owed: Option<(ConnectionId, Duration)>,
    ) -> Result<(), Error> {
        for connection in self.worker.connection_ids().collect::<Vec<_>>() {
            self.worker.close(connection);
        }
        let started = Instant::now();
        while self.worker.connections() > 0
            && started.elapsed() < owed.map_or(PARTING, |(_, most)| most.max(PARTING))
        {
            self.worker.wait(Some(Duration::from_millis(20)))?;
            while let Some(event) = self.worker.next_event() {
                let paid = match event {
                    Happened::Completed {
                        connection,
                        completion,
                    } if confirms_last(&completion) => connection,
                    Happened::Closed { connection, .. } => connection,
                    _ => continue,
                };
                owed = owed.filter(|(connection, _)| *connection != paid);
            }
        }
        Ok(())
    }

    fn take(&mut self, event: Happened) -> Result<(), Error> {
        match event {
            Happened::Accepted {
                endpoint,
                connection,
            } if endpoint == self.endpoint => self.accept(connection),
            Happened::EndpointFailed { endpoint, error } if endpoint == self.endpoint => {
                Err(error.into())
            }
            Happened::Connected { connection } if self.links.get(connection).is_some() => {
                self.connected(connection)
            }
            Happened::Completed {
                connection,
                completion,
            } if self.links.get(connection).is_some() => self.completed(connection, completion),
            Happened::Closed { connection, .. } if self.links.get(connection).is_some() => {
                if let Some(link) = self.links.remove(connection) {
                    let id = link.id;
                    self.free(link);
                    self.node.disconnected(self.now(), id);
                }
                Ok(())
            }
            other => {
                self.others.push_back(other);
                Ok(())
            }
        }
    }

    /// A peer connected. Where both ends began, the connection of the one with the lower number stays.
    fn accept(&mut self, connection: ConnectionId) -> Result<(), Error> {
        let key = key_of(&mut self.worker, connection);
        let own = self.node.id();
        let Some(id) = key.map(|it| NodeId::of_key(&it.0)).filter(|it| *it != own) else {
            self.worker.close(connection);
            return Ok(());
        };
        if let Some((before, link)) = self.links.link_to(id) {
            if link.dialed && own < id {
                self.worker.close(connection);
                return Ok(());
            }
            self.drop_link(before);
        }
        self.links.add(connection, id, false);
        self.connected(connection)
    }

    fn connected(&mut self, connection: ConnectionId) -> Result<(), Error> {
        let Some(link) = self.links.get(connection) else {
            return Ok(());
        };
        link.up = true;
        let id = link.id;
        for _ in 0..MESSAGE_RECEIVES {
            self.listen(
                connection,
                Region::anonymous(MESSAGE_BYTES).map_err(zerolane::Error::from)?,
            );
        }
        self.node.connected(self.now(), id);
        Ok(())
    }

    fn listen(&mut self, connection: ConnectionId, region: Region) {
        // One that is over tells so by itself.
        let there = self.worker.connection(connection);
        let posted = there.and_then(|it| it.post_recv(region).ok());
        if let (Some(id), Some(link)) = (posted, self.links.get(connection)) {
            link.messages.posted(id);
        }
    }

    fn drop_link(&mut self, connection: ConnectionId) {
        if let Some(link) = self.links.remove(connection) {
            self.free(link);
        }
        self.worker.close(connection);
    }

    fn free(&mut self, link: Link) {
        for (_, sending) in link.sending {
            if sending.from_store {
                self.pool.retire(sending.content);
            }
        }
    }

    fn completed(&mut self, connection: ConnectionId, completion: Completion) -> Result<(), Error> {
        let now = self.now();
        let Some(link) = self.links.get(connection) else {
            return Ok(());
        };
        let id = link.id;
        match completion.kind() {
            WorkKind::Receive => {
                let (transfer, result) = (completion.id, completion.result);
                let region = completion.into_region()?;
                link.messages
                    .completed(transfer, result.map(|len| (region, len)));
                self.take_messages(connection, id);
            }
            WorkKind::Send => {
                let bytes = completion.context as usize;
                link.unsent = link.unsent.saturating_sub(1);
                link.unsent_bytes = link.unsent_bytes.saturating_sub(bytes);
            }
            WorkKind::MessageReceived => {
                link.slots.retain(|it| *it != completion.id);
                match completion.result {
                    Ok(len) => self.take_chunk(connection, id, completion, len)?,
                    Err(_) => self.pool.give(completion.into_region()?),
                }
            }
            WorkKind::Message => {
                let chunk = completion.context as u32;
                let arrived = completion.result.is_ok();
                drop(completion);
                if let Some(sending) = link.sending.remove(&chunk) {
                    self.sent += if arrived {
                        sending.content.bytes().len() as u64
                    } else {
                        0
                    };
                    if sending.from_store {
                        self.pool.retire(sending.content);
                    }
                    self.node.sent(now, id, chunk);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes the messages that are there, up to the first that is not.
    fn take_messages(&mut self, connection: ConnectionId, id: NodeId) {
        while let Some(link) = self.links.get(connection)
            && let Some(received) = link.messages.pop()
        {
            match received {
                Ok((region, len)) => {
                    self.take_message(connection, id, &region[..len]);
                    self.listen(connection, region);
                }
                Err(TransferError::MessageTooLarge { .. }) => {
                    self.node.fault(self.now(), id, Fault::Garbage)
                }
                Err(_) => {}
            }
        }
    }

    fn take_message(&mut self, connection: ConnectionId, id: NodeId, bytes: &[u8]) {
        let now = self.now();
        if self.node.is_source() && bytes.len() <= WORD_BYTES && is_word(bytes) {
            self.words.insert(id, parse(bytes));
            return;
        }
        match Message::parse(bytes) {
            Ok(message) => {
                if let (Message::Missing(chunks), Some(link)) =
                    (&message, self.links.get(connection))
                {
                    link.wanted.retain(|it| !chunks.contains(it));
                }
                self.node.message(now, id, message);
            }
            Err(_) => self.node.fault(now, id, Fault::Garbage),
        }
    }

    /// Executes the node's actions.
    fn act(&mut self) -> Result<(), Error> {
        if let (None, Some(manifest)) = (&self.manifest, self.node.manifest()) {
            let header = manifest.header();
            self.pool = Pool::new(header.chunk_bytes as usize);
            self.manifest = Some(Arc::new(manifest.clone()));
            self.node.widen(self.now(), window_of(&header));
        }
        while let Some(action) = self.node.poll_action() {
            self.do_one(action)?;
        }
        Ok(())
    }

    fn do_one(&mut self, action: Action) -> Result<(), Error> {
        match action {
            Action::Connect(contact) => self.dial(&contact),
            Action::Disconnect(id) => {
                if let Some(connection) = self.links.to(id) {
                    self.drop_link(connection);
                }
            }
            Action::Send { to, message } => self.send(to, &message)?,
            Action::SendChunk {
                to,
                chunk,
                from_store: false,
            } => match self.memory.get(&chunk).cloned() {
                Some(content) => self.send_chunk(to, chunk, content, false),
                None => self.node.sent(self.now(), to, chunk),
            },
            Action::SendChunk {
                to,
                chunk,
                from_store: true,
            } => {
                if let Some(manifest) = self.manifest.clone() {
                    self.jobs.read(to, chunk, self.pool.take()?, manifest);
                }
            }
            Action::Withdraw { to, chunk } => self.withdraw(to, chunk),
            Action::Write(chunk) => {
                if let (Some(content), Some(manifest)) = (self.memory.get(&chunk), &self.manifest) {
                    let offset = u64::from(chunk) * u64::from(manifest.header().chunk_bytes);
                    self.jobs.write(chunk, offset, content.clone());
                }
            }
            Action::Fill(chunk) => {
                if let Some(header) = self.manifest.as_ref().map(|it| it.header()) {
                    let offset = u64::from(chunk) * u64::from(header.chunk_bytes);
                    self.jobs.fill(chunk, offset, header.bytes_of(chunk));
                }
            }
            Action::Forget(chunk) => {
                if let Some(content) = self.memory.remove(&chunk) {
                    self.pool.retire(content);
                }
            }
            Action::Tell(event) => self.events.push_back(event),
        }
        Ok(())
    }

    fn dial(&mut self, contact: &Contact) {
        let id = contact.id;
        if let Some((_, link)) = self.links.link_to(id) {
            if link.up {
                self.node.connected(self.now(), id);
            }
            return;
        }
        let options = self.membership.options(Arc::new(Only(id)));
        let address = address_of(contact, self.membership.interface);
        let dialed = address.map(|it| self.worker.connect(it, &options));
        match dialed {
            Some(Ok(connection)) => self.links.add(connection, id, true),
            _ => self.node.disconnected(self.now(), id),
        }
    }

    fn send(&mut self, to: NodeId, message: &Message) -> Result<(), Error> {
        let Some((connection, link)) = self.links.link_to(to) else {
            return Ok(());
        };
        match message {
            Message::Request(chunks) => link.wanted.extend(chunks),
            Message::Cancel(chunks) => link.wanted.retain(|it| !chunks.contains(it)),
            _ => {}
        }
        let bytes = message.encode();
        link.unsent += 1;
        link.unsent_bytes += bytes.len();
        let floods = link.unsent > MAX_SENDS || link.unsent_bytes > MAX_UNSENT_BYTES;
        // Post slots first, so that requested chunks find their place.
        self.post_slots(connection)?;
        if let Some(there) = self.worker.connection(connection) {
            // A connection that is over tells so by itself.
            let context = bytes.len() as u64;
            let _ = there.post(Transfer::new(Region::from_vec(bytes)).context(context));
        }
        if floods {
            // It takes nothing.
            self.node.fault(self.now(), to, Fault::Flood);
        }
        Ok(())
    }
}
