//! Tests that a hostile peer can make a connection allocate only a bounded amount of memory.
//!
//! Drives every list that the peer controls to its limit, through the public interface and in virtual time, and counts
//! the allocator's memory. This end's program does its worst too: it exports, posts and revokes, and reads no events.
#![allow(non_snake_case)]

use cap::Cap;
use std::alloc::System;
use std::time::Duration;
use zerolane_core::limits::{
    DEFAULT_EAGER_CREDIT, MAX_CONTROL_QUEUE, MAX_EAGER_GAPS, MAX_ENDINGS, MAX_FETCHES, MAX_FLIGHT,
    MAX_GAPS_PER_BLOCK, MAX_HELD_GRANTS, MAX_LIVE_BLOCKS, MAX_OVERTAKEN, MAX_REMEMBERED_BLOCKS,
    MAX_REPAIRS, MAX_REPLIES, MAX_SLOTS, MAX_UNREAD,
};
use zerolane_core::{
    BurstLimit, Config, Connection, Control, Delivery, DropReason, Entropy, Instant, Life,
    Placement, RegionId, Span, Transmit, WorkRequest, listen,
};
use zerolane_wire::{
    ClearToSend, FetchOp, FetchOpKind, Flags, Get, Grant, Header, Nop, Occasion, Op, Operation,
    Packet, Place, Range, Ranges, Report, RequestToReceive, RequestToSend, Rights, Route, State,
    Target,
};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const MIB: u64 = 1 << 20;
const KEY: u32 = 0xb0b0_0001;
const PORT: u16 = 22;

/// A span of the victim's memory. It does not exist, because the core touches none.
fn span(index: u32, len: u64) -> Span {
    let generation = 1;
    Span {
        region: RegionId { index, generation },
        offset: 0,
        len,
    }
}

/// A connection, and a peer that sends it arbitrary operations.
struct Attack {
    victim: Connection,
    /// Route of the peer's operations.
    route: Route,
    now: Instant,
    /// Grants that the victim sent.
    grants: Vec<ClearToSend>,
    /// Announcements, identifiers and small operations forged so far.
    announced: u32,
    id: u32,
    number: u32,
    held_before: usize,
}

impl Attack {
    fn begin() -> Attack {
        let config = Config {
            slots: MAX_SLOTS,
            // Small Blocks: as many as possible are live, and each has as many gaps as possible.
            block: 4096,
            control: Control::Lan,
            ..Config::default()
        };
        let entropy = |key, port| Entropy { key, port, sync: 5 };
        let now = Instant::ZERO;
        let mut peer = Connection::connect(now, config.clone(), entropy(0xa11c_e001, 11));
        let request = peer.poll_transmit(now, BurstLimit::default());
        let Some(Transmit::Control(request)) = request else {
            panic!("a Request_Connection");
        };
        let request = Packet::parse(request.bytes()).expect("well-formed");
        let held_before = ALLOCATOR.allocated();
        let victim = listen(now, config, entropy(KEY, PORT), &request).expect("taken");
        let mut attack = Attack {
            victim,
            route: Route {
                d_port: PORT,
                s_port: 11,
                d_key: KEY,
            },
            now,
            grants: vec![],
            announced: 0,
            id: 1,
            number: 0,
            held_before,
        };
        attack.drain();
        attack.say(Operation::Nop(Nop::default()));
        attack.drain();
        assert_eq!(attack.victim.life(), Life::Established);
        attack
    }

    fn say(&mut self, operation: Operation) {
        let route = self.route;
        let (bytes, len) = Packet { route, operation }.emit();
        self.victim.on_control(self.now, &bytes[..len], len);
    }

    fn new_id(&mut self) -> u32 {
        self.id += 1;
        self.id
    }

    /// Receives everything that the victim sends.
    fn drain(&mut self) {
        while let Some(transmit) = self.victim.poll_transmit(self.now, BurstLimit::default()) {
            if let Transmit::Control(datagram) = transmit
                && let Ok(packet) = Packet::parse(datagram.bytes())
                && let Operation::ClearToSend(grant) = packet.operation
            {
                // Some are repeated.
                let known = self.grants.iter().any(|it| it.sequence == grant.sequence);
                self.grants.extend((!known).then_some(grant));
            }
        }
    }

    /// Lets the next timer expire, and shows the victim that its peer lives.
    fn pass(&mut self) {
        let at = self.victim.next_timeout();
        self.now = at.unwrap_or(self.now).max(self.now);
        self.victim.on_timeout(self.now);
        self.drain();
        self.say(Operation::Nop(Nop::default()));
    }

    fn pass_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.pass();
        }
    }

    fn announce(&mut self, length: u64, target: Target) {
        let (s_id, sequence) = (self.new_id(), self.announced);
        self.announced += 1;
        self.say(Operation::RequestToSend(RequestToSend {
            length,
            s_id,
            target,
            sequence,
            send_state: false,
        }));
    }

    /// Bytes of a granted Block.
    fn data(&mut self, grant: &ClearToSend, start: u32, len: u32) -> Placement {
        let header = Header {
            d_port: PORT,
            s_port: self.route.s_port,
            d_key: KEY,
            sync: 1,
            b_id: grant.mx,
            bufx: grant.bufx,
            offset: grant.offset + start,
            b_num: grant.b_num,
            d_id: grant.s_id,
            ..Header::new(Op::Data)
        };
        self.victim.on_data(self.now, &header, len, len, None)
    }

    fn limited(&self) -> u64 {
        self.victim.counters().dropped(DropReason::Limit)
    }

    /// Does `act` once more than there is room for, which the victim must count.
    fn reach_the_limit(&mut self, what: &str, count: usize, mut act: impl FnMut(&mut Attack, u32)) {
        let before = self.limited();
        for n in 0..count as u32 + 1 {
            act(self, n);
        }
        assert!(self.limited() > before, "{what}: the limit was not reached");
        self.report(what);
    }

    /// Bytes that the victim holds, without those that the peer remembers.
    fn held(&self) -> usize {
        let theirs = self.grants.capacity() * size_of::<ClearToSend>();
        ALLOCATOR.allocated() - self.held_before - theirs
    }

    fn report(&self, what: &str) {
        self.victim.assert_bounded();
        println!("{:>9} bytes after {what}", self.held());
    }
}

/// Ends that are never confirmed: of puts whose region the victim's program revokes.
fn fill_endings(attack: &mut Attack) {
    for round in 0..=(MAX_ENDINGS / usize::from(MAX_SLOTS)) as u32 {
        let exported = attack.victim.export(
            span(round, MIB),
            Rights::ALL,
            zerolane_core::ExportAs::Handle,
        );
        let (handle, mx) = exported.expect("room");
        for _ in 0..MAX_SLOTS {
            let place = Place {
                handle,
                mx,
                bufx: 0,
                offset: 0,
            };
            attack.announce(MIB, Target::Region(place, None));
            attack.drain();
        }
        assert!(attack.victim.revoke(attack.now, handle));
        attack.drain();
    }
    assert!(attack.victim.counters().records_dropped > 0);
    attack.grants.clear();
    attack.report("Ends unconfirmed");
}

/// Sends every second byte of `grant`, until the gaps reach the limit.
fn fragment(attack: &mut Attack, grant: &ClearToSend) {
    for n in 0..MAX_GAPS_PER_BLOCK as u32 - 1 {
        let placed = attack.data(grant, 2 * n + 1, 1);
        assert!(matches!(placed, Placement::Move(_)), "{placed:?}");
    }
    let beyond = 2 * MAX_GAPS_PER_BLOCK as u32 + 1;
    let refused = Placement::Drop(DropReason::Limit);
    assert_eq!(attack.data(grant, beyond, 1), refused);
}

/// As many Blocks as possible, each in as many pieces as possible; the first never completes.
fn fill_blocks(attack: &mut Attack) {
    let length = 64 * MIB;
    let posted = attack
        .victim
        .post(attack.now, WorkRequest::Receive, span(100, length));
    posted.expect("room");
    attack.announce(length, Target::Receive);
    attack.drain();
    let first = attack.grants[0];
    fragment(attack, &first);
    let complete = MAX_REMEMBERED_BLOCKS - MAX_LIVE_BLOCKS;
    for index in 1..=complete {
        let grant = attack.grants[index];
        fragment(attack, &grant);
        let len = grant.grant.expect("extended").length;
        assert!(matches!(attack.data(&grant, 0, len), Placement::Move(_)));
        attack.drain();
    }
    attack.report("Blocks that are over, behind one that is not");
    // Overtaken ranges of these are no longer watched, which makes room for missing ones.
    attack.pass_for(Duration::from_secs(5));
    for index in complete + 1..attack.grants.len() {
        let grant = attack.grants[index];
        fragment(attack, &grant);
    }
    assert_eq!(attack.grants.len(), MAX_REMEMBERED_BLOCKS, "all granted");
    assert!(attack.victim.counters().records_dropped as usize > MAX_OVERTAKEN);
    attack.report("gaps of the live Blocks, and what was overtaken");
}

/// Overtaken payload is requested repeatedly, and never comes.
fn leave_unanswered(attack: &mut Attack) {
    attack.pass_for(Duration::from_secs(60));
    attack.report("asking for it again and again");
}

fn fill_slots(attack: &mut Attack) {
    let exported =
        attack
            .victim
            .export(span(200, MIB), Rights::ALL, zerolane_core::ExportAs::Handle);
    let (handle, mx) = exported.expect("room");
    let place = Place {
        handle,
        mx,
        bufx: 0,
        offset: 0,
    };
    attack.reach_the_limit("announcements", MAX_SLOTS.into(), |attack, _| {
        attack.announce(MIB, Target::Region(place, None));
        attack.drain();
    });
    attack.reach_the_limit("Reads", MAX_SLOTS.into(), |attack, sequence| {
        let s_id = attack.new_id();
        attack.say(Operation::RequestToReceive(RequestToReceive {
            capacity: 1000,
            s_id,
            sequence,
        }));
        attack.drain();
    });
}

/// Begins eager Transfers, short ones, so that there are many; each has as many gaps as possible.
fn fill_credit(attack: &mut Attack) {
    const COUNT: u32 = 64;
    let length = DEFAULT_EAGER_CREDIT / COUNT;
    for n in 0..=COUNT {
        let (s_id, sequence) = (attack.new_id(), attack.announced);
        attack.announced += 1;
        let rts = RequestToSend {
            length: length.into(),
            s_id,
            target: Target::Receive,
            sequence,
            send_state: true,
        };
        for piece in 1..2 + MAX_EAGER_GAPS as u32 {
            let header = Header {
                d_port: PORT,
                s_port: attack.route.s_port,
                d_key: KEY,
                ..rts.eager(2 * piece)
            };
            let placed = attack.victim.on_data(attack.now, &header, 1, 1, None);
            let held = n < COUNT && piece < MAX_EAGER_GAPS as u32;
            assert_eq!(matches!(placed, Placement::Hold(_)), held, "{placed:?}");
        }
    }
    attack.drain();
    attack.report("the eager credit");
}

/// Bursts that the peer never saw, grants from it, and payload that it requests again.
fn fill_sender(attack: &mut Attack) {
    let source = span(300, 64 * MIB);
    let posted = attack.victim.post(
        attack.now,
        WorkRequest::Send {
            delivery: Delivery::Polled,
        },
        source,
    );
    let id = posted.expect("room");
    attack.drain();
    let grant = |b_num: u32, transfer_offset: u64, length: u32, blocks_complete: u32| {
        Operation::ClearToSend(ClearToSend {
            block_log2: 0,
            mx: 0,
            bufx: 0,
            offset: 0,
            sequence: b_num,
            b_num,
            d_id: id,
            s_id: 77,
            grant: Some(Grant {
                transfer_offset,
                length,
                trains: false,
                blocks_complete,
                advance: None,
            }),
        })
    };
    // One byte each, so that each is a burst.
    let last = MAX_FLIGHT as u32 + 100;
    for n in 0..last {
        attack.say(grant(n, n.into(), 1, n));
        attack.drain();
    }
    attack.say(grant(last, MIB, MIB as u32, last));
    attack.drain();
    attack.report("bursts not seen");
    attack.now = attack.now + Duration::from_secs(2);
    attack.reach_the_limit("payload to be sent again", MAX_REPAIRS, |attack, n| {
        let mut ranges = Ranges::EMPTY;
        let start = n * 100;
        assert!(ranges.push(Range { start, len: 50 }));
        attack.say(Operation::State(State {
            occasion: Occasion::Seen(0),
            complete: false,
            unknown: false,
            blocks_complete: 0,
            b_num: last,
            reached: MIB as u32,
            d_id: id,
            s_id: 77,
            report: Report::Missing(ranges),
        }));
    });
    attack.reach_the_limit("grants held", MAX_HELD_GRANTS, |attack, n| {
        attack.say(grant(last + 1 + n, 3 * MIB, 1, last));
    });
}

/// No event is read, and nothing is sent any more.
fn fill_queues(attack: &mut Attack) {
    let exported =
        attack
            .victim
            .export(span(400, MIB), Rights::ALL, zerolane_core::ExportAs::Handle);
    let (handle, mx) = exported.expect("room");
    attack.reach_the_limit("values", MAX_FETCHES, |attack, _| {
        let s_id = attack.new_id();
        attack.say(Operation::FetchOp(FetchOp {
            kind: FetchOpKind::Increment,
            word: zerolane_wire::Word::U64,
            mx,
            bufx: 0,
            offset: 0,
            handle,
            s_id,
            sync: attack.number,
            confirmed: 0,
            operand: 0,
            comparand: 0,
        }));
        if attack.victim.pending_atomic().is_some() {
            attack.victim.on_atomic_done(attack.now, Some(7));
            attack.number += 1;
        }
    });
    attack.reach_the_limit("immediates", MAX_UNREAD, |attack, _| {
        let header = Header {
            flags: Flags::INTERRUPT,
            d_port: PORT,
            s_port: attack.route.s_port,
            d_key: KEY,
            sync: attack.number,
            b_id: mx,
            d_id: handle,
            s_id: 5,
            ..Header::new(Op::Data)
        };
        let placed = attack.victim.on_data(attack.now, &header, 8, 8, None);
        attack.number += u32::from(matches!(placed, Placement::Store(_)));
    });
    attack.reach_the_limit("Gets", MAX_REPLIES, |attack, n| {
        let s_id = attack.new_id();
        attack.say(Operation::Get(Get {
            mx,
            bufx: 0,
            offset: n * 100,
            handle,
            s_id,
            return_mx: 0,
            return_bufx: 0,
            return_offset: n * 100,
            length: 100,
            after: 0,
            b_num: 0,
            numbered: false,
            repeated: false,
            trains: false,
        }));
    });
    attack.reach_the_limit("answers", MAX_CONTROL_QUEUE, |attack, sync| {
        attack.say(Operation::Nop(Nop {
            send_state: true,
            sync,
            ..Nop::default()
        }));
    });
}

/// The number of bytes that docs/reference/security.md states.
fn documented() -> usize {
    let text = include_str!("../../../docs/reference/security.md");
    let (_, rest) = text.split_once("at its worst holds ").expect("a figure");
    let (mib, _) = rest.split_once(" MiB").expect("a unit");
    let mib: usize = mib.parse().expect("a number");
    mib << 20
}

/// docs/reference/security.md states the limit.
#[test]
fn memory__of_a_connection_at_its_worst() {
    let mut attack = Attack::begin();
    attack.report("the handshake");
    fill_endings(&mut attack);
    fill_blocks(&mut attack);
    leave_unanswered(&mut attack);
    fill_credit(&mut attack);
    fill_slots(&mut attack);
    fill_sender(&mut attack);
    fill_queues(&mut attack);
    let (held, documented) = (attack.held(), documented());
    assert!(
        held <= documented,
        "{held} bytes, {documented} are documented"
    );
    assert!(
        held > documented - (2 << 20),
        "{held} bytes, {documented} are documented: not all is full, or less can be promised"
    );
}
