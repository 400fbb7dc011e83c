//! Lists one example of each operation in each of its forms, for the layout snapshot and the fuzz seeds.

use zerolane_wire::{
    Advance, Answer, Capabilities, ClearToSend, ConnectionAnswer, ConnectionVerdict, Delivered,
    Disconnect, Eager, End, FetchOp, FetchOpKind, Flags, Get, Grant, Header, Immediate,
    MemoryRegionAvailable, MemoryState, Nop, Occasion, Op, Operation, Packet, Place, Profile,
    Profiles, Progress, Range, Ranges, Reason, Report, RequestAnswer, RequestConnection,
    RequestDisconnect, RequestMemoryRegion, RequestState, RequestToReceive, RequestToSend, Rights,
    Route, State, Target, VERSION, VERSION_MIN, Word,
};

const ROUTE: Route = Route {
    d_port: 0xd0d0,
    s_port: 0x5050,
    d_key: 0xd0e1_d0e2,
};

const D_ID: u32 = 0xd1d1_0001;
const S_ID: u32 = 0x5151_0002;
const SYNC: u32 = 0x5c5c_0003;
const MX: u16 = 0x0b1d;
const BUFX: u32 = 0x0bf0_0004;
const OFFSET: u32 = 0x0ff5_0008;
const B_NUM: u32 = 0x0b0b_0006;
const VALUE: u32 = 0x7a7a_000a;
const AFTER: u32 = 0x5c5c_000b;
const PLACE: Place = Place {
    handle: D_ID,
    mx: MX,
    bufx: BUFX,
    offset: OFFSET,
};
const WIDE: u64 = 0x0000_0007_8000_0009;

/// Every control operation in every form, with a name.
pub(crate) fn packets() -> Vec<(&'static str, Packet)> {
    connection()
        .into_iter()
        .chain(memory())
        .chain(transfer())
        .chain(upkeep())
        .map(|(name, operation)| {
            let route = ROUTE;
            (name, Packet { route, operation })
        })
        .collect()
}

/// The header of a Data operation, whose payload has no layout of ours.
pub(crate) fn data() -> Header {
    Header {
        flags: Flags::SILENT.with(Flags::SEND_STATE),
        param: 5,
        d_port: ROUTE.d_port,
        s_port: ROUTE.s_port,
        d_key: ROUTE.d_key,
        checksum: 0xc5c5,
        b_id: MX,
        bufx: BUFX,
        offset: OFFSET,
        sync: SYNC,
        b_num: B_NUM,
        d_id: D_ID,
        s_id: S_ID,
        ..Header::new(Op::Data)
    }
}

/// An eager Data's announcement, and the offset of its first byte.
pub(crate) fn eager() -> (RequestToSend, u32) {
    let announcement = RequestToSend {
        length: 0x3210,
        s_id: S_ID,
        target: Target::Message(D_ID),
        sequence: B_NUM,
        send_state: true,
    };
    (announcement, 0x1678)
}

fn capabilities(profiles: Profiles) -> Capabilities {
    Capabilities {
        profiles,
        checksum: true,
        out_of_order: true,
        persistent: true,
        slots: 64,
        max_stu: 1432,
        buffer_log2: 12,
        eager: Eager {
            limit: 0x3e00,
            credit: 0xcd_0000,
        },
        frames: true,
        advance_grants: true,
        advance_messages: true,
        datagrams: true,
        paths: 1,
    }
}

fn connection() -> Vec<(&'static str, Operation)> {
    let reason = Reason::Normal;
    vec![
        (
            "request_connection",
            Operation::RequestConnection(RequestConnection {
                version_min: VERSION_MIN,
                version_max: VERSION,
                capabilities: capabilities(Profiles::BOTH),
                s_key: S_ID,
                sync: SYNC,
            }),
        ),
        (
            "connection_answer_accept",
            Operation::ConnectionAnswer(ConnectionAnswer {
                verdict: ConnectionVerdict::Accept {
                    version: VERSION,
                    capabilities: capabilities(Profiles::only(Profile::Extended)),
                    s_key: S_ID,
                },
                sync: SYNC,
            }),
        ),
        (
            "connection_answer_reject",
            Operation::ConnectionAnswer(ConnectionAnswer {
                verdict: ConnectionVerdict::Reject {
                    reason: Reason::VersionMismatch,
                    version_min: 3,
                    version_max: 4,
                },
                sync: SYNC,
            }),
        ),
        (
            "request_disconnect",
            Operation::RequestDisconnect(RequestDisconnect {
                reason: Reason::GoingAway,
                delivered: Some(delivered()),
            }),
        ),
        (
            "disconnect_answer",
            Operation::DisconnectAnswer(Disconnect { reason }),
        ),
        (
            "disconnect_complete",
            Operation::DisconnectComplete(Disconnect { reason }),
        ),
    ]
}

fn delivered() -> Delivered {
    let mut delivered = Delivered::new(SYNC, B_NUM);
    for ahead in [0, 1, 9, Delivered::ANNOUNCEMENTS - 1] {
        delivered.add(B_NUM + ahead);
    }
    delivered
}

fn memory() -> Vec<(&'static str, Operation)> {
    let mut name = [0; 32];
    name[..9].copy_from_slice(b"kv-cache0");
    vec![
        (
            "request_memory_region",
            Operation::RequestMemoryRegion(RequestMemoryRegion {
                rights: Rights {
                    read: true,
                    write: false,
                    atomic: true,
                },
                length: WIDE,
                s_id: S_ID,
                name,
            }),
        ),
        (
            "memory_region_available",
            Operation::MemoryRegionAvailable(MemoryRegionAvailable {
                rights: Rights {
                    read: true,
                    write: true,
                    atomic: false,
                },
                mx: MX,
                bufx: BUFX,
                offset: OFFSET,
                d_id: D_ID,
                handle: S_ID,
                length: WIDE,
            }),
        ),
        (
            "get",
            Operation::Get(Get {
                mx: MX,
                bufx: BUFX,
                offset: OFFSET,
                handle: D_ID,
                s_id: S_ID,
                return_mx: 0x0b2d,
                return_bufx: 0x0bf0_0014,
                return_offset: 0x0ff5_0015,
                length: 0x0001_0000,
                after: SYNC,
                b_num: B_NUM,
                numbered: true,
                repeated: true,
                trains: true,
            }),
        ),
        (
            "fetch_op",
            Operation::FetchOp(FetchOp {
                kind: FetchOpKind::CompareAndSwap,
                word: Word::U64,
                mx: MX,
                bufx: BUFX,
                offset: OFFSET,
                handle: D_ID,
                s_id: S_ID,
                sync: SYNC,
                operand: 0x0102_0304_0506_0708,
                comparand: 0x1112_1314_1516_1718,
                confirmed: SYNC - 1,
            }),
        ),
        (
            "fetch_op_u32",
            Operation::FetchOp(FetchOp {
                kind: FetchOpKind::Max,
                word: Word::U32,
                mx: MX,
                bufx: BUFX,
                offset: OFFSET,
                handle: D_ID,
                s_id: S_ID,
                sync: SYNC,
                operand: 0x0506_0708,
                comparand: 0,
                confirmed: SYNC - 1,
            }),
        ),
        (
            "fetch_op_complete",
            Operation::FetchOpComplete {
                sync: SYNC,
                s_id: S_ID,
            },
        ),
    ]
}

fn transfer() -> Vec<(&'static str, Operation)> {
    let announcement = RequestToSend {
        length: WIDE,
        s_id: S_ID,
        target: Target::Receive,
        sequence: SYNC,
        send_state: true,
    };
    let grant = ClearToSend {
        block_log2: 11,
        mx: MX,
        bufx: BUFX,
        offset: OFFSET,
        sequence: SYNC,
        b_num: B_NUM,
        d_id: D_ID,
        s_id: S_ID,
        grant: None,
    };
    vec![
        ("request_to_send", Operation::RequestToSend(announcement)),
        (
            "request_to_send_read",
            Operation::RequestToSend(RequestToSend {
                target: Target::Read(D_ID),
                ..announcement
            }),
        ),
        (
            "request_to_send_region",
            Operation::RequestToSend(RequestToSend {
                target: Target::Region(PLACE, None),
                ..announcement
            }),
        ),
        (
            "request_to_send_region_immediate",
            Operation::RequestToSend(RequestToSend {
                target: Target::Region(
                    PLACE,
                    Some(Immediate {
                        value: VALUE,
                        after: AFTER,
                    }),
                ),
                ..announcement
            }),
        ),
        (
            "request_to_send_message",
            Operation::RequestToSend(RequestToSend {
                target: Target::Message(D_ID),
                ..announcement
            }),
        ),
        (
            "request_answer_later",
            Operation::RequestAnswer(RequestAnswer {
                answer: Answer::Later(Reason::NotReady),
                d_id: D_ID,
                room: 0,
                numbered: false,
            }),
        ),
        (
            "request_answer_refused",
            Operation::RequestAnswer(RequestAnswer {
                answer: Answer::Refused(Reason::MessageTooLarge),
                d_id: D_ID,
                room: WIDE,
                numbered: false,
            }),
        ),
        ("clear_to_send_classic", Operation::ClearToSend(grant)),
        (
            "clear_to_send_extended",
            Operation::ClearToSend(ClearToSend {
                block_log2: 0,
                grant: Some(Grant {
                    transfer_offset: WIDE,
                    length: 0x0010_0000,
                    blocks_complete: B_NUM - 1,
                    trains: true,
                    advance: None,
                }),
                ..grant
            }),
        ),
        (
            "clear_to_send_in_advance",
            Operation::ClearToSend(ClearToSend {
                block_log2: 0,
                d_id: 0,
                grant: Some(Grant {
                    transfer_offset: WIDE,
                    length: 0x0010_0000,
                    blocks_complete: 0,
                    trains: true,
                    advance: Some(Advance::Announcement(u32::MAX)),
                }),
                ..grant
            }),
        ),
        (
            "clear_to_send_in_advance_of_a_message",
            Operation::ClearToSend(ClearToSend {
                block_log2: 0,
                d_id: 0,
                grant: Some(Grant {
                    transfer_offset: WIDE,
                    length: 0x0010_0000,
                    blocks_complete: 0,
                    trains: false,
                    advance: Some(Advance::Message(SYNC)),
                }),
                ..grant
            }),
        ),
        (
            "request_to_receive",
            Operation::RequestToReceive(RequestToReceive {
                capacity: WIDE,
                s_id: S_ID,
                sequence: SYNC,
            }),
        ),
    ]
}

fn upkeep() -> Vec<(&'static str, Operation)> {
    let mut missing = Ranges::EMPTY;
    for start in [0x1000, 0x4000] {
        assert!(missing.push(Range { start, len: 0x598 }));
    }
    let end = End {
        reason: Reason::Cancelled,
        from_source: true,
        sequence: SYNC,
        d_id: D_ID,
        s_id: S_ID,
    };
    vec![
        (
            "request_state",
            Operation::RequestState(RequestState {
                b_num: B_NUM,
                d_id: D_ID,
                s_id: S_ID,
                sync: SYNC,
            }),
        ),
        (
            "state_missing",
            Operation::State(State {
                occasion: Occasion::Seen(SYNC),
                complete: false,
                unknown: false,
                blocks_complete: B_NUM - 1,
                b_num: B_NUM,
                reached: 0x8000,
                d_id: D_ID,
                s_id: S_ID,
                report: Report::Missing(missing),
            }),
        ),
        (
            "state_complete",
            Operation::State(State {
                occasion: Occasion::Reply(SYNC),
                complete: true,
                unknown: false,
                blocks_complete: B_NUM + 1,
                b_num: B_NUM,
                reached: 0x8000,
                d_id: D_ID,
                s_id: S_ID,
                report: Report::NOTHING,
            }),
        ),
        (
            "state_progress",
            Operation::State(State {
                occasion: Occasion::Reply(SYNC),
                complete: false,
                unknown: false,
                blocks_complete: B_NUM,
                b_num: B_NUM,
                reached: 0x8000,
                d_id: D_ID,
                s_id: S_ID,
                report: Report::Progress(Progress {
                    received: 0x1122_3344_5566,
                    delay_us: 0x77,
                    marked: 0x8899,
                    capable: 0xaabb,
                    trains: true,
                }),
            }),
        ),
        (
            "state_memory",
            Operation::MemoryState(MemoryState {
                expected: SYNC,
                resend: true,
                trains: true,
            }),
        ),
        ("end", Operation::End(end)),
        (
            "end_ack",
            Operation::EndAck(End {
                from_source: false,
                ..end
            }),
        ),
        (
            "nop_keep_alive",
            Operation::Nop(Nop {
                send_state: true,
                sync: SYNC,
                ..Nop::default()
            }),
        ),
        (
            "nop_probe",
            Operation::Nop(Nop {
                send_state: true,
                probe: 1472,
                sync: SYNC,
                ..Nop::default()
            }),
        ),
        (
            "nop_path",
            Operation::Nop(Nop {
                send_state: true,
                path: 3,
                sync: SYNC,
                ..Nop::default()
            }),
        ),
        (
            "nop_leaves",
            Operation::Nop(Nop {
                path: 3,
                leaves: true,
                ..Nop::default()
            }),
        ),
        (
            "nop_options",
            Operation::Nop(Nop {
                reply: true,
                sync: SYNC,
                options: Some(*b"thirty-two bytes of ULP options."),
                ..Nop::default()
            }),
        ),
    ]
}
