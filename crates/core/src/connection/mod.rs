//! One virtual connection: what the user asks of it, and the state all parts share.
//!
//! `transfers.rs` takes what is posted, `grant.rs` grants Blocks, `input.rs` takes control operations,
//! `data.rs` takes payload headers, `repair.rs` asks for what is missing, `output.rs` drains what is
//! owed to the peer in priority order, `timeouts.rs` owns what follows from silence, `admit.rs` asks
//! what may be granted while others receive too, `abort.rs` what follows when a Transfer is given up,
//! `roam.rs` when an address changes, `close.rs` what follows from the table of a connection's life.

mod abort;
mod admit;
mod close;
mod data;
mod grant;
mod input;
mod listen;
mod memory;
mod output;
mod protect;
mod remote;
mod repair;
mod roam;
mod serve;
mod timeouts;
mod transfers;

use alloc::boxed::Box;
pub use listen::{SERVICE_PORT, listen, reject};
pub use protect::HandshakeOutcome;
pub use roam::Stray;

use crate::congestion::Pacer;
use crate::credit::Credit;
use crate::ecn::Marks;
use crate::inbound::Inbox;
use crate::offers::Offers;
use crate::outbound::Outbox;
use crate::path::Path;
use crate::recovery::Recovery;
use crate::timers::{Timer, Timers};
use crate::watch::Watch;
use crate::{
    Admission, CloseReason, Config, Congestion, Counters, DropReason, Entropy, Event, Forecast,
    GrantsOnly, Instant, Life, PathState, TransferId, limits,
};
use abort::Ending;
use alloc::collections::VecDeque;
use core::fmt;
use protect::Protection;
use zerolane_wire::{Capabilities, Operation, Profile, Reason, Route};

/// Why a Transfer could not be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The connection is over or ending.
    Closed,
    /// [`limits::MAX_POSTED`] Transfers are under way in that direction, or all regions exported
    /// that can be.
    Full,
    /// A region of that name is exported already.
    NameTaken,
    /// The peer has no persistent memory.
    Unsupported,
    /// The word's offset is no multiple of 8.
    Misaligned,
    /// The place named lies outside the region.
    OutOfBounds,
    /// The region is not exported with that right.
    Denied,
    /// A message has more than [`limits::MAX_CONTROL`] bytes of control.
    ControlTooLong,
    /// A request of several pieces has none.
    NoPieces,
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PostError::Closed => f.write_str("the connection is closed"),
            PostError::Full => f.write_str("too many are posted already"),
            PostError::NameTaken => f.write_str("a region of that name is exported already"),
            PostError::Unsupported => f.write_str("the peer has no persistent memory"),
            PostError::Misaligned => f.write_str("the word's offset is no multiple of 8"),
            PostError::OutOfBounds => f.write_str("outside the region"),
            PostError::Denied => f.write_str("the region is not exported with that right"),
            PostError::ControlTooLong => {
                write!(f, "more than {} bytes of control", limits::MAX_CONTROL)
            }
            PostError::NoPieces => f.write_str("a request of no pieces"),
        }
    }
}

impl core::error::Error for PostError {}

/// One virtual connection. See the crate's documentation for the shape of its interface.
pub struct Connection {
    config: Config,
    life: Life,
    initiator: bool,
    route: Route,
    entropy: Entropy,
    /// The peer's capabilities, once known.
    peer: Option<Capabilities>,
    profile: Profile,
    next_id: TransferId,
    next_sync: u32,
    outbox: Outbox,
    inbox: Inbox,
    offers: Offers,
    endings: VecDeque<Ending>,
    control: VecDeque<Operation>,
    /// Size of the path probe to send, 0 for none.
    probe: usize,
    protection: Protection,
    /// Whether the message of the key exchange that it is time for is to be sent.
    handshake_owed: bool,
    handshake_tries: u32,
    /// Sync of the Request_Connection.
    handshake_sync: u32,
    /// Keep-alives in a row that nothing was heard after.
    unanswered_pings: u32,
    /// When the peer was last heard.
    heard: Instant,
    /// Where else it may be.
    candidate: Option<roam::Candidate>,
    close_reason: CloseReason,
    /// What Request_Disconnect says.
    disconnect_reason: Reason,
    /// The peer's STU payload, learned from what arrives.
    peer_stu: u32,
    timers: Timers,
    recovery: Recovery,
    congestion: Box<dyn Congestion>,
    pacer: Pacer,
    marks: Marks,
    /// Our place among the connections that receive here; none: we are the only one.
    admission: Option<Box<dyn Admission>>,
    /// Payload bytes that had to be moved.
    moved: u64,
    /// Payload bytes found missing when later ones were there.
    overtaken: u64,
    path: Path,
    memory: memory::Memory,
    /// What was overtaken.
    watch: Watch,
    seen: repair::Seen,
    credit: Credit,
    /// The window of the last grants.
    granted_window: u32,
    events: VecDeque<Event>,
    counters: Counters,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("life", &self.life)
            .field("route", &self.route)
            .field("profile", &self.profile)
            .field("timers", &self.timers)
            .field("outbox", &self.outbox)
            .field("memory", &self.memory)
            .field("counters", &self.counters)
            .field("congestion", &self.congestion)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// An Initiator without protection: the first [`Connection::poll_transmit`] gives its
    /// Request_Connection.
    pub fn connect(now: Instant, config: Config, entropy: Entropy) -> Connection {
        Connection::initiate(now, config, entropy, Protection::Plain)
    }

    fn initiate(
        now: Instant,
        config: Config,
        entropy: Entropy,
        protection: Protection,
    ) -> Connection {
        let route = Route {
            d_port: listen::SERVICE_PORT,
            s_port: entropy.port,
            d_key: 0,
        };
        let mut connection = Connection::new(now, config, entropy, route, Life::Connecting);
        connection.protection = protection;
        connection.request_connection(now);
        connection
            .timers
            .set(Timer::GiveUp, now + connection.config.connect_timeout);
        connection
    }

    fn new(now: Instant, config: Config, entropy: Entropy, route: Route, life: Life) -> Connection {
        let inbox = Inbox::new(config.slots.clamp(1, limits::MAX_SLOTS), config.buffer_log2);
        Connection {
            life,
            initiator: life == Life::Connecting,
            route,
            entropy,
            peer: None,
            profile: Profile::Extended,
            next_id: 1,
            next_sync: entropy.sync,
            outbox: Outbox::new(),
            inbox,
            offers: Offers::default(),
            endings: VecDeque::new(),
            control: VecDeque::new(),
            probe: 0,
            protection: Protection::Plain,
            handshake_owed: false,
            handshake_tries: 0,
            handshake_sync: entropy.sync,
            unanswered_pings: 0,
            heard: now,
            candidate: None,
            close_reason: CloseReason::Local,
            disconnect_reason: Reason::Normal,
            peer_stu: 0,
            timers: Timers::default(),
            recovery: Recovery::adaptive(),
            congestion: Box::new(GrantsOnly),
            pacer: Pacer::default(),
            marks: Marks::default(),
            admission: None,
            moved: 0,
            overtaken: 0,
            path: Path::new(config.encapsulation, config.path_datagram),
            memory: memory::Memory::new(entropy.key ^ entropy.sync),
            watch: Watch::default(),
            seen: repair::Seen::default(),
            credit: Credit::new(config.window, config.max_window),
            granted_window: 0,
            events: VecDeque::new(),
            counters: Counters::default(),
            config,
        }
    }

    /// Replaces the congestion controller that [`Config::control`] chose, once connected.
    pub fn set_congestion(&mut self, congestion: Box<dyn Congestion>) {
        self.congestion = congestion;
        self.congestion.on_new_path(self.recovery.min_rtt());
    }

    /// The largest datagram (header included) that the interface towards the peer carries, in
    /// bytes: at the start, and whenever the lane learns that it changed.
    pub fn set_path_datagram(&mut self, now: Instant, datagram: usize) {
        self.path.set_limit(datagram);
        if self.life == Life::Established {
            self.timers.set(Timer::Probe, now);
        }
    }

    /// When [`Connection::on_timeout`] is to be called next.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if event.is_some() {
            self.ready_again();
        }
        event
    }

    /// Where it stands.
    pub fn life(&self) -> Life {
        self.life
    }

    /// The profile, meaningful once connected.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What is known of the path, and what follows from it at `now`.
    pub fn path_state(&self, now: Instant) -> PathState {
        PathState {
            rtt: self.recovery.rtt(),
            rtt_deviation: self.recovery.deviation(),
            min_rtt: self.recovery.min_rtt(),
            reordering: self.watch.reordering(now),
            granted_ahead: self.credit.window(),
            controller: self.congestion.name(),
            congestion_window: self.congestion.window(),
            pace: self.congestion.pace(),
            under_way: self.outbox.flight.bytes_under_way(),
        }
    }

    /// The lane's socket buffer overflowed: more was granted than could be taken in time.
    pub fn on_overrun(&mut self, now: Instant) {
        self.credit.overrun(now);
    }

    /// Whether the lane is to mark its datagrams as ECN-capable: the controller reads the marks.
    pub fn wants_marks(&self) -> bool {
        self.congestion.wants_marks() && self.marks.may_work()
    }

    /// Datagrams came that the path could have marked ("congestion experienced", ECN), and `marked` of
    /// them are. To be told before they are shown.
    pub fn on_marks(&mut self, capable: u32, marked: u32) {
        self.counters.capable += u64::from(capable);
        self.counters.marked += u64::from(marked);
    }

    /// Payload bytes an STU sent at present.
    pub fn stu(&self) -> u32 {
        let path = (self.path.confirmed() as u32)
            .saturating_sub(self.around())
            .max(1);
        let peer = self.peer.map_or(u32::MAX, |peer| peer.max_stu);
        let limit = path.min(peer).max(1);
        match self.profile {
            Profile::Classic => crate::tiling::power_of_two_stu(limit),
            // Whole words keep the payload's place aligned as its source is.
            Profile::Extended if limit >= 64 => limit & !7,
            Profile::Extended => limit,
        }
    }

    /// Bytes around the payload of a datagram: header and seal.
    fn around(&self) -> u32 {
        (zerolane_wire::HEADER_LEN + self.config.seal) as u32
    }

    /// Length of the announced Transfer that waits for a receive, if one does.
    pub fn announced(&self) -> Option<u64> {
        if self.inbox.posted.is_empty() {
            self.inbox.waiting()
        } else {
            None
        }
    }

    /// Whether a posted send is not over.
    pub fn is_sending(&self) -> bool {
        self.outbox.len() > 0 || self.memory.is_working()
    }

    /// Whether Data carries checksums: either end asked for them.
    pub fn uses_checksums(&self) -> bool {
        self.config.checksum || self.peer.is_some_and(|peer| peer.checksum)
    }

    /// Whether a small operation waits to be sent.
    pub fn is_eager(&self) -> bool {
        self.memory.stream.has_unsent()
    }

    /// Tells how many events the user has not looked at, beyond those not polled: while they are too
    /// many, the peer is told to wait with its messages and immediates.
    pub fn set_unread(&mut self, unread: usize) {
        self.memory.unread = unread;
        self.ready_again();
    }

    /// Whether anything is under way: posted Transfers, or Ends to be confirmed.
    pub fn is_busy(&self) -> bool {
        self.outbox.len() + self.inbox.len() + self.offers.queue.len() + self.endings.len() > 0
            || self.memory.is_working()
    }

    /// Payload granted and not received yet, bytes.
    pub fn expected_payload(&self) -> u64 {
        self.inbox.grants.outstanding()
    }

    /// Predicts where the next `stus` STUs belong.
    pub fn forecast(&self, stus: u32, out: &mut Forecast) {
        self.inbox.grants.forecast(self.expected_stu(), stus, out);
    }

    /// Payload bytes of the STU expected next.
    pub fn expected_stu(&self) -> u32 {
        if self.peer_stu != 0 {
            self.peer_stu
        } else {
            self.stu()
        }
    }

    fn buffer_log2(&self) -> u8 {
        match self.profile {
            Profile::Classic => self.config.classic_buffer_log2,
            Profile::Extended => self.config.buffer_log2,
        }
    }

    fn open(&mut self, now: Instant, peer: Capabilities, profile: Profile) {
        self.peer = Some(peer);
        self.profile = profile;
        self.inbox.grants = crate::grants::Grants::new(self.buffer_log2());
        match profile {
            Profile::Classic => {
                // One grant at a time is all the schedule it has.
                self.admission = None;
                self.recovery
                    .fix_data_timeout(self.config.classic_data_timeout);
            }
            Profile::Extended => self.set_congestion(self.config.control.controller()),
        }
        self.heard = now;
    }

    /// Queues a control operation. All of them are repeated by a timer somewhere, so that when the
    /// queue is full the operation is only late.
    fn push_control(&mut self, operation: Operation) {
        if self.control.len() < limits::MAX_CONTROL_QUEUE {
            self.control.push_back(operation);
        } else {
            self.counters.count_drop(DropReason::Limit, 1);
        }
    }

    /// Something depends on the peer being alive.
    fn expect_peer(&mut self, now: Instant) {
        if !self.timers.runs(Timer::Peer) && self.life == Life::Established {
            self.unanswered_pings = 0;
            self.timers.set(Timer::Peer, now + self.keepalive());
        }
    }

    fn keepalive(&self) -> core::time::Duration {
        self.config.idle_timeout / limits::KEEPALIVES_PER_IDLE_TIMEOUT
    }

    /// Announcements and Reads of the peer that this end holds.
    fn slots(&self) -> u16 {
        self.config.slots.clamp(1, limits::MAX_SLOTS)
    }

    /// Announcements, or Reads, that the peer holds for us.
    fn peer_slots(&self) -> u16 {
        self.peer
            .map_or(1, |peer| peer.slots.min(limits::MAX_SLOTS))
    }

    /// Stops the program if anything grew beyond its limit. For tests and fuzzing.
    #[doc(hidden)]
    pub fn assert_bounded(&self) {
        let posted = 2 * limits::MAX_POSTED;
        assert!(self.control.len() <= limits::MAX_CONTROL_QUEUE);
        assert!(self.endings.len() <= limits::MAX_ENDINGS);
        assert!(self.outbox.len() <= posted && self.inbox.len() <= posted);
        assert!(self.watch.len() <= limits::MAX_WATCHED);
        self.outbox.assert_bounded();
        self.inbox.assert_bounded();
        self.offers.assert_bounded(self.slots());
        self.memory.assert_bounded();
    }
}

#[cfg(test)]
#[path = "../connection_tests/mod.rs"]
pub(crate) mod tests;
