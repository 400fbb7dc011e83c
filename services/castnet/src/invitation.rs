//! Encodes the messages between source and host before the host becomes a node, and those about the end of its part.
//!
//! ```text
//! source                                   host
//!   Offer: name, form, bytes, meta ---->
//!                                <------   Joins: its key in this cast; or Refuses, with a reason
//!                                <------   Looks: bytes of an earlier attempt checked so far, once a second
//!   Group: secret, key, port, rack ---->     from here on it is a node
//!                                <------   Finishes: all bytes arrived and are being put in place, once a second
//!                                <------   Ended: all is in place, or the reason why not
//!   Aborted, with a reason       ------>     (only if the source gives up)
//! ```
//! A host that lost this connection, and that the source cannot call again, sends `Ended` to the source as a node. Its key
//! and the group's secret prove that it was invited.
//!
//! Each message is one Transfer: magic and version at fixed positions, then postcard, at most [`WORD_BYTES`].

use serde::{Deserialize, Serialize};
use zerolane::request::{Transfer, WorkKind};
use zerolane::security::PublicKey;
use zerolane::worker::{ConnectionId, Worker};
use zerolane::{Completion, Region, Result};

use crate::limits::WORD_BYTES;
use crate::meta::Meta;

const MAGIC: [u8; 4] = *b"ZLi\x05";

/// The context of a last word: that of a message of a node is its length.
const LAST: u64 = u64::MAX;

/// The type of the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// A file, a device or a stream: bytes.
    Bytes,
    /// A directory with all that is in it, as a tar archive.
    Tree,
}

/// The offered content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// The last part of its path.
    pub(crate) name: Vec<u8>,
    pub(crate) form: Form,
    pub(crate) bytes: u64,
    /// The metadata of a file.
    pub(crate) meta: Option<Meta>,
}

/// From the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Call {
    /// The offered content.
    Offer(Offer),
    /// The data that a node of the cast needs.
    Group {
        /// Proves membership to other nodes.
        secret: [u8; 32],
        /// The key that the source has in this cast.
        key: [u8; 32],
        /// Where the source listens for nodes, at the address of this connection.
        port: u16,
        /// The label of this host's rack. The host reports it to each leader, also after the source is gone.
        rack: u32,
    },
    /// The source gives up.
    Aborted(String),
}

/// From a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Word {
    /// It takes part, with this key.
    Joins([u8; 32]),
    /// It does not, and why.
    Refuses(String),
    /// The host checks an earlier attempt before it becomes a node: the bytes checked so far.
    Looks(u64),
    /// It has all, and puts it in its place.
    Finishes,
    /// All is in its place, or why not.
    Ended(std::result::Result<(), String>),
}

/// Posts a receive of a word.
pub(crate) fn listen(worker: &mut Worker, connection: ConnectionId) -> Result<()> {
    if let Some(connection) = worker.connection(connection) {
        connection.post_recv(Region::anonymous(WORD_BYTES)?)?;
    }
    Ok(())
}

/// Whether bytes claim to be a message of this module, rather than a message of a node.
pub(crate) fn is_word(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Says a word; none hears it if the connection is over.
pub(crate) fn say(worker: &mut Worker, connection: ConnectionId, word: &impl Serialize) {
    post(worker, connection, word, 0);
}

/// The same of the last word, whose confirmation [`confirms_last`] knows.
pub(crate) fn say_last(worker: &mut Worker, connection: ConnectionId, word: &Word) {
    post(worker, connection, word, LAST);
}

/// Whether a completion is that of a last word.
pub(crate) fn confirms_last(completion: &Completion) -> bool {
    completion.kind() == WorkKind::Send && completion.context == LAST
}

fn post(worker: &mut Worker, connection: ConnectionId, word: &impl Serialize, context: u64) {
    let bytes =
        postcard::to_extend(word, MAGIC.to_vec()).expect("a word in memory has a form on the wire");
    if let Some(connection) = worker.connection(connection) {
        // A connection that is over tells so by itself.
        let _ = connection.post(Transfer::new(Region::from_vec(bytes)).context(context));
    }
}

/// The word that bytes are; `None` if they are none.
pub(crate) fn parse<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Option<T> {
    let body = bytes.strip_prefix(&MAGIC)?;
    let (word, rest) = postcard::take_from_bytes(body).ok()?;
    rest.is_empty().then_some(word)
}

/// Words of an error that fit a word.
pub(crate) fn in_words(error: &impl std::fmt::Display) -> String {
    const MOST: usize = 1000;
    error.to_string().chars().take(MOST).collect()
}

/// Words of a peer, as a terminal may show them.
pub(crate) fn shown(words: &str) -> String {
    const MOST: usize = 1000;
    words
        .chars()
        .take(MOST)
        .map(|it| if it.is_control() { '?' } else { it })
        .collect()
}

/// The key that a peer has proven.
pub(crate) fn key_of(worker: &mut Worker, connection: ConnectionId) -> Option<PublicKey> {
    worker.connection(connection)?.peer_key()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn parse__what_was_said_and_nothing_else() {
        let call = Call::Group {
            secret: [3; 32],
            key: [4; 32],
            port: 9,
            rack: 5,
        };
        let bytes = postcard::to_extend(&call, MAGIC.to_vec()).unwrap();
        assert_eq!(parse::<Call>(&bytes), Some(call));
        for cut in 0..bytes.len() {
            assert_eq!(parse::<Call>(&bytes[..cut]), None);
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(parse::<Call>(&longer), None);
        assert_eq!(parse::<Word>(b"ZLi\x01\x00"), None);
        assert_eq!(shown("a\u{1b}[2Jb\n"), "a?[2Jb?");
    }
}
