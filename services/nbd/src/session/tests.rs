//! Tests that a session negotiates, parses requests and refuses malformed ones.
#![allow(non_snake_case)]

use super::*;

const EXPORT: Export = Export {
    bytes: 1 << 20,
    block_bytes: 512,
    read_only: false,
    thin: true,
};

const OPTION: &[u8] = b"IHAVEOPT";
const REPLY: [u8; 8] = 0x0003_e889_0455_65a9u64.to_be_bytes();

fn flags(bits: u32) -> Vec<u8> {
    bits.to_be_bytes().to_vec()
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let length = data.len() as u32;
    let head = [number.to_be_bytes(), length.to_be_bytes()].concat();
    [OPTION, &head, data].concat()
}

/// The data of INFO and GO for an export, with these requests for information.
fn go(name: &str, wanted: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.bytes());
    data.extend((wanted.len() as u16).to_be_bytes());
    data.extend(wanted.iter().flat_map(|it| it.to_be_bytes()));
    data
}

/// The data of options about contexts.
fn contexts(queries: &[&str]) -> Vec<u8> {
    let mut data = vec![0; 4];
    data.extend((queries.len() as u32).to_be_bytes());
    for query in queries {
        data.extend((query.len() as u32).to_be_bytes());
        data.extend(query.bytes());
    }
    data
}

fn request(flags: u16, kind: u16, at: u64, bytes: u32) -> Vec<u8> {
    let mut request = 0x2560_9513u32.to_be_bytes().to_vec();
    request.extend(flags.to_be_bytes());
    request.extend(kind.to_be_bytes());
    request.extend(0x0102_0304_0506_0708u64.to_be_bytes());
    request.extend(at.to_be_bytes());
    request.extend(bytes.to_be_bytes());
    request
}

/// Option, kind and data of each answer to an option.
fn answers(mut bytes: &[u8]) -> Vec<(u32, u32, Vec<u8>)> {
    let mut answers = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(20) {
        assert_eq!(head[..8], REPLY);
        let number = |at: usize| u32::from_be_bytes(*head[at..].first_chunk().unwrap());
        let (data, behind) = rest.split_at(number(16) as usize);
        answers.push((number(8), number(12), data.to_vec()));
        bytes = behind;
    }
    assert!(bytes.is_empty());
    answers
}

/// A session to which `parts` were said, which are options; and what it answered.
fn negotiated(export: Export, parts: &[Vec<u8>]) -> (Session, Vec<u8>) {
    let mut greeting = Vec::new();
    let mut session = Session::new(export, &mut greeting);
    assert_eq!(greeting, b"NBDMAGICIHAVEOPT\x00\x03");
    let mut out = Vec::new();
    let all = [&[flags(3)], parts].concat().concat();
    assert_eq!(session.take(&all, &mut out).unwrap(), (all.len(), None));
    (session, out)
}

fn serving(export: Export, structured: bool) -> Session {
    let mut parts = Vec::new();
    if structured {
        parts.push(option(8, &[]));
        parts.push(option(10, &contexts(&["base:allocation"])));
    }
    parts.push(option(7, &go("", &[])));
    let (session, _) = negotiated(export, &parts);
    assert!(session.is_serving());
    session
}

fn asked(session: &mut Session, bytes: &[u8]) -> Request {
    let taken = session.take(bytes, &mut Vec::new()).unwrap();
    let (28, Some(Event::Request(request))) = taken else {
        panic!("{taken:?}");
    };
    request
}

#[test]
fn negotiation__go_says_size_flags_and_lengths() {
    for (structured, flags) in [(false, 0x016d_u16), (true, 0x01ed)] {
        let mut parts = vec![option(7, &go("", &[3]))];
        if structured {
            parts.insert(0, option(8, &[]));
        }
        let (session, out) = negotiated(EXPORT, &parts);
        assert!(session.is_serving());
        let said = answers(&out);
        let about = [
            &[0, 0][..],
            &(1u64 << 20).to_be_bytes(),
            &flags.to_be_bytes(),
        ]
        .concat();
        let lengths = [&[0, 3][..], &[0, 0, 2, 0], &[0, 0, 16, 0], &[2, 0, 0, 0]].concat();
        let wanted = [(7, 3, about), (7, 3, lengths), (7, 1, Vec::new())];
        assert_eq!(said[usize::from(structured)..], wanted);
    }
}

/// A client that is told of it trims all of a disk before it makes a file system.
#[test]
fn negotiation__offers_to_trim_only_what_gives_space_back() {
    const TRIM: u16 = 1 << 5;
    for (thin, read_only) in [(true, false), (false, false), (true, true)] {
        let export = Export {
            thin,
            read_only,
            ..EXPORT
        };
        let (_, out) = negotiated(export, &[option(7, &go("", &[]))]);
        let (_, _, about) = &answers(&out)[0];
        let flags = u16::from_be_bytes(*about[10..].first_chunk().unwrap());
        assert_eq!(flags & TRIM != 0, thin && !read_only, "{flags:04x}");
    }
}

#[test]
fn negotiation__the_oldest_way_gets_size_flags_and_zeros() {
    let mut session = Session::new(EXPORT, &mut Vec::new());
    let mut out = Vec::new();
    let said = [flags(1), option(1, &[])].concat();
    session.take(&said, &mut out).unwrap();
    assert!(session.is_serving());
    let wanted = [&(1u64 << 20).to_be_bytes()[..], &[1, 0x6d], &[0; 124]].concat();
    assert_eq!(out, wanted);
    let other = [flags(1), option(1, b"other")].concat();
    let mut session = Session::new(EXPORT, &mut Vec::new());
    let refused = session.take(&other, &mut Vec::new());
    assert_eq!(refused, Err(Offence::Export));
}

#[test]
fn negotiation__lists_informs_refuses_and_ends() {
    let parts = [
        option(3, &[]),
        option(3, b"x"),
        option(5, &[]),
        option(999, b"data"),
        option(6, &go("", &[])),
        option(6, &go("other", &[])),
        option(7, b"\0\0\0\xffshort"),
        option(10, &contexts(&["base:allocation"])),
    ];
    let (session, out) = negotiated(EXPORT, &parts);
    assert!(!session.is_serving());
    let kinds = answers(&out);
    let kinds: Vec<(u32, u32)> = kinds.iter().map(|it| (it.0, it.1)).collect();
    let error = |number: u32| 1 << 31 | number;
    let wanted = [
        (3, 2),
        (3, 1),
        (3, error(3)),
        (5, error(1)),
        (999, error(1)),
        (6, 3),
        (6, 1),
        (6, error(6)),
        (7, error(3)),
        // Without structured replies.
        (10, error(3)),
    ];
    assert_eq!(kinds, wanted);
    let mut session = Session::new(EXPORT, &mut Vec::new());
    let said = [flags(3), option(2, &[])].concat();
    let mut out = Vec::new();
    let taken = session.take(&said, &mut out).unwrap();
    assert_eq!(taken, (said.len(), Some(Event::Leaving)));
    assert_eq!(answers(&out), [(2, 1, Vec::new())]);
}

#[test]
fn negotiation__contexts_are_those_that_there_are() {
    let allocation = |id: u32| [&id.to_be_bytes()[..], b"base:allocation"].concat();
    for (number, queries, found) in [
        (9, &[][..], true),
        (9, &["base:"], true),
        (9, &["qemu:"], false),
        (10, &[], false),
        (10, &["base:"], false),
        (10, &["qemu:x", "base:allocation"], true),
    ] {
        let parts = [option(8, &[]), option(number, &contexts(queries))];
        let (_, out) = negotiated(EXPORT, &parts);
        let said = answers(&out);
        let id = u32::from(number == 10);
        let mut wanted = vec![(8, 1, Vec::new())];
        wanted.extend(found.then(|| (number, 4, allocation(id))));
        wanted.push((number, 1, Vec::new()));
        assert_eq!(said, wanted, "{number} {queries:?}");
    }
}

#[test]
fn negotiation__what_no_client_does_ends_it() {
    let late = [flags(3), option(3, &[]).repeat(1025)].concat();
    let long = [flags(3), option(1, &vec![0; 1 << 17])].concat();
    for (said, offence) in [
        (flags(4), Offence::Flags),
        (flags(1 << 16), Offence::Flags),
        ([flags(3), vec![7; 16]].concat(), Offence::Magic),
        (long, Offence::OptionLength(1 << 17)),
        (late, Offence::Options),
    ] {
        let mut session = Session::new(EXPORT, &mut Vec::new());
        let refused = session.take(&said, &mut Vec::new());
        assert_eq!(refused, Err(offence));
    }
}

#[test]
fn requests__say_what_is_asked_for() {
    let mut session = serving(EXPORT, true);
    let durable = true;
    for (flags, kind, wanted) in [
        (0, 0, Kind::Read),
        (4, 0, Kind::Read),
        (1, 1, Kind::Write { durable }),
        (1, 4, Kind::Trim { durable }),
        (
            0,
            6,
            Kind::Zero {
                unmap: true,
                durable: false,
            },
        ),
        (
            3,
            6,
            Kind::Zero {
                unmap: false,
                durable,
            },
        ),
        (8, 7, Kind::Status { one: true }),
    ] {
        let request = asked(&mut session, &request(flags, kind, 1 << 19, 1 << 19));
        assert_eq!((request.kind, request.refused), (wanted, None));
        assert_eq!((request.at, request.bytes), (1 << 19, 1 << 19));
        assert_eq!(request.cookie, 0x0102_0304_0506_0708);
        let payload = if kind == 1 { 1 << 19 } else { 0 };
        assert_eq!(request.payload(), payload);
    }
    let flush = asked(&mut session, &request(0, 3, 0, 0));
    assert_eq!((flush.kind, flush.refused), (Kind::Flush, None));
    let gone = session.take(&request(0, 2, 0, 0), &mut Vec::new());
    assert_eq!(gone.unwrap(), (28, Some(Event::Leaving)));
}

#[test]
fn requests__that_cannot_be_are_refused() {
    let read_only = Export {
        read_only: true,
        ..EXPORT
    };
    let end = EXPORT.bytes;
    for (export, structured, flags, kind, at, bytes, why) in [
        (EXPORT, true, 0, 0, end - 512, 513, Errno::INVALID),
        (EXPORT, true, 0, 0, u64::MAX, 1, Errno::INVALID),
        (EXPORT, true, 0, 1, end, 512, Errno::SPACE),
        (EXPORT, true, 0, 6, 0, u32::MAX, Errno::SPACE),
        (EXPORT, true, 0, 4, end, 512, Errno::INVALID),
        (EXPORT, true, 0, 7, end, 512, Errno::INVALID),
        (EXPORT, true, 0, 7, 0, 0, Errno::INVALID),
        (EXPORT, false, 0, 7, 0, 512, Errno::INVALID),
        // Flags that are not of the command, or were not offered.
        (EXPORT, false, 4, 0, 0, 512, Errno::INVALID),
        (EXPORT, true, 2, 1, 0, 512, Errno::INVALID),
        (EXPORT, true, 16, 6, 0, 512, Errno::INVALID),
        // CACHE, RESIZE, and one that there is not.
        (EXPORT, true, 0, 5, 0, 512, Errno::INVALID),
        (EXPORT, true, 0, 8, 0, 512, Errno::INVALID),
        (EXPORT, true, 0, 77, 0, 512, Errno::INVALID),
        (EXPORT, true, 0, 3, 1, 0, Errno::INVALID),
        (read_only, true, 0, 1, 0, 512, Errno::PERMISSION),
        (read_only, true, 0, 4, 0, 512, Errno::PERMISSION),
        (read_only, true, 0, 6, 0, 512, Errno::PERMISSION),
    ] {
        let mut session = serving(export, structured);
        let request = asked(&mut session, &request(flags, kind, at, bytes));
        assert_eq!(request.refused, Some(why), "{request:?}");
    }
    let large = Export {
        bytes: 1 << 40,
        ..EXPORT
    };
    let mut session = serving(large, true);
    let read = asked(&mut session, &request(0, 0, 0, (32 << 20) + 1));
    assert_eq!(read.refused, Some(Errno::INVALID));
    let write = session.take(&request(0, 1, 0, (32 << 20) + 1), &mut Vec::new());
    assert_eq!(write, Err(Offence::Payload((32 << 20) + 1)));
    let none = session.take(&[7; 28], &mut Vec::new());
    assert_eq!(none, Err(Offence::Magic));
}

#[test]
fn replies__are_as_was_agreed() {
    let cookie = 0x0102_0304_0506_0708u64.to_be_bytes();
    let mut session = serving(EXPORT, false);
    let read = asked(&mut session, &request(0, 0, 512, 1024));
    let simple = [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0][..], &cookie].concat();
    assert_eq!(session.done(&read), simple);
    let failed = [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 5][..], &cookie].concat();
    assert_eq!(session.failed(&read, Errno::IO), failed);

    let mut session = serving(EXPORT, true);
    let read = asked(&mut session, &request(0, 0, 512, 1024));
    let head = |kind: [u8; 2], bytes: u8| {
        let kind = [&[0x66, 0x8e, 0x33, 0xef, 0, 1][..], &kind].concat();
        [&kind[..], &cookie, &[0, 0, 0, bytes]].concat()
    };
    let mut data = head([0, 1], 0);
    data[18] = 4;
    data[19] = 8;
    data.extend(512u64.to_be_bytes());
    assert_eq!(session.done(&read), data);
    let error = [&head([0x80, 1], 6)[..], &[0, 0, 0, 28, 0, 0]].concat();
    assert_eq!(session.failed(&read, Errno::SPACE), error);
    let flush = asked(&mut session, &request(0, 3, 0, 0));
    assert_eq!(session.done(&flush), head([0, 0], 0));
    let none = asked(&mut session, &request(0, 0, 512, 0));
    assert_eq!(session.done(&none), head([0, 0], 0));
    let status = asked(&mut session, &request(0, 7, 0, 1024));
    let extents = session.extents(&status, &[(512, true), (512, false)]);
    let numbers = [1u32, 512, 0, 512, 3];
    let numbers = numbers.iter().flat_map(|it| it.to_be_bytes());
    let wanted: Vec<u8> = head([0, 5], 20).into_iter().chain(numbers).collect();
    assert_eq!(extents, wanted);
    // What was asked for before the client left is answered as before.
    session.take(&request(0, 2, 0, 0), &mut Vec::new()).unwrap();
    assert_eq!(session.done(&read), data);
}

#[test]
fn errors__are_those_that_nbd_knows() {
    for (number, errno) in [
        (1, Errno::PERMISSION),
        (22, Errno::INVALID),
        (28, Errno::SPACE),
        (12, Errno::MEMORY),
        (5, Errno::IO),
        (2, Errno::IO),
        (-1, Errno::IO),
    ] {
        assert_eq!(Errno::of(number), errno, "{number}");
    }
}
