//! Generates arbitrary values of every wire type, within the documented ranges.

use proptest::array::uniform32;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use zerolane_wire::{
    Advance, Answer, Capabilities, ClearToSend, ConnectionAnswer, ConnectionVerdict, Delivered,
    Disconnect, Eager, End, FetchOp, FetchOpKind, Flags, Get, Grant, Header, Immediate, MAX_EAGER,
    MAX_RANGES, MemoryRegionAvailable, MemoryState, Nop, Occasion, Op, Operation, Packet, Place,
    Profile, Profiles, Progress, Range, Ranges, Reason, Report, RequestAnswer, RequestConnection,
    RequestDisconnect, RequestMemoryRegion, RequestState, RequestToReceive, RequestToSend, Rights,
    Route, State, Target, Word,
};

/// Small numbers are as likely as large ones, because boundaries and zeros lie there.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![0..4u32, any::<u32>(), Just(u32::MAX)]
}

fn long() -> impl Strategy<Value = u64> {
    prop_oneof![0..4u64, any::<u64>(), Just(u64::MAX)]
}

fn id() -> impl Strategy<Value = u32> {
    prop_oneof![1..4u32, 1..=u32::MAX]
}

fn reason() -> impl Strategy<Value = Reason> {
    select(Reason::ALL.to_vec())
}

/// Any header.
pub(crate) fn header() -> impl Strategy<Value = Header> {
    let first = (select(Op::ALL.to_vec()), 0..0x800u16, any::<u16>());
    let second = (any::<u16>(), any::<u16>(), number());
    let third = (any::<u16>(), any::<u16>(), number(), number());
    let last = (number(), number(), number(), number());
    (first, second, third, last).prop_map(
        |(
            (op, flags, param),
            (d_port, s_port, d_key),
            (checksum, b_id, bufx, offset),
            (sync, b_num, d_id, s_id),
        )| Header {
            op,
            flags: Flags::from_bits(flags),
            param,
            d_port,
            s_port,
            d_key,
            checksum,
            b_id,
            bufx,
            offset,
            sync,
            b_num,
            d_id,
            s_id,
        },
    )
}

/// Any packet that may be sent.
pub(crate) fn packet() -> impl Strategy<Value = Packet> {
    let route = (any::<u16>(), any::<u16>(), number()).prop_map(|(d_port, s_port, d_key)| Route {
        d_port,
        s_port,
        d_key,
    });
    (route, operation()).prop_map(|(route, operation)| Packet { route, operation })
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        connection().boxed(),
        transfer().boxed(),
        memory().boxed(),
        upkeep().boxed()
    ]
}

fn connection() -> impl Strategy<Value = Operation> {
    let request = (any::<(u8, u8)>(), any::<(bool, bool)>(), number(), number()).prop_flat_map(
        |((a, b), (classic, extended), s_key, sync)| {
            capabilities(Profiles { classic, extended }).prop_map(move |capabilities| {
                Operation::RequestConnection(RequestConnection {
                    version_min: a.min(b),
                    version_max: a.max(b),
                    capabilities,
                    s_key,
                    sync,
                })
            })
        },
    );
    let disconnect = reason().prop_map(|reason| Disconnect { reason });
    prop_oneof![
        request,
        (verdict(), number()).prop_map(|(verdict, sync)| Operation::ConnectionAnswer(
            ConnectionAnswer { verdict, sync }
        )),
        (reason(), proptest::option::of(delivered())).prop_map(|(reason, delivered)| {
            Operation::RequestDisconnect(RequestDisconnect { reason, delivered })
        }),
        (disconnect, any::<bool>()).prop_map(|(it, last)| match last {
            false => Operation::DisconnectAnswer(it),
            true => Operation::DisconnectComplete(it),
        }),
    ]
}

fn delivered() -> impl Strategy<Value = Delivered> {
    let sequences = proptest::collection::vec(0..Delivered::ANNOUNCEMENTS, 0..20);
    (number(), number(), sequences).prop_map(|(executed, first, ahead)| {
        let mut delivered = Delivered::new(executed, first);
        for sequence in ahead {
            delivered.add(first.wrapping_add(sequence));
        }
        delivered
    })
}

fn capabilities(profiles: Profiles) -> impl Strategy<Value = Capabilities> {
    (any::<[bool; 7]>(), 1..=u16::MAX, id(), 0..=32u8, eager()).prop_map(
        move |(
            [
                checksum,
                out_of_order,
                persistent,
                frames,
                advance_grants,
                advance_messages,
                datagrams,
            ],
            slots,
            max_stu,
            buffer_log2,
            eager,
        )| {
            Capabilities {
                profiles,
                checksum,
                out_of_order,
                persistent,
                slots,
                max_stu,
                buffer_log2,
                eager,
                frames,
                advance_grants,
                advance_messages,
                datagrams,
                paths: 1 + slots as u8 % zerolane_wire::MAX_PATHS,
            }
        },
    )
}

fn eager() -> impl Strategy<Value = Eager> {
    let some = (1..=MAX_EAGER, number()).prop_map(|(limit, credit)| Eager { limit, credit });
    prop_oneof![Just(Eager::NONE), some]
}

fn verdict() -> impl Strategy<Value = ConnectionVerdict> {
    let one = select(vec![Profile::Classic, Profile::Extended]);
    let accept = (
        any::<u8>(),
        one.prop_flat_map(|profile| capabilities(Profiles::only(profile))),
        number(),
    )
        .prop_map(|(version, capabilities, s_key)| ConnectionVerdict::Accept {
            version,
            capabilities,
            s_key,
        });
    let reject =
        (reason(), any::<u8>(), any::<u8>()).prop_map(|(reason, version_min, version_max)| {
            ConnectionVerdict::Reject {
                reason,
                version_min,
                version_max,
            }
        });
    prop_oneof![accept, reject]
}

fn transfer() -> impl Strategy<Value = Operation> {
    let announce = (long(), id(), target(), number(), any::<bool>()).prop_map(
        |(length, s_id, target, sequence, send_state)| {
            Operation::RequestToSend(RequestToSend {
                length,
                s_id,
                target,
                sequence,
                send_state,
            })
        },
    );
    let answer = (reason(), any::<(bool, bool)>(), id(), long()).prop_map(
        |(reason, (later, numbered), d_id, room)| {
            Operation::RequestAnswer(RequestAnswer {
                answer: if later {
                    Answer::Later(reason)
                } else {
                    Answer::Refused(reason)
                },
                d_id,
                room,
                numbered,
            })
        },
    );
    let read = (long(), id(), number()).prop_map(|(capacity, s_id, sequence)| {
        Operation::RequestToReceive(RequestToReceive {
            capacity,
            s_id,
            sequence,
        })
    });
    prop_oneof![announce, answer, read, clear_to_send()]
}

fn target() -> impl Strategy<Value = Target> {
    let immediate = (number(), number()).prop_map(|(value, after)| Immediate { value, after });
    let immediate = option::of(immediate);
    let region = (number(), place(), immediate).prop_map(|(handle, (mx, bufx, offset), shown)| {
        let place = Place {
            handle,
            mx,
            bufx,
            offset,
        };
        Target::Region(place, shown)
    });
    prop_oneof![
        Just(Target::Receive),
        id().prop_map(Target::Read),
        region,
        number().prop_map(Target::Message),
    ]
}

fn clear_to_send() -> impl Strategy<Value = Operation> {
    let parts = (long(), id(), number(), any::<[bool; 3]>());
    let grant = parts.prop_map(
        |(start, length, number, [trains, in_advance, message])| Grant {
            transfer_offset: start.min(u64::MAX - u64::from(length)),
            length,
            blocks_complete: if in_advance { 0 } else { number },
            trains,
            advance: in_advance.then_some(match message {
                true => Advance::Message(number),
                false => Advance::Announcement(number),
            }),
        },
    );
    let place = (any::<u16>(), number(), number());
    let names = (number(), number(), id(), id());
    (0..=32u8, place, names, option::of(grant)).prop_map(
        |(block_log2, (mx, bufx, offset), (sequence, b_num, d_id, s_id), grant)| {
            Operation::ClearToSend(ClearToSend {
                block_log2,
                mx,
                bufx,
                offset,
                sequence,
                b_num,
                d_id,
                s_id,
                grant,
            })
        },
    )
}

fn rights() -> impl Strategy<Value = Rights> {
    any::<(bool, bool, bool)>().prop_map(|(read, write, atomic)| Rights {
        read,
        write,
        atomic,
    })
}

fn memory() -> impl Strategy<Value = Operation> {
    let request = (rights(), long(), id(), uniform32(any::<u8>())).prop_map(
        |(rights, length, s_id, name)| {
            Operation::RequestMemoryRegion(RequestMemoryRegion {
                rights,
                length,
                s_id,
                name,
            })
        },
    );
    let available = (rights(), place(), id(), number(), long()).prop_map(
        |(rights, (mx, bufx, offset), d_id, handle, length)| {
            Operation::MemoryRegionAvailable(MemoryRegionAvailable {
                rights,
                mx,
                bufx,
                offset,
                d_id,
                handle,
                length,
            })
        },
    );
    let wanted = (id(), number(), number(), any::<(bool, bool, bool)>());
    let get = (place(), number(), id(), place(), wanted).prop_map(
        |(
            (mx, bufx, offset),
            handle,
            s_id,
            (return_mx, return_bufx, return_offset),
            (length, after, b_num, (numbered, repeated, trains)),
        )| {
            Operation::Get(Get {
                mx,
                bufx,
                offset,
                handle,
                s_id,
                return_mx,
                return_bufx,
                return_offset,
                length,
                after,
                b_num,
                numbered,
                repeated,
                trains,
            })
        },
    );
    let complete =
        (number(), number()).prop_map(|(sync, s_id)| Operation::FetchOpComplete { sync, s_id });
    prop_oneof![request, available, get, fetch_op(), complete]
}

fn place() -> impl Strategy<Value = (u16, u32, u32)> {
    (any::<u16>(), number(), number())
}

fn fetch_op() -> impl Strategy<Value = Operation> {
    let kind = select(FetchOpKind::ALL.to_vec());
    let names = (number(), id(), number(), number());
    let word = select(vec![Word::U64, Word::U32]);
    ((kind, word), place(), names, long(), long()).prop_map(
        |(
            (kind, word),
            (mx, bufx, offset),
            (handle, s_id, sync, confirmed),
            operand,
            comparand,
        )| {
            Operation::FetchOp(FetchOp {
                kind,
                word,
                mx,
                bufx,
                offset: offset - offset % word.bytes(),
                handle,
                s_id,
                sync,
                operand: operand & word.max(),
                comparand: comparand & word.max(),
                confirmed,
            })
        },
    )
}

fn ranges() -> impl Strategy<Value = Ranges> {
    let range = (number(), id()).prop_map(|(start, len)| Range {
        start: start.min(u32::MAX - len),
        len,
    });
    proptest::collection::vec(range, 0..=MAX_RANGES).prop_map(|list| {
        let mut ranges = Ranges::EMPTY;
        for range in list {
            assert!(ranges.push(range));
        }
        ranges
    })
}

fn upkeep() -> impl Strategy<Value = Operation> {
    let request = (number(), number(), number(), number()).prop_map(|(b_num, d_id, s_id, sync)| {
        Operation::RequestState(RequestState {
            b_num,
            d_id,
            s_id,
            sync,
        })
    });
    let end = (
        reason(),
        any::<(bool, bool)>(),
        number(),
        number(),
        number(),
    )
        .prop_map(|(reason, (from_source, ack), sequence, d_id, s_id)| {
            let end = End {
                reason,
                from_source,
                sequence,
                d_id,
                s_id,
            };
            if ack {
                Operation::EndAck(end)
            } else {
                Operation::End(end)
            }
        });
    let memory = (number(), any::<bool>(), any::<bool>()).prop_map(|(expected, resend, trains)| {
        Operation::MemoryState(MemoryState {
            expected,
            resend,
            trains,
        })
    });
    prop_oneof![request, state(), memory, end, nop()]
}

fn state() -> impl Strategy<Value = Operation> {
    let blocks = (number(), number(), number());
    let flags = any::<(bool, bool)>();
    (occasion(), flags, blocks, number(), number(), report()).prop_map(
        |(occasion, (complete, unknown), (blocks_complete, b_num, reached), d_id, s_id, report)| {
            Operation::State(State {
                occasion,
                complete,
                unknown,
                blocks_complete,
                b_num,
                reached,
                d_id,
                s_id,
                report,
            })
        },
    )
}

fn occasion() -> impl Strategy<Value = Occasion> {
    prop_oneof![
        number().prop_map(Occasion::Reply),
        number().prop_map(Occasion::Seen)
    ]
}

fn report() -> impl Strategy<Value = Report> {
    let told = (long(), number(), number(), number(), any::<bool>());
    let progress = told.prop_map(|(received, delay_us, marked, capable, trains)| {
        Report::Progress(Progress {
            received,
            delay_us,
            marked,
            capable,
            trains,
        })
    });
    prop_oneof![ranges().prop_map(Report::Missing), progress]
}

fn nop() -> impl Strategy<Value = Operation> {
    let options = option::of(uniform32(any::<u8>()));
    let flags = any::<(bool, bool, bool)>();
    let path = 0..zerolane_wire::MAX_PATHS;
    (flags, option::of(id()), number(), options, path).prop_map(
        |((send_state, reply, leaves), probe, sync, options, path)| {
            Operation::Nop(Nop {
                send_state,
                reply,
                probe: probe.unwrap_or(0),
                path,
                leaves,
                sync,
                options: options.filter(|_| probe.is_none()),
            })
        },
    )
}
