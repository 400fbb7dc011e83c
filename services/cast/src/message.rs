//! Encodes and parses the messages between nodes, other than chunks.
//!
//! Every message starts with magic and version at fixed positions; the rest is postcard. Parsing trusts no length: a message
//! has at most [`MESSAGE_BYTES`], and its fields are checked before anything acts on them.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bitmap::Bitmap;
use crate::limits::{
    ADDRESS_BYTES, HASHES_PER_MESSAGE, MAX_CHUNKS, MAX_CONTACTS, MAX_REQUESTS, MESSAGE_BYTES,
};
use crate::manifest::{Hash, Header, Mismatch};

/// First bytes of every message.
const MAGIC: [u8; 3] = *b"ZLc";
/// The version of the cast protocol.
pub const VERSION: u8 = 1;
const PROLOGUE_BYTES: usize = MAGIC.len() + 1;

/// The number of a node, derived from its public key, so that a driver can authenticate a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The number of the holder of a public key.
    #[must_use]
    pub fn of_key(key: &[u8]) -> NodeId {
        let digest = blake3::derive_key("zerolane cast node 1", key);
        let (first, _) = digest.split_first_chunk().expect("a digest has 32 bytes");
        NodeId(u64::from_le_bytes(*first))
    }
}

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// A node and where it listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// Its number.
    pub id: NodeId,
    /// Its address in the driver's format, at most [`ADDRESS_BYTES`] long.
    pub address: Vec<u8>,
}

/// Why a peer is reported or disconnected.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Error,
)]
pub enum Fault {
    /// It is gone or silent.
    #[error("silent, or gone")]
    Gone,
    /// It sent a chunk with a wrong digest.
    #[error("sent a wrong chunk")]
    WrongChunk,
    /// It sent digests that the root does not cover.
    #[error("sent wrong digests")]
    WrongHashes,
    /// It sent bytes that are not a valid message.
    #[error("sent bytes that are not a message")]
    Garbage,
    /// A message names chunks that do not exist, or has a bitmap of another content.
    #[error("named chunks that do not exist")]
    UnknownChunk,
    /// It sent or asked for more than may be outstanding.
    #[error("sent or asked for too much")]
    Flood,
    /// It gave orders that only a coordinator gives.
    #[error("gave orders without being the coordinator")]
    Order,
    /// It accused more peers than can be true.
    #[error("accused too many nodes")]
    Accuser,
    /// It is too slow for the policy of this cast.
    #[error("too slow")]
    Slow,
    /// It received none of its available chunks for longer than the coordinator's patience.
    #[error("received nothing for too long")]
    Idle,
}

/// A node's place in the topology, as the coordinator assigns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Counts the changes of the membership. A node ignores an older place.
    pub epoch: u64,
    /// The predecessor in each stripe, if there is one.
    pub predecessors: Vec<Option<Contact>>,
    /// Other nodes that have the chunks that this node missed.
    pub helpers: Vec<Contact>,
    /// The nodes that take over from the source as coordinator, in order.
    pub successors: Vec<Contact>,
    /// Demoted: it has no successors, and others are served first.
    pub demoted: bool,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// To the coordinator: this node takes part.
    Join {
        /// Where it listens.
        address: Vec<u8>,
        /// The label of its place in the network: nodes of one label are near each other.
        rack: u32,
        /// Measured bandwidth, bytes a second; 0 if unknown.
        rate: u64,
        /// The content root of its earlier attempt.
        root: Hash,
        /// The chunks that it has of it.
        has: Bitmap,
    },
    /// From the coordinator: the header of the content.
    Welcome(Header),
    /// From the coordinator: where this node stands.
    Place(Place),
    /// To the coordinator: the number of verified chunks in each stripe, and whether all are on the disk.
    Progress {
        /// Chunks of each stripe.
        verified: Vec<u32>,
        /// All is verified and written.
        done: bool,
        /// The peer for which this node holds the chunks that fill its window.
        held_by: Option<NodeId>,
    },
    /// To the coordinator: this peer is of no use to this node.
    Report {
        /// Which peer.
        peer: NodeId,
        /// Why.
        fault: Fault,
    },
    /// To the coordinator: no known node provides the missing chunks.
    Seek,
    /// From the coordinator: these may have it.
    Helpers(Vec<Contact>),
    /// From the coordinator: this node is excluded.
    Dismissed(Fault),
    /// From the coordinator: all nodes are done, or have failed.
    Finished,
    /// Between peers: the chunks of this end.
    Hello {
        /// Of which content.
        root: Hash,
        /// Which chunks.
        has: Bitmap,
        /// Whether the same is wanted in return.
        answer: bool,
        /// Others come first.
        demoted: bool,
    },
    /// Send the digests from this chunk on.
    AskHashes {
        /// The first.
        first: u32,
    },
    /// Digests of the chunks from the first on.
    Hashes {
        /// The first.
        first: u32,
        /// The digests.
        hashes: Vec<Hash>,
    },
    /// Send these chunks, each as soon as it is there and verified.
    Request(Vec<u32>),
    /// These are no longer wanted.
    Cancel(Vec<u32>),
    /// These were requested, but have left memory and cannot be read again.
    Missing(Vec<u32>),
    /// This end is alive.
    Alive,
}

/// Why bytes are not a valid message.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BadMessage {
    /// It is longer than any may be.
    #[error("message of {0} bytes, at most {MESSAGE_BYTES}")]
    TooLong(usize),
    /// It is not of this protocol.
    #[error("message without the magic of a cast")]
    Magic,
    /// It is of another version.
    #[error("cast protocol version {0}, not {VERSION}")]
    Version(u8),
    /// It is cut off, goes on behind its end, or has a part that is none.
    #[error("malformed message")]
    Form,
    /// An address is too long.
    #[error("address of {0} bytes, at most {ADDRESS_BYTES}")]
    Address(usize),
    /// A list is too long.
    #[error("list of {0} entries")]
    List(usize),
    /// A chunk cannot exist.
    #[error("chunk {0} cannot exist")]
    Chunk(u32),
    /// The header or digests are not valid.
    #[error(transparent)]
    Header(#[from] Mismatch),
}

impl Message {
    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend(MAGIC);
        bytes.push(VERSION);
        postcard::to_extend(self, bytes).expect("a message in memory has a form on the wire")
    }

    /// The message that `bytes` are.
    ///
    /// # Errors
    /// The bytes are malformed; the error names the wrong part.
    pub fn parse(bytes: &[u8]) -> Result<Message, BadMessage> {
        if bytes.len() > MESSAGE_BYTES {
            return Err(BadMessage::TooLong(bytes.len()));
        }
        let (prologue, body) = bytes
            .split_first_chunk::<PROLOGUE_BYTES>()
            .ok_or(BadMessage::Magic)?;
        match *prologue {
            [a, b, c, _] if [a, b, c] != MAGIC => return Err(BadMessage::Magic),
            [.., VERSION] => {}
            [.., version] => return Err(BadMessage::Version(version)),
        }
        let (message, rest) =
            postcard::take_from_bytes::<Message>(body).map_err(|_| BadMessage::Form)?;
        if !rest.is_empty() {
            return Err(BadMessage::Form);
        }
        message.check()?;
        Ok(message)
    }

    fn check(&self) -> Result<(), BadMessage> {
        match self {
            Message::Join { address, .. } => check_address(address),
            Message::Welcome(header) => Ok(header.check()?),
            Message::Place(place) => {
                let named = place.predecessors.iter().flatten();
                check_length(place.predecessors.len(), MAX_CONTACTS)?;
                check_contacts(named)?;
                check_contacts(&place.helpers)?;
                check_contacts(&place.successors)
            }
            Message::Progress { verified, .. } => check_length(verified.len(), MAX_CONTACTS),
            Message::Helpers(contacts) => check_contacts(contacts),
            Message::AskHashes { first } => check_chunk(*first),
            Message::Hashes { first, hashes } => {
                check_chunk(*first)?;
                check_length(hashes.len(), HASHES_PER_MESSAGE)
            }
            Message::Request(chunks) | Message::Cancel(chunks) | Message::Missing(chunks) => {
                check_length(chunks.len(), MAX_REQUESTS)?;
                chunks.iter().try_for_each(|it| check_chunk(*it))
            }
            Message::Report { .. } | Message::Seek | Message::Dismissed(_) | Message::Finished => {
                Ok(())
            }
            Message::Hello { .. } | Message::Alive => Ok(()),
        }
    }
}

fn check_address(address: &[u8]) -> Result<(), BadMessage> {
    match address.len() {
        0..=ADDRESS_BYTES => Ok(()),
        len => Err(BadMessage::Address(len)),
    }
}

fn check_contacts<'a>(contacts: impl IntoIterator<Item = &'a Contact>) -> Result<(), BadMessage> {
    let mut count = 0;
    for contact in contacts {
        count += 1;
        check_address(&contact.address)?;
    }
    check_length(count, MAX_CONTACTS)
}

fn check_length(len: usize, most: usize) -> Result<(), BadMessage> {
    match len <= most {
        true => Ok(()),
        false => Err(BadMessage::List(len)),
    }
}

fn check_chunk(chunk: u32) -> Result<(), BadMessage> {
    match chunk < MAX_CHUNKS {
        true => Ok(()),
        false => Err(BadMessage::Chunk(chunk)),
    }
}
