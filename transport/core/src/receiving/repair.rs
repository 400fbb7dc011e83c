//! Asks for missing payload when it is overdue, and reports progress to the sender.

use super::Receiving;
use super::inbound::Granted;
use super::loss_detector::LateArrival;
use super::placement::{Accepted, Arrival, PlacementTable};
use crate::context::{Context, Debt};
use crate::limits;
use crate::profile::Conduct;
use crate::recovery::Timed;
use crate::sending::is_after;
use crate::time::Instant;
use crate::timers::Timer;
use crate::transfer::TransferId;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;
use smallvec::SmallVec;
use zerolane_wire::{
    Header, MAX_RANGES, Occasion, Operation, Progress, Range, Ranges, Report, State,
};

/// Pause between requests, when more was lost than one go covers.
const ASK_PAUSE: Duration = Duration::from_millis(1);

/// Most ranges requested in one go.
const MOST_ASKED: usize = limits::MAX_ASKS * MAX_RANGES;

/// The receiver's knowledge of one path's bursts.
#[derive(Clone, Copy, Debug, Default)]
struct SeenOfPath {
    /// The newest burst.
    burst: u32,
    /// When it came.
    at: Instant,
    /// Payload bytes that it brought for the first time.
    received: u64,
    /// The newest burst reported to the sender, other than with a request for missing ranges.
    reported: u32,
}

/// The receiver's knowledge of the sender's bursts.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// One per path, as far as any burst came.
    paths: SmallVec<[SeenOfPath; 1]>,
    /// The path of the latest burst.
    latest: usize,
}

impl Seen {
    /// The path of the latest.
    fn latest(&self) -> SeenOfPath {
        self.of(self.latest)
    }

    fn of(&self, path: usize) -> SeenOfPath {
        self.paths.get(path).copied().unwrap_or_default()
    }
}

impl Receiving {
    /// Notes that a burst of this number came.
    pub(crate) fn note_burst(&mut self, cx: &Context, header: &Header) {
        let path = cx.links.of_burst(header.sync);
        // The answer to a short Get has no number.
        if header.sync == 0 || path >= cx.links.most {
            return;
        }
        let seen = &mut self.seen;
        seen.latest = path;
        if seen.paths.len() <= path {
            seen.paths.resize(path + 1, SeenOfPath::default());
        }
        let it = &mut seen.paths[path];
        if is_after(header.sync, it.burst, cx.links.path_bits()) {
            (it.burst, it.at) = (header.sync, cx.now.before(cx.waited));
        }
    }

    /// `new_bytes` of new payload came with `header`.
    pub(super) fn note_received(&mut self, cx: &mut Context, header: &Header, new_bytes: u32) {
        cx.counters.bytes_received += u64::from(new_bytes);
        cx.watch_payload();
        let min_rtt = cx.longest_min_rtt();
        self.receive_window.arrived(cx.now, new_bytes, min_rtt);
        let path = cx.links.of_burst(header.sync);
        if let Some(it) = self.seen.paths.get_mut(path).filter(|_| header.sync != 0) {
            it.received += u64::from(new_bytes);
        }
    }

    /// Payload bytes that came by `path`.
    pub(crate) fn received_by(&self, path: usize) -> u64 {
        self.seen.of(path).received
    }

    /// Watches overtaken payload, and learns from late payload.
    pub(super) fn note_order(&mut self, cx: &mut Context, accepted: &Accepted, len: u32) {
        let min_rtt = cx.longest_min_rtt().unwrap_or_default();
        let start = accepted.start;
        match accepted.order {
            Arrival::Next => return,
            Arrival::Behind => {
                let range = (accepted.sequence, start, start + len);
                match self.loss_detector.filled(cx.now, range, min_rtt) {
                    LateArrival::Reordered => {
                        cx.counters.reordered += 1;
                        // It would have spoiled a train, unless another path brought the later payload.
                        if !cx.links.is_several() {
                            self.trains.on_lost(cx.now);
                        }
                    }
                    LateArrival::SpuriousRequest => cx.counters.spurious_requests += 1,
                    // Requested once: the time it took is a round trip.
                    LateArrival::Repaired(time) if !cx.links.is_several() => {
                        cx.recovery.sample(cx.now, time);
                    }
                    LateArrival::Repaired(_) | LateArrival::Unknown => {}
                }
            }
            Arrival::Ahead(from) => {
                let to = (accepted.sequence, start);
                for range in self.inbox.grants.between(from, to) {
                    let block = self.inbox.grants.get(range.0);
                    let untouched = block.is_none_or(|block| block.reached == 0);
                    let noted = self.loss_detector.overtaken(cx.now, range, untouched);
                    cx.counters.records_dropped += u64::from(!noted);
                }
            }
        }
        self.arm_lost_timer(cx);
    }

    fn arm_lost_timer(&mut self, cx: &mut Context) {
        let rtt = cx.longest_rtt();
        if let Some(at) = self.loss_detector.next_due(cx.now, rtt) {
            cx.timers.set_earlier(Timer::LossDetection, at);
        }
    }

    /// Requests payload that counts as lost by now.
    pub(crate) fn on_loss_detection_timeout(&mut self, cx: &mut Context) {
        let rtt = cx.longest_rtt();
        let wait = cx.longest_repair_timeout();
        let mut lost: Vec<(u32, Range)> = vec![];
        while lost.len() < MOST_ASKED {
            let Some(it) = self.loss_detector.take_due(cx.now, rtt) else {
                break;
            };
            let Some(block) = self.inbox.grants.get(it.sequence) else {
                continue;
            };
            let room = MOST_ASKED - lost.len();
            let mut missing = PlacementTable::missing(block, it.start, it.end).peekable();
            if it.is_fresh() && missing.peek().is_some() {
                self.trains.on_lost(cx.now);
            }
            for range in missing.by_ref().take(room) {
                lost.push((it.sequence, range));
                self.overtaken += if it.is_fresh() {
                    u64::from(range.len)
                } else {
                    0
                };
                let part = (range.start, range.start + range.len);
                let noted = self.loss_detector.asked(cx.now, it, part, wait);
                cx.counters.records_dropped += u64::from(!noted);
            }
            if let Some(rest) = missing.next() {
                let noted = self.loss_detector.put_back(it, rest.start);
                cx.counters.records_dropped += u64::from(!noted);
            }
        }
        for of_block in lost.chunk_by(|a, b| a.0 == b.0) {
            let ranges: Vec<Range> = of_block.iter().map(|&(_, range)| range).collect();
            self.ask(cx, of_block[0].0, &ranges);
        }
        if !lost.is_empty() {
            cx.owe(Debt::Peer);
        }
        if let Some(at) = self.loss_detector.next_due(cx.now, rtt) {
            cx.timers
                .set_earlier(Timer::LossDetection, at.max(cx.now + ASK_PAUSE));
        }
    }

    /// Repeats, once, grants whose payload should have started by now, on a path that loses: one Block less may leave
    /// the sender with nothing to send. Gets are not repeated here: answers come in order, and the sender, which stores
    /// no requests, would send twice.
    pub(super) fn repeat_overdue_grants(&mut self, cx: &mut Context) {
        if !cx.profile.grants_ahead() || cx.counters.reports_sent == 0 {
            return;
        }
        let wait = cx.longest_repair_timeout();
        for sequence in self.inbox.grants.take_overdue(cx.now.before(wait)) {
            if !self.is_got(sequence) {
                self.send_grant(cx, sequence);
            }
        }
    }

    /// The peer made progress: earlier losses must not prolong a wait. A long Get may just have got its turn.
    pub(crate) fn on_peer_progress(&mut self, cx: &mut Context) {
        if !cx.recovery.is_backed_off() {
            return;
        }
        cx.recovery.progress();
        if !self.inbox.grants.is_idle() {
            let ends = self.inbox.grants.quiet().ends(cx.recovery.data_timeout());
            cx.timers.set_earlier(Timer::Payload, ends.max(cx.now));
        }
    }

    /// Schedules the request for missing ranges of an eager Transfer.
    pub(super) fn watch_rest(&mut self, cx: &mut Context, sequence: u32) {
        let rtt = cx.longest_rtt();
        let overtaken = cx.now + self.loss_detector.patience(cx.now, rtt);
        let silence = cx.now + cx.recovery.data_timeout();
        let due = self.inbox.arrivals.set_due(sequence, overtaken, silence);
        if let Some(at) = due {
            cx.timers.set_earlier(Timer::Payload, at);
        }
    }

    /// Requests ranges of eager Transfers that are overdue.
    fn ask_for_overdue_rests(&mut self, cx: &mut Context) {
        let most = limits::MAX_EAGER_ASKS;
        while let Some(sequence) = self
            .inbox
            .arrivals
            .take_due(cx.now, most)
            .map(|it| it.sequence)
        {
            self.ask_for_rest(cx, sequence);
        }
        if let Some(at) = self.inbox.arrivals.next_due(most) {
            cx.timers.set_earlier(Timer::Payload, at);
        }
    }

    /// Requests missing ranges if the Transfer is eager: its sender repeats them eagerly.
    pub(super) fn ask_for_rest(&mut self, cx: &mut Context, sequence: u32) {
        let wait = cx.recovery.repair_timeout();
        let Some(arrival) = self.inbox.arrivals.get_mut(sequence) else {
            return;
        };
        arrival.asked(cx.now, wait, limits::MAX_EAGER_ASKS);
        let (id, peer, reached) = (arrival.id(), arrival.peer, arrival.reached);
        let mut missing = Ranges::EMPTY;
        for range in arrival.missing().take(MAX_RANGES) {
            missing.push(range);
        }
        let state = State {
            reached,
            d_id: peer,
            report: Report::Missing(missing),
            ..self.state_of(id)
        };
        cx.counters.reports_sent += 1;
        cx.push_state(state);
    }

    /// Granted payload stays out, because its end or the grants were lost; or eager payload does.
    pub(crate) fn on_payload_timeout(&mut self, cx: &mut Context) {
        self.ask_for_overdue_rests(cx);
        if self.inbox.grants.is_idle() {
            return;
        }
        let wait = cx.recovery.data_timeout();
        let ends = self.inbox.grants.quiet().ends(wait);
        if ends > cx.now {
            cx.timers.set_earlier(Timer::Payload, ends);
            return;
        }
        let first_time = !cx.recovery.is_backed_off();
        self.trains.on_lost(cx.now);
        cx.counters.timeouts += 1;
        cx.recovery.back_off();
        self.inbox.grants.quiet().broken(cx.now);
        match cx.profile.repairs_ranges() {
            true => self.ask_in_silence(cx, first_time),
            false => self.grant_anew(cx),
        }
        if self.is_stuck() {
            cx.verify_least_size();
        }
        cx.owe(Debt::Peer);
        let next = cx.now + cx.recovery.data_timeout();
        cx.timers.set_earlier(Timer::Payload, next);
    }

    /// Classic profile: grants every Block once more, as a whole.
    fn grant_anew(&mut self, cx: &mut Context) {
        let live: Vec<u32> = self.inbox.grants.iter().map(|(it, _)| it).collect();
        for sequence in live {
            if let Some(Granted { sequence, .. }) = self.inbox.regrant(cx.now, sequence) {
                self.send_grant(cx, sequence);
            }
        }
    }

    /// Requests the payload that the sender should have sent last, and if that has no effect, everything missing: the
    /// sender knows which parts were never sent.
    fn ask_in_silence(&mut self, cx: &mut Context, first_time: bool) {
        let grants = &self.inbox.grants;
        let waiting = |&(sequence, _): &(u32, _)| !first_time || !grants.overtaken(sequence);
        let count = if first_time {
            1
        } else {
            limits::MAX_BLOCKS_ASKED
        };
        let blocks: Vec<(u32, Vec<Range>)> = grants
            .iter()
            .filter(|(_, block)| !block.is_reserved())
            .filter(waiting)
            .take(count)
            .map(|(sequence, block)| {
                let missing = PlacementTable::missing(block, 0, block.len());
                (sequence, missing.take(MAX_RANGES).collect())
            })
            .collect();
        for (sequence, ranges) in blocks {
            self.ask(cx, sequence, &ranges);
        }
    }

    /// Requests ranges of a Block, and repeats its grant if nothing of it came, because the sender may not know of it.
    fn ask(&mut self, cx: &mut Context, sequence: u32, ranges: &[Range]) {
        let Some(block) = self.inbox.grants.get(sequence) else {
            return;
        };
        let (id, b_num, reached) = (block.transfer, block.b_num, block.reached);
        cx.recovery.untime(Timed::Grant(id));
        if self.is_got(sequence) {
            self.report_paths(cx, id, None);
            return self.get_ranges(cx, sequence, ranges);
        }
        // The request for missing ranges reports the latest path.
        self.report_paths(cx, id, Some(self.seen.latest));
        if reached == 0 {
            self.inbox.grants.repeated(sequence);
            self.send_grant(cx, sequence);
        }
        for chunk in ranges.chunks(MAX_RANGES) {
            let mut missing = Ranges::EMPTY;
            for &range in chunk {
                missing.push(range);
            }
            cx.counters.reports_sent += 1;
            let state = State {
                b_num,
                reached,
                report: Report::Missing(missing),
                ..self.state_of(id)
            };
            cx.push_state(state);
        }
    }

    /// The State of a Transfer, when unsolicited.
    pub(super) fn state_of(&self, id: TransferId) -> State {
        let transfer = self.inbox.get(id);
        let blocks_complete = transfer.map_or(0, |it| self.inbox.blocks_complete(id, it));
        State {
            occasion: Occasion::Seen(self.seen_burst()),
            complete: false,
            unknown: false,
            blocks_complete,
            b_num: blocks_complete,
            reached: 0,
            d_id: transfer.map_or(0, |it| it.peer),
            s_id: id,
            report: Report::NOTHING,
        }
    }

    /// Reports the connection's progress to the sender, whose SEND_STATE asked for it.
    pub(super) fn report_progress(&mut self, cx: &mut Context, id: TransferId) {
        let state = State {
            report: self.progress(cx),
            ..self.state_of(id)
        };
        cx.push_state(state);
    }

    /// Totals received on the whole connection.
    pub(super) fn progress(&self, cx: &Context) -> Report {
        if !cx.profile.reports_progress() {
            return Report::NOTHING;
        }
        let path = self.seen.latest();
        let delay = (cx.now - path.at).as_micros();
        Report::Progress(Progress {
            received: match cx.links.path_bits() {
                0 => cx.counters.bytes_received - cx.unnumbered,
                _ => path.received,
            },
            delay_us: u32::try_from(delay).unwrap_or(u32::MAX),
            marked: cx.counters.ecn_marked as u32,
            capable: cx.counters.ecn_capable as u32,
            trains: self.takes_datagram_trains(),
        })
    }

    pub(super) fn seen_burst(&self) -> u32 {
        self.seen.latest().burst
    }

    /// Reports the newest bursts of those paths that the sender does not know of, so that it does not retransmit them.
    /// Excludes `known`, which another report covers.
    fn report_paths(&mut self, cx: &mut Context, id: TransferId, known: Option<usize>) {
        if !cx.links.is_several() {
            return;
        }
        let latest = self.seen.latest;
        for path in 0..self.seen.paths.len() {
            let it = &mut self.seen.paths[path];
            let news = it.reported != it.burst;
            it.reported = it.burst;
            if Some(path) != known && news {
                self.seen.latest = path;
                // Must precede the request for missing ranges, whichever path is shorter. It is no progress report,
                // which would leave by its own path.
                cx.push_control(Operation::State(self.state_of(id)));
            }
        }
        self.seen.latest = latest;
    }
}
