//! One virtual connection: its entries, and the order in which the four parts act.
//!
//! An entry sets the time, lets one part act, and settles what that part owes ([`Debt`]). `control.rs` takes
//! control operations, `data.rs` takes payload headers, `transmit.rs` gives what leaves in priority order,
//! `timeouts.rs` lets timers strike, `post.rs` takes what users ask for, `close.rs` does what follows from
//! the connection's life, `listen.rs` and `protect.rs` make connections, `restart.rs` makes one anew.

mod close;
mod control;
mod data;
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

use crate::context::{Context, Debt};
use crate::one_sided::OneSided;
use crate::receiving::Receiving;
use crate::sending::Sending;
use crate::session::{Protection, Session};
use crate::timers::Timer;
use crate::{
    Admission, Config, Congestion, Counters, DropReason, Entropy, Event, FastAnswer, Forecast,
    HoldOrder, Instant, Life, PathState, PathValidation, Span, TransferId, limits,
};
use alloc::boxed::Box;
use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use zerolane_wire::{Capabilities, Flags, Header, Op, Profile, Route};

/// How far what is posted has come, to be compared: see [`Connection::sending_mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendingMark {
    /// Payload bytes that left for the first time.
    left: u64,
    /// Transfers that are not over.
    unfinished: usize,
    /// The first small operation that is not confirmed, and what else is not over.
    operations: (u32, usize),
}

/// One virtual connection. See the crate's documentation for the shape of its interface.
pub struct Connection {
    cx: Context,
    session: Session,
    sending: Sending,
    receiving: Receiving,
    one_sided: OneSided,
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
            .field("one_sided", &self.one_sided)
            .field("counters", &self.cx.counters)
            .finish_non_exhaustive()
    }
}

/// Making and settling.
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
            one_sided: OneSided::new(entropy.key ^ entropy.sync),
            cx,
        }
    }

    /// The peer's capabilities are known.
    fn open(&mut self, peer: Capabilities, profile: Profile) {
        self.cx.peer = Some(peer);
        self.cx.profile = profile;
        self.receiving.open(&self.cx);
        self.one_sided.open(&self.cx);
        match profile {
            Profile::Classic => self
                .cx
                .recovery
                .fix_data_timeout(self.cx.config.classic_data_timeout),
            Profile::Extended => {
                self.cx.links.most = self.cx.config.paths.min(peer.paths).into();
                self.sending.number_paths(&self.cx);
                self.set_congestion(self.cx.config.control.controller());
            }
        }
    }

    /// Does what the entry owes, each debt once, in the order of [`Debt`]: none makes one that comes before
    /// it. What is owed by a connection that is not open waits until it is.
    fn settle(&mut self) {
        let Connection {
            cx,
            session,
            sending,
            receiving,
            one_sided,
        } = self;
        if !session.is_established() {
            return;
        }
        if sending.waits_to_finish() || receiving.finished().is_some() {
            cx.owe(Debt::Finish);
        }
        while let Some(debt) = cx.next_debt() {
            cx.stir();
            match debt {
                Debt::Progress => receiving.on_peer_progress(cx),
                Debt::Ready => one_sided.ready_again(cx, receiving),
                Debt::Match => receiving.match_announcements(cx),
                Debt::Offer => sending.match_offers(cx),
                Debt::Start => one_sided.start(cx, sending, receiving),
                Debt::Announce => sending.announce(cx),
                Debt::Finish => {
                    if sending.waits_to_finish()
                        && let Some(number) = one_sided.number_behind_messages()
                    {
                        sending.finish(cx, number);
                    }
                    receiving.finish_receives(cx);
                    one_sided.finish_receives(cx, receiving);
                }
                Debt::Read => receiving.ask_reads(cx),
                Debt::Grant => receiving.grant(cx, one_sided.expected()),
                Debt::Show => one_sided.show_immediates(cx, receiving),
                Debt::Peer => {
                    session.expect_peer(cx);
                    cx.watch_links();
                }
            }
        }
    }

    /// When [`Connection::on_timeout`] is to be called next.
    pub fn next_timeout(&self) -> Option<Instant> {
        self.cx.timers.next()
    }

    /// Whether [`Connection::on_timeout`] is to be called now.
    #[inline]
    pub fn is_due(&mut self, now: Instant) -> bool {
        self.cx.timers.has_struck(now)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.cx.events.pop_front();
        // There is room for one more.
        if event.is_some() && self.one_sided.waits_for_room() {
            self.cx.owe(Debt::Ready);
            self.settle();
        }
        event
    }
}

/// The path and the link.
impl Connection {
    /// Replaces the congestion controller that [`Config::control`] chose, once connected.
    pub fn set_congestion(&mut self, congestion: Box<dyn Congestion>) {
        self.cx.stir();
        self.sending.set_congestion(&self.cx, congestion);
    }

    /// Replaces [`Config::max_rate`], from now on.
    pub fn set_max_rate(&mut self, max_rate: Option<u64>) {
        self.cx.stir();
        self.sending.set_max_rate(max_rate);
    }

    /// The largest datagram (header included) that the interface towards the peer carries, in
    /// bytes: at the start, and whenever the lane learns that it changed.
    pub fn set_path_datagram(&mut self, now: Instant, datagram: usize) {
        if self.cx.links.selected > 0 {
            self.cx.links.set_limit(now, datagram);
            return self.cx.arm_links();
        }
        self.cx.path.set_limit(datagram);
        if self.session.is_established() {
            self.cx.timers.set(Timer::PathProbe, now);
        }
    }

    /// Length of the datagrams that the first path is known, or thought, to carry, header included. What is longer, and no probe, cannot
    /// be cut any more and is to be sent so that routers may take it apart.
    pub fn path_datagram(&self) -> usize {
        self.cx.path.confirmed()
    }

    /// Bytes of the longest datagram of `burst`, seal included.
    pub fn datagram_of(&self, burst: &crate::DataBurst) -> u32 {
        match burst.train {
            Some(_) => burst.stu,
            None => burst.stu.min(burst.span.len as u32) + self.cx.overhead(),
        }
    }

    /// Whether a datagram of so many bytes, seal included, is longer than that of the selected path.
    pub fn exceeds_path(&self, datagram: u32) -> bool {
        datagram as usize > self.cx.size_of(self.cx.links.selected).confirmed()
    }

    /// The lane's socket buffer overflowed: more was granted than could be taken in time.
    pub fn on_overrun(&mut self, now: Instant) {
        self.cx.stir();
        self.receiving.on_overrun(now);
    }

    /// Whether the lane is to mark its datagrams as ECN-capable: the controller reads the marks.
    pub fn wants_marks(&self) -> bool {
        self.sending.wants_marks(&self.cx)
    }

    /// Datagrams came that the path could have marked ("congestion experienced", ECN), and `marked` of
    /// them are. To be told before they are shown.
    pub fn on_marks(&mut self, capable: u32, marked: u32) {
        self.cx.counters.capable += u64::from(capable);
        self.cx.counters.marked += u64::from(marked);
    }

    /// Whether the lane is to tell how long datagrams waited ([`Connection::on_waited`]): much is in flight, and that
    /// is how its round trip is told from the lateness of the ends.
    pub fn wants_arrival_times(&self) -> bool {
        self.is_bulk_in_flight()
    }

    /// Whether much payload is in flight, in either direction: [`limits::TIMED_BYTES`].
    pub fn is_bulk_in_flight(&self) -> bool {
        let bulk = limits::TIMED_BYTES;
        self.receiving.expected_payload() >= bulk || self.sending.bytes_in_flight() >= bulk
    }

    /// What is shown from here on had arrived so long before it was taken: this end was off its core, or busy. To be
    /// told before it is shown; until then it is taken for just arrived.
    pub fn on_waited(&mut self, waited: Duration) {
        self.cx.waited = waited;
    }

    /// Shares this end's link with the other members of a scheduler: it bounds what is granted, on
    /// top of the connection's own window. Without effect on a connection that is over, on the
    /// classic profile, which grants one Block at a time, and in shared memory, where there is no link.
    pub fn set_admission(&mut self, member: impl Admission + 'static) {
        self.cx.stir();
        let excluded = self.cx.peer.is_some() && !self.cx.is_scheduled();
        if self.session.may_post() && !excluded {
            self.receiving.set_admission(Box::new(member));
        }
    }

    /// Asks that what this connection receives be fast: at full speed, other senders to this end at
    /// a trickle (Fast_Req of PAPERS P2.4). Without other members, or without a scheduler, it is so
    /// anyway.
    pub fn request_fast(&mut self, now: Instant) -> FastAnswer {
        self.cx.enter(now);
        let answer = self.receiving.request_fast(&mut self.cx);
        self.settle();
        answer
    }

    /// Sets the part of this end's link that the connection gets when others receive too, relative to
    /// theirs: 1 unless set, 0 counts as 1.
    pub fn set_weight(&mut self, weight: u32) {
        self.cx.stir();
        self.receiving.set_weight(weight);
    }

    /// Whether the peer has been silent for so long that it may be elsewhere.
    pub fn is_peer_silent(&self, now: Instant) -> bool {
        self.session.is_peer_silent(&self.cx, now)
    }

    /// A datagram, or at least its first 72 bytes, with our key came `from` an address that is not the
    /// peer's. `nonce` is a number that cannot be guessed.
    pub fn on_unmatched(
        &mut self,
        now: Instant,
        from: SocketAddr,
        nonce: u32,
        datagram: &[u8],
    ) -> PathValidation {
        self.cx.enter(now);
        let validation = self
            .session
            .on_unmatched(&mut self.cx, from, nonce, datagram);
        if validation == PathValidation::Validated {
            self.on_new_path(now);
        }
        validation
    }

    /// The way to the peer is another from here on: an end has a new address.
    pub fn on_new_path(&mut self, now: Instant) {
        self.cx.enter(now);
        self.session.on_new_path(&mut self.cx);
        self.sending.on_new_path();
    }
}

/// How it stands.
impl Connection {
    /// Where it stands.
    pub fn life(&self) -> Life {
        self.session.life()
    }

    /// The profile, meaningful once connected.
    pub fn profile(&self) -> Profile {
        self.cx.profile
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.cx.counters
    }

    /// What is known of the path, and what follows from it at `now`.
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
            ..PathState::default()
        };
        self.sending.describe(path, &mut state);
        self.receiving.describe(now, &mut state);
        state
    }

    /// Payload bytes an STU sent at present.
    pub fn stu(&self) -> u32 {
        self.cx.stu()
    }

    /// Length of the announced Transfer that waits for a receive, if one does.
    pub fn announced(&self) -> Option<u64> {
        self.receiving.announced()
    }

    /// Bytes at the start of what `id` receives or gets that are verified and in place: nothing that
    /// comes writes them any more, but a repair that holds them beside what was missing. It never
    /// becomes less. `None` if nothing of it is being received.
    pub fn arrived(&self, id: TransferId) -> Option<u64> {
        self.receiving.arrived(&self.cx, id)
    }

    /// The same of a request that failed, to be asked for when its [`Event::Failed`] was polled, once.
    pub fn take_arrived(&mut self, id: TransferId) -> u64 {
        self.receiving.take_arrived(id)
    }

    /// Whether a posted send is not over, or the peer does not know that it was the last.
    pub fn is_sending(&self) -> bool {
        self.sending.len() > 0
            || self.one_sided.is_working()
            || self.sending.is_finish_unconfirmed()
    }

    /// How far what is posted here has come: another value than before if the peer took, or confirmed, any of it since.
    /// What is only sent again changes nothing.
    pub fn sending_mark(&self) -> SendingMark {
        SendingMark {
            left: self.sending.left(),
            unfinished: self.sending.len(),
            operations: self.one_sided.unconfirmed(),
        }
    }

    /// Whether granted payload waits to be sent.
    pub fn has_data(&self) -> bool {
        self.session.is_established() && self.sending.has_data()
    }

    /// Number of the newest burst that the peer said it has seen, 0 before the first: what left before has arrived,
    /// or is lost.
    pub fn seen_burst(&self) -> u32 {
        self.sending.sent_log(self.cx.links.selected).seen()
    }

    /// Whether Data carries checksums: either end asked for them.
    pub fn uses_checksums(&self) -> bool {
        self.cx.uses_checksums()
    }

    /// Whether Data marked [`Flags::FRAMES`] is taken. The lane shows each frame as the Data that it would be on
    /// its own.
    ///
    /// [`Flags::FRAMES`]: zerolane_wire::Flags::FRAMES
    pub fn takes_frames(&self) -> bool {
        self.cx.takes_frames()
    }

    /// Whether something waits to be sent that needs no grant: a small operation, or eager payload.
    pub fn is_eager(&self) -> bool {
        self.one_sided.has_unsent() || self.session.is_established() && self.sending.has_eager()
    }

    /// Whether anything depends on the peer: posted Transfers and requests, receives that wait, Ends to be confirmed.
    pub fn is_busy(&self) -> bool {
        let receives = self.receiving.len() + self.one_sided.receives();
        self.sending.posted() + receives + self.cx.endings.len() > 0 || self.one_sided.is_working()
    }

    /// Payload granted and not received yet, bytes.
    pub fn expected_payload(&self) -> u64 {
        self.receiving.expected_payload()
    }

    /// What is to be done next with payload that the lane holds ([`Placement::Hold`](crate::Placement)):
    /// before it polls events or transmits, in this order.
    pub fn poll_hold(&mut self) -> Option<HoldOrder> {
        self.receiving.next_order()
    }

    /// Predicts where the next `stus` STUs belong.
    pub fn forecast(&self, stus: u32, out: &mut Forecast) {
        self.receiving.forecast(&self.cx, stus, out);
    }

    /// The lane takes trains from now on, or does not any more: the kernel merges the datagrams of a burst, and what
    /// came in one piece can be checked as a whole. The peer learns of it by the next grants.
    pub fn set_takes_trains(&mut self, takes: bool) {
        self.cx.stir();
        self.receiving.set_takes_trains(&self.cx, takes);
    }

    /// Whether payload may come as trains, so that datagrams may have no header.
    pub fn expects_trains(&self) -> bool {
        self.receiving.expects_trains()
    }

    /// Whether payload may come that no grant names, besides what announces itself and puts: the answer to a Get of one datagram,
    /// or to a FetchOp. Its header has Bufx and Offset 0, or MEMORY.
    pub fn awaits_answers(&self) -> bool {
        self.one_sided.awaits_answers()
    }

    /// Whether `header` has port and key of this connection.
    pub fn owns(&self, header: &Header) -> bool {
        self.session.owns(&self.cx, header.d_port, header.d_key)
    }

    /// Where `len` bytes of payload of `header`, which is Data's and of a Transfer that was granted, belong if none
    /// of them is there yet. Nothing is marked as received: what comes of that is for
    /// [`on_data`](Connection::on_data).
    pub fn place_of(&self, header: &Header, len: u32) -> Option<Span> {
        self.check_place(header, len).ok()
    }

    /// As [`Connection::place_of`], and why it is none.
    fn check_place(&self, header: &Header, len: u32) -> Result<Span, DropReason> {
        let granted = header.op == Op::Data && !header.flags.contains(Flags::EAGER);
        if !granted || !self.session.is_established() {
            return Err(DropReason::Unexpected);
        }
        match self.owns(header) {
            true => self.receiving.place_of(header, len),
            false => Err(DropReason::WrongKey),
        }
    }

    /// Payload bytes of the STU expected next.
    pub fn expected_stu(&self) -> u32 {
        self.receiving.expected_stu(&self.cx)
    }

    /// Tells how many events the user has not looked at, beyond those not polled: while they are too
    /// many, the peer is told to wait with its messages and immediates.
    pub fn set_unread(&mut self, unread: usize) {
        if self.one_sided.set_unread(&mut self.cx, unread) {
            self.settle();
        }
    }

    /// Stops the program if anything grew beyond its limit. For tests and fuzzing.
    #[doc(hidden)]
    pub fn assert_bounded(&self) {
        self.cx.assert_bounded();
        self.sending.assert_bounded(self.cx.slots());
        self.receiving.assert_bounded(&self.cx);
        self.receiving.assert_messages(self.one_sided.receives());
        self.one_sided.assert_bounded();
    }
}

#[cfg(test)]
#[path = "../connection_tests/mod.rs"]
pub(crate) mod tests;
