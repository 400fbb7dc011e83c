//! Tests that messages round-trip, and that malformed ones are refused.
#![allow(non_snake_case)]

use proptest::collection::vec;
use proptest::prelude::*;

use crate::bitmap::Bitmap;
use crate::limits::{
    ADDRESS_BYTES, HASHES_PER_MESSAGE, MAX_CHUNKS, MAX_CONTACTS, MAX_REQUESTS, MESSAGE_BYTES,
};
use crate::manifest::Header;
use crate::message::{BadMessage, Contact, Fault, Message, NodeId, Place, VERSION};

fn bitmap() -> impl Strategy<Value = Bitmap> {
    (0..300u32, vec(0..300u32, 0..300)).prop_map(|(len, chunks)| {
        let mut bitmap = Bitmap::empty(len);
        for chunk in chunks {
            bitmap.insert(chunk);
        }
        bitmap
    })
}

fn contact() -> impl Strategy<Value = Contact> {
    let parts = (any::<u64>(), vec(any::<u8>(), 0..40));
    parts.prop_map(|(id, address)| Contact {
        id: NodeId(id),
        address,
    })
}

fn chunks() -> impl Strategy<Value = Vec<u32>> {
    vec(0..MAX_CHUNKS, 0..50)
}

fn message() -> impl Strategy<Value = Message> {
    let id = any::<u64>().prop_map(NodeId);
    let fault = prop_oneof![
        Just(Fault::Gone),
        Just(Fault::WrongChunk),
        Just(Fault::Slow),
        Just(Fault::Idle)
    ];
    let hash = any::<[u8; 32]>();
    prop_oneof![
        (
            vec(any::<u8>(), 0..40),
            any::<u32>(),
            any::<u64>(),
            hash,
            bitmap()
        )
            .prop_map(|(address, rack, rate, root, has)| Message::Join {
                address,
                rack,
                rate,
                root,
                has
            }),
        (hash, 1..1u64 << 40, 1 << 20..u32::MAX, 1..=64u32).prop_map(
            |(root, bytes, chunk_bytes, arity)| {
                Message::Welcome(Header {
                    root,
                    bytes,
                    chunk_bytes,
                    arity,
                })
            }
        ),
        (
            any::<u64>(),
            vec(proptest::option::of(contact()), 0..9),
            vec(contact(), 0..4),
            any::<bool>()
        )
            .prop_map(|(epoch, predecessors, helpers, demoted)| {
                let successors = helpers.clone();
                Message::Place(Place {
                    epoch,
                    predecessors,
                    helpers,
                    successors,
                    demoted,
                })
            }),
        (
            vec(any::<u32>(), 0..9),
            any::<bool>(),
            proptest::option::of(any::<u64>().prop_map(NodeId))
        )
            .prop_map(|(verified, done, held_by)| Message::Progress {
                verified,
                done,
                held_by
            }),
        (id, fault.clone()).prop_map(|(peer, fault)| Message::Report { peer, fault }),
        Just(Message::Seek),
        vec(contact(), 0..4).prop_map(Message::Helpers),
        fault.prop_map(Message::Dismissed),
        Just(Message::Finished),
        (hash, bitmap(), any::<bool>(), any::<bool>()).prop_map(|(root, has, answer, demoted)| {
            Message::Hello {
                root,
                has,
                answer,
                demoted,
            }
        }),
        (0..MAX_CHUNKS).prop_map(|first| Message::AskHashes { first }),
        (0..MAX_CHUNKS, vec(hash, 0..20))
            .prop_map(|(first, hashes)| Message::Hashes { first, hashes }),
        chunks().prop_map(Message::Request),
        chunks().prop_map(Message::Cancel),
        chunks().prop_map(Message::Missing),
        Just(Message::Alive),
    ]
}

proptest! {
    #[test]
    fn Message__is_the_same_after_the_wire(message in message()) {
        let bytes = message.encode();
        prop_assert_eq!(Message::parse(&bytes), Ok(message));
        // Nothing may follow, and nothing may be missing.
        let longer = [&bytes[..], &[0]].concat();
        prop_assert_eq!(Message::parse(&longer), Err(BadMessage::Form));
        prop_assert!(Message::parse(&bytes[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn parse__garbage_is_refused_or_is_a_message(mut bytes in vec(any::<u8>(), 0..200), honest in any::<bool>()) {
        if honest && bytes.len() > 4 {
            bytes[..4].copy_from_slice(&[b'Z', b'L', b'c', VERSION]);
        }
        if let Ok(message) = Message::parse(&bytes) {
            prop_assert_eq!(Message::parse(&message.encode()), Ok(message));
        }
    }
}

#[test]
fn parse__each_limit_has_its_error() {
    let bad = |message: Message| Message::parse(&message.encode()).unwrap_err();
    let address = vec![0; ADDRESS_BYTES + 1];
    let contact = Contact {
        id: NodeId(1),
        address,
    };
    assert_eq!(
        bad(Message::Helpers(vec![contact])),
        BadMessage::Address(ADDRESS_BYTES + 1)
    );
    let contacts = vec![
        Contact {
            id: NodeId(1),
            address: Vec::new()
        };
        MAX_CONTACTS + 1
    ];
    assert_eq!(
        bad(Message::Helpers(contacts)),
        BadMessage::List(MAX_CONTACTS + 1)
    );
    assert_eq!(
        bad(Message::Request(vec![MAX_CHUNKS])),
        BadMessage::Chunk(MAX_CHUNKS)
    );
    assert_eq!(
        bad(Message::Cancel(vec![0; MAX_REQUESTS + 1])),
        BadMessage::List(MAX_REQUESTS + 1)
    );
    let hashes = vec![[0; 32]; HASHES_PER_MESSAGE + 1];
    assert_eq!(
        bad(Message::Hashes { first: 0, hashes }),
        BadMessage::List(HASHES_PER_MESSAGE + 1)
    );
    let header = Header {
        root: [0; 32],
        bytes: u64::from(MAX_CHUNKS) + 1,
        chunk_bytes: 1,
        arity: 1,
    };
    assert!(matches!(
        bad(Message::Welcome(header)),
        BadMessage::Header(_)
    ));
    assert_eq!(Message::parse(&[]), Err(BadMessage::Magic));
    assert_eq!(Message::parse(b"ZLfs\x01"), Err(BadMessage::Magic));
    assert_eq!(
        Message::parse(&[b'Z', b'L', b'c', 9, 0]),
        Err(BadMessage::Version(9))
    );
    assert_eq!(
        Message::parse(&vec![0; MESSAGE_BYTES + 1]),
        Err(BadMessage::TooLong(MESSAGE_BYTES + 1))
    );
}

#[test]
fn Message__the_largest_fits() {
    let (root, address) = ([1; 32], vec![0; ADDRESS_BYTES]);
    let has = Bitmap::full(MAX_CHUNKS);
    let join = Message::Join {
        address: address.clone(),
        rack: u32::MAX,
        rate: u64::MAX,
        root,
        has,
    };
    let hashes = Message::Hashes {
        first: MAX_CHUNKS - 1,
        hashes: vec![root; HASHES_PER_MESSAGE],
    };
    let contacts = vec![
        Contact {
            id: NodeId(u64::MAX),
            address
        };
        MAX_CONTACTS
    ];
    let place = Message::Place(Place {
        epoch: u64::MAX,
        predecessors: contacts.iter().cloned().map(Some).collect(),
        helpers: contacts.clone(),
        successors: contacts,
        demoted: true,
    });
    for message in [join, hashes, place] {
        assert_eq!(Message::parse(&message.encode()), Ok(message));
    }
}
