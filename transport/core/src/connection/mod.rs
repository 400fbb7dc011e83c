//! Implements one virtual connection: its entries, and the order in which its parts act.
//!
//! An entry sets the time, lets one part act, and settles the resulting debts ([`Debt`]).
//!
//! - `control.rs` takes control operations.
//! - `data.rs` takes payload headers.
//! - `transmit.rs` returns transmissions in priority order.
//! - `timeouts.rs` handles expired timers.
//! - `post.rs` takes the user's requests.
//! - `paths.rs` adds and removes paths.
//! - `close.rs` cancels, and handles changes of the connection's life.
//! - `listen.rs` and `protect.rs` make connections; `restart.rs` restarts one.

mod close;
mod control;
mod data;
mod incoming;
mod listen;
mod paths;
mod post;
mod protect;
mod restart;
mod timeouts;
mod transmit;

pub use listen::{listen, reject};
pub use post::Ahead;
pub use protect::HandshakeOutcome;

use crate::admission::{Admission, FastAnswer};
use crate::config::{Config, Entropy};
use crate::context::{Context, Debt};
use crate::counters::{Counters, DropReason, PathState};
use crate::event::Event;
use crate::limits;
use crate::one_sided::{Initiator, Responder};
use crate::receiving::{Claim, Forecast, HoldOrder, Receiving};
use crate::sending::Sending;
use crate::session::{Life, PathValidation, Protection, Session};
use crate::time::Instant;
use crate::timers::Timer;
use crate::transfer::TransferId;
use crate::transmit::DataBurst;
use alloc::boxed::Box;
use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use zerolane_wire::{Capabilities, Flags, Header, Op, Profile, Route, Train};

/// Progress of the posted work, for comparison: see [`Connection::sending_mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendingMark {
    /// Payload bytes sent for the first time.
    left: u64,
    /// Transfers that are not over.
    unfinished: usize,
    /// Number of the first unconfirmed small operation, and the count of other pending requests.
    operations: (u32, usize),
}

/// One virtual connection. See the crate's documentation for its interface.
pub struct Connection {
    cx: Context,
    session: Session,
    sending: Sending,
    receiving: Receiving,
    initiator: Initiator,
    responder: Responder,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("life", &self.session.life())
            .field("route", &self.cx.route)
            .field("profile", &self.cx.profile)
            .field("timers", &self.cx.timers)
            .field("sending", &self.sending)
            .field("receiving", &self.receiving)
            .field("initiator", &self.initiator)
            .field("responder", &self.responder)
            .field("counters", &self.cx.counters)
            .finish_non_exhaustive()
    }
}

/// Construction and settling.
impl Connection {
    /// An Initiator without protection: the first [`Connection::poll_transmit`] returns its Request_Connection.
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
            d_port: config.service_port,
            s_port: entropy.port,
            d_key: 0,
        };
        let session = Session::new(now, Life::Connecting, entropy, protection);
        let mut connection = Connection::new(now, config, entropy, route, session);
        let Connection { cx, session, .. } = &mut connection;
        session.request_connection(cx);
        let give_up = cx.now + cx.config.connect_timeout;
        cx.timers.set(Timer::GiveUp, give_up);
        connection
    }

    fn new(
        now: Instant,
        config: Config,
        entropy: Entropy,
        route: Route,
        session: Session,
    ) -> Connection {
        let cx = Context::new(now, config, route, entropy.sync);
        Connection {
            session,
            sending: Sending::new(cx.config.max_rate),
            receiving: Receiving::new(&cx),
            initiator: Initiator::default(),
            responder: Responder::new(entropy.key ^ entropy.sync),
            cx,
        }
    }

    /// Applies the peer's capabilities, once known.
    fn open(&mut self, peer: Capabilities, profile: Profile) {
        self.cx.peer = Some(peer);
        self.cx.profile = profile;
        if profile == Profile::Classic {
            self.cx.config = self.cx.config.of_classic();
        }
        self.receiving.open(&self.cx);
        self.initiator.open(&self.cx);
        match profile {
            Profile::Classic => self
                .cx
                .recovery
                .fix_data_timeout(self.cx.config.classic_data_timeout),
            Profile::Extended => {
                self.cx.links.most = self.cx.config.paths.min(peer.paths).into();
                self.sending.number_paths(&self.cx);
                let controller = self.cx.config.control.controller();
                self.sending.set_congestion(&self.cx, controller);
            }
        }
    }

    /// Settles the debts of the entry, each once, in the order of [`Debt`]: no debt creates an earlier one. Debts of a
    /// connection that is not open wait until it is.
    fn settle(&mut self) {
        let Connection {
            cx,
            session,
            sending,
            receiving,
            initiator,
            responder,
        } = self;
        if !session.is_established() {
            return;
        }
        if sending.waits_to_finish() || receiving.finished().is_some() {
            cx.owe(Debt::Finish);
        }
        while let Some(debt) = cx.next_debt() {
            cx.mark_dirty();
            match debt {
                Debt::Progress => receiving.on_peer_progress(cx),
                Debt::Ready => responder.ready_again(cx, receiving),
                Debt::Match => receiving.match_announcements(cx),
                Debt::Offer => sending.match_offers(cx),
                Debt::Start => initiator.start(cx, sending, receiving),
                Debt::Announce => sending.announce(cx),
                Debt::Finish => {
                    if sending.waits_to_finish()
                        && let Some(number) = initiator.number_behind_messages()
                    {
                        sending.finish(cx, number);
                    }
                    receiving.finish_receives(cx);
                    responder.finish_receives(cx, receiving);
                }
                Debt::Read => receiving.ask_reads(cx),
                Debt::Grant => receiving.grant(cx, responder.expected()),
                Debt::Show => responder.show_immediates(cx, receiving),
                Debt::Peer => {
                    session.expect_peer(cx);
                    cx.watch_links();
                }
            }
        }
    }

    /// When to call [`Connection::on_timeout`] next.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.cx.timers.next()
    }

    /// Whether [`Connection::on_timeout`] is due now.
    #[inline]
    pub fn is_due(&mut self, now: Instant) -> bool {
        self.cx.timers.has_struck(now)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.cx.events.pop_front();
        // The event makes room for another.
        if event.is_some() && self.responder.waits_for_room() {
            self.cx.owe(Debt::Ready);
            self.settle();
        }
        event
    }
}

/// Path and link.
impl Connection {
    /// Replaces [`Config::max_rate`] from now on.
    pub fn set_max_rate(&mut self, max_rate: Option<u64>) {
        self.cx.mark_dirty();
        self.sending.set_max_rate(max_rate);
    }

    /// Sets the largest datagram (header included) that the interface towards the peer carries, in bytes. Called
    /// whenever the lane may have learnt of a change.
    pub fn set_path_datagram(&mut self, now: Instant, datagram: usize) {
        if self.cx.links.selected > 0 {
            self.cx.links.set_limit(now, datagram);
            return self.cx.arm_links();
        }
        if self.cx.path.set_limit(datagram) && self.session.is_established() {
            self.cx.timers.set(Timer::PathProbe, now);
        }
    }

    /// Length of the datagrams that the first path carries, known or assumed, header included. A longer datagram that
    /// is not a probe was built before the path shrank: the lane must let routers fragment it.
    pub fn path_datagram(&self) -> usize {
        self.cx.path.confirmed()
    }

    /// Bytes of the longest datagram of `burst`, seal included.
    pub fn datagram_of(&self, burst: &DataBurst) -> u32 {
        match burst.train {
            Some(_) => burst.stu,
            None => burst.stu.min(burst.span.len as u32) + self.cx.overhead(),
        }
    }

    /// Whether a datagram of `datagram` bytes, seal included, exceeds the selected path's size.
    pub fn exceeds_path(&self, datagram: u32) -> bool {
        datagram as usize > self.cx.size_of(self.cx.links.selected).confirmed()
    }

    /// The lane's socket buffer overflowed: more was granted than this end could receive in time.
    pub fn on_overrun(&mut self, now: Instant) {
        self.cx.mark_dirty();
        self.receiving.on_overrun(now);
    }

    /// Whether the lane must send ECN-capable datagrams: the controller reads the marks.
    pub fn wants_marks(&self) -> bool {
        self.sending.wants_marks(&self.cx)
    }

    /// The lane received `capable` ECN-capable datagrams, `marked` of them "congestion experienced". Must be called
    /// before those datagrams are passed in.
    pub fn on_marks(&mut self, capable: u32, marked: u32) {
        self.cx.counters.ecn_capable += u64::from(capable);
        self.cx.counters.ecn_marked += u64::from(marked);
    }

    /// Whether much payload is in flight, in either direction: [`limits::TIMED_BYTES`]. Then the lane should report how
    /// long datagrams waited ([`Connection::on_waited`]), which separates the round trip from the lateness of the ends.
    pub fn is_bulk_in_flight(&self) -> bool {
        let bulk = limits::TIMED_BYTES;
        self.receiving.expected_payload() >= bulk || self.sending.bytes_in_flight() >= bulk
    }

    /// The datagrams passed in from now on waited this long in the socket: this end was descheduled, or busy. Must be
    /// called first; without it, datagrams count as just arrived.
    pub fn on_waited(&mut self, waited: Duration) {
        self.cx.waited = waited;
    }

    /// Shares this end's link with the other members of a scheduler. This bounds grants in addition to the connection's
    /// own window. No effect on a closed connection, on the classic profile, which grants one Block at a time, or in
    /// shared memory, which has no link.
    pub fn set_admission(&mut self, member: impl Admission + 'static) {
        self.cx.mark_dirty();
        let excluded = self.cx.peer.is_some() && !self.cx.is_scheduled();
        if self.session.may_post() && !excluded {
            self.receiving.set_admission(Box::new(member));
        }
    }

    /// Requests that this connection receives in fast mode: at full speed, with the other senders to this end at a
    /// trickle (Fast_Req of PAPERS P2.4). Without other members, or without a scheduler, it is fast in any case.
    pub fn request_fast(&mut self, now: Instant) -> FastAnswer {
        self.cx.enter(now);
        let answer = self.receiving.request_fast(&mut self.cx);
        self.settle();
        answer
    }

    /// Sets the connection's share of this end's link when others receive too, relative to theirs: 1 unless set, 0
    /// counts as 1.
    pub fn set_weight(&mut self, weight: u32) {
        self.cx.mark_dirty();
        self.receiving.set_weight(weight);
    }

    /// Whether the peer has been silent long enough to have moved.
    pub fn is_peer_silent(&self, now: Instant) -> bool {
        self.session.is_peer_silent(&self.cx, now)
    }

    /// A datagram, or at least its first 72 bytes, with our key came `from` an address other than the peer's. `nonce`
    /// must be unpredictable.
    pub fn on_new_address(
        &mut self,
        now: Instant,
        from: SocketAddr,
        nonce: u32,
        datagram: &[u8],
    ) -> PathValidation {
        self.cx.enter(now);
        let validation = self
            .session
            .on_new_address(&mut self.cx, from, nonce, datagram);
        if validation == PathValidation::Validated {
            self.on_new_path(now);
        }
        validation
    }

    /// The way to the peer changed: an end has a new address. Its size is searched again.
    pub fn on_new_path(&mut self, now: Instant) {
        self.cx.enter(now);
        self.cx.path.begin();
        self.session.on_new_path(&mut self.cx);
        self.sending.on_new_path();
    }
}

/// State.
impl Connection {
    /// The state of the connection.
    pub fn life(&self) -> Life {
        self.session.life()
    }

    /// The profile, meaningful once connected.
    pub fn profile(&self) -> Profile {
        self.cx.profile
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.cx.counters
    }

    /// The state of the path at `now`.
    pub fn path_state(&self, now: Instant) -> PathState {
        self.state_of_path(now, 0)
    }

    fn state_of_path(&self, now: Instant, path: usize) -> PathState {
        let recovery = self.cx.recovery_of(path);
        let mut state = PathState {
            life: self.cx.links.life(path),
            bytes_received: self.receiving.received_by(path),
            rtt: recovery.rtt(),
            rtt_deviation: recovery.deviation(),
            min_rtt: recovery.min_rtt(),
            mtu: self.cx.size_of(path).mtu(),
            mtu_probed: self.cx.size_of(path).is_settled(),
            too_narrow: self.cx.size_of(path).is_too_narrow(),
            ..PathState::default()
        };
        self.sending.describe(path, &mut state);
        self.receiving.describe(now, &mut state);
        state
    }

    /// Payload bytes of an STU sent at present.
    pub fn stu(&self) -> u32 {
        self.cx.stu()
    }

    /// Length of the announced Transfer that waits for a receive, if one does.
    pub fn announced(&self) -> Option<u64> {
        self.receiving.announced()
    }

    /// Bytes at the start of what `id` receives or gets that are verified and in place. They are not written again,
    /// except by a repair that also covers missing bytes. Never decreases. `None` if `id` is not receiving.
    pub fn arrived(&self, id: TransferId) -> Option<u64> {
        self.receiving.arrived(&self.cx, id)
    }

    /// The same of a failed request, available once, after its [`Event::Failed`] was polled.
    pub fn take_arrived(&mut self, id: TransferId) -> u64 {
        self.receiving.take_arrived(id)
    }

    /// Whether a posted send is pending, or the peer does not yet know that sending finished.
    pub fn is_sending(&self) -> bool {
        self.sending.len() > 0
            || self.initiator.is_working()
            || self.sending.is_finish_unconfirmed()
    }

    /// The progress of posted work. It differs from an earlier mark if the peer took or confirmed any of it since.
    /// Retransmissions do not change it.
    pub fn sending_mark(&self) -> SendingMark {
        SendingMark {
            left: self.sending.left(),
            unfinished: self.sending.len(),
            operations: self.initiator.unconfirmed(),
        }
    }

    /// Whether granted payload waits to be sent.
    #[cfg(test)]
    pub(crate) fn has_data(&self) -> bool {
        self.session.is_established() && self.sending.has_data()
    }

    /// Number of the newest burst that the peer reported, 0 before the first. Earlier bursts have arrived or are lost.
    pub fn seen_burst(&self) -> u32 {
        self.sending.sent_log(self.cx.links.selected).seen()
    }

    /// Whether Data carries checksums: either end asked for them.
    pub fn uses_checksums(&self) -> bool {
        self.cx.uses_checksums()
    }

    /// Whether Data marked [`Flags::FRAMES`] is accepted. The lane passes in each frame as the Data that it would be on
    /// its own.
    ///
    /// [`Flags::FRAMES`]: zerolane_wire::Flags::FRAMES
    pub fn takes_frames(&self) -> bool {
        self.cx.takes_frames()
    }

    /// Whether anything that needs no grant waits to be sent: a small operation, or eager payload.
    pub fn is_eager(&self) -> bool {
        self.initiator.has_unsent() || self.session.is_established() && self.sending.has_eager()
    }

    /// Whether anything depends on the peer: posted Transfers and requests, waiting receives, unconfirmed Ends.
    pub fn is_busy(&self) -> bool {
        let receives = self.receiving.len() + self.responder.receives();
        self.sending.posted() + receives + self.cx.endings.len() > 0 || self.initiator.is_working()
    }

    /// Whether a silent peer must be asked for an answer.
    fn watches_peer(&self) -> bool {
        self.cx.config.keep_alive || self.is_busy()
    }

    /// Payload granted and not received yet, bytes.
    pub fn expected_payload(&self) -> u64 {
        self.receiving.expected_payload()
    }

    /// The next order for payload that the lane holds ([`Placement::Hold`](crate::Placement)). Must be obeyed in order,
    /// before the lane polls events or transmits.
    pub fn poll_hold(&mut self) -> Option<HoldOrder> {
        self.receiving.next_order()
    }

    /// Predicts where the next `stus` STUs belong.
    pub fn forecast(&self, stus: u32, out: &mut Forecast) {
        self.receiving.forecast(&self.cx, stus, out);
    }

    /// Sets whether the lane accepts trains: the kernel must merge the datagrams of a burst, so that the lane can
    /// verify them as a whole. The next grants tell the peer.
    pub fn set_takes_trains(&mut self, takes: bool) {
        self.cx.mark_dirty();
        self.receiving.set_takes_trains(&self.cx, takes);
    }

    /// Sets whether the lane accepts trains of operations although it has not seen yet that the kernel merges datagrams:
    /// small operations alone would never show it.
    pub fn set_tries_trains(&mut self, tries: bool) {
        self.cx.mark_dirty();
        self.receiving.set_tries_trains(&self.cx, tries);
    }

    /// Whether payload may come as trains, so that datagrams may lack a header.
    pub fn expects_trains(&self) -> bool {
        self.receiving.expects_trains() || self.responder.expects_trains()
    }

    /// Longest datagram that the peer takes, bytes; 0: none.
    pub fn max_datagram(&self) -> u32 {
        self.cx.max_datagram()
    }

    /// Bytes of datagrams that wait to leave.
    pub fn datagram_bytes(&self) -> u64 {
        self.sending.datagram_bytes()
    }

    /// Whether ungranted payload may come besides eager Data and puts: the answer to a single-datagram Get, or to a
    /// FetchOp. Its header has Bufx and Offset 0, or MEMORY.
    pub fn awaits_answers(&self) -> bool {
        self.initiator.awaits_answers()
    }

    /// Whether `header` has port and key of this connection.
    pub fn owns(&self, header: &Header) -> bool {
        self.session.owns(&self.cx, header.d_port, header.d_key)
    }

    /// Finds the place of `len` bytes of granted payload with `header`, a Data header, of which none has arrived. Marks
    /// nothing as received: [`on_placed`](Connection::on_placed) does.
    ///
    /// # Errors
    /// Why there is no place.
    pub fn claim(&self, header: &Header, len: u32) -> Result<Claim, DropReason> {
        let others = [Flags::EAGER, Flags::FRAMES, Flags::TRAIN, Flags::DATAGRAM];
        let granted = header.op == Op::Data && !others.iter().any(|&it| header.flags.contains(it));
        if !granted || !self.session.is_established() {
            return Err(DropReason::Unexpected);
        }
        if !self.owns(header) {
            return Err(DropReason::WrongKey);
        }
        let claim = self.receiving.claim(header, len)?;
        match self.receiving.is_missing(&claim) {
            true => Ok(claim),
            false => Err(DropReason::Duplicate),
        }
    }

    /// Finds the place of a train's payload. The header may be forged: nothing is marked.
    ///
    /// # Errors
    /// As [`Connection::claim`], or `header` is not that of a train.
    pub fn claim_train(&self, header: &Header) -> Result<Claim, DropReason> {
        let train = match Train::of(header) {
            Ok(Some(train)) if !header.flags.contains(Flags::FRAMES) => train,
            _ => return Err(DropReason::Malformed),
        };
        self.claim(&Train::data(header), train.len)
    }

    /// Payload bytes of the STU expected next.
    pub fn expected_stu(&self) -> u32 {
        self.receiving.expected_stu(&self.cx)
    }

    /// Sets the number of events that the user has not read, beyond those not polled. While it is too high, the peer's
    /// messages and immediates are deferred.
    pub fn set_unread(&mut self, unread: usize) {
        if self.responder.set_unread(&mut self.cx, unread) {
            self.settle();
        }
    }

    /// Sets whether the peer's puts, gets, atomic operations, messages and requests for regions wait. Their outcome
    /// depends on what the program exports and posts, so they wait until it has taken the connection.
    pub fn defer_operations(&mut self, now: Instant, defers: bool) {
        self.cx.enter(now);
        self.responder.defer(&mut self.cx, defers);
        self.settle();
    }

    /// Panics if anything grew beyond its limit. For tests and fuzzing.
    #[doc(hidden)]
    pub fn assert_bounded(&self) {
        self.cx.assert_bounded();
        self.sending.assert_bounded(self.cx.slots());
        self.receiving.assert_bounded(&self.cx);
        self.receiving.assert_messages(self.responder.receives());
        self.initiator.assert_bounded();
        self.responder.assert_bounded();
    }
}

#[cfg(test)]
#[path = "../connection_tests/mod.rs"]
pub(crate) mod tests;
