//! What a cast is told, and what it tells.

use std::time::Duration;

use crate::limits::LONGEST;
use crate::message::{Contact, Fault, Message, NodeId};

/// What is done about a node that holds others back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slow {
    /// It stays where it is, and those behind it wait.
    Wait,
    /// It gets a place without successors, and is served when others are not waiting.
    #[default]
    Demote,
    /// It is left out.
    Drop,
}

/// How a node takes part, and, at the source, how the group is led.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Chunks that a node holds in memory at most, those on the way to it included: see [`window_for`].
    pub window: u32,
    /// Whether a chunk that a successor still lacks may leave memory once it is written, to be read again. If not, a
    /// slow successor holds this node back instead.
    pub spill: bool,
    /// Whether what was written can be read again. What went into a pipe cannot.
    pub readable: bool,
    /// Whether the driver fills chunks of zeros by itself ([`Action::Fill`]). What they are, their digests tell, so no peer is asked
    /// for them.
    pub fills: bool,
    /// The longest silence of an end that is alive.
    pub beat: Duration,
    /// At the coordinator: the silence after which a node is suspected, so that none receives from it until it is heard of
    /// again; several beats.
    pub suspicion: Duration,
    /// The silence after which a peer is taken for dead; longer than `suspicion`.
    pub silence: Duration,
    /// How long a stripe may stand still before a node looks for others that have what it lacks.
    pub stall: Duration,
    /// How long a node goes on without anything new before it says that it is stuck; at the coordinator also: a
    /// member that gains nothing of what is there for it for [`IDLE_PATIENCES`](crate::limits::IDLE_PATIENCES) of it has failed.
    pub patience: Duration,
    /// At the source: the nodes that are waited for before it begins; 0 for any that come within `gather`.
    pub expected: u32,
    /// At the source: how long they are waited for.
    pub gather: Duration,
    /// At the coordinator: what is done about slow nodes.
    pub slow: Slow,
}

impl Options {
    /// Without times that are longer than [`LONGEST`].
    pub(crate) fn bounded(self) -> Options {
        Options {
            beat: self.beat.min(LONGEST),
            suspicion: self.suspicion.min(LONGEST),
            silence: self.silence.min(LONGEST),
            stall: self.stall.min(LONGEST),
            patience: self.patience.min(LONGEST),
            gather: self.gather.min(LONGEST),
            ..self
        }
    }
}

/// Chunks in memory with which nothing waits for memory: of each stripe two on the way here, and two on the way on; and as
/// many again as a chain needs.
#[must_use]
pub fn window_for(arity: u32) -> u32 {
    4 * arity + 4
}

impl Default for Options {
    fn default() -> Options {
        Options {
            window: window_for(1),
            spill: true,
            readable: true,
            fills: false,
            beat: Duration::from_millis(100),
            suspicion: Duration::from_millis(500),
            silence: Duration::from_millis(800),
            stall: Duration::from_millis(1500),
            patience: Duration::from_secs(60),
            expected: 0,
            gather: Duration::from_secs(2),
            slow: Slow::default(),
        }
    }
}

/// What a driver is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect to a node; the end is `connected` or `disconnected`.
    Connect(Contact),
    /// Close the connection to a node; nothing is said about its end.
    Disconnect(NodeId),
    /// Send a message.
    Send {
        /// To which peer.
        to: NodeId,
        /// What.
        message: Message,
    },
    /// Send a chunk; the end is `sent`.
    SendChunk {
        /// To which peer.
        to: NodeId,
        /// Which.
        chunk: u32,
        /// It is read from the store, for it is not in memory.
        from_store: bool,
    },
    /// Give a send up that was asked for, where its chunk has not all left: the peer waits for nothing any more. Its end is
    /// `sent` all the same.
    Withdraw {
        /// To which peer.
        to: NodeId,
        /// Which.
        chunk: u32,
    },
    /// Write a chunk that is in memory to the store; the end is `written`.
    Write(u32),
    /// Put a chunk of zeros in the store, which is in no memory; the end is `filled`.
    Fill(u32),
    /// Free the memory of a chunk.
    Forget(u32),
    /// Tell the user.
    Tell(Event),
}

/// What a user is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// At the coordinator: a node takes part.
    Joined(NodeId),
    /// At the coordinator: a node has all, written.
    NodeDone(NodeId),
    /// At the coordinator: a node is no part any more.
    NodeFailed(NodeId, Fault),
    /// At the coordinator: a node holds others back.
    NodeSlow(NodeId),
    /// A peer gave what does not hold: seen by this node, or told to the coordinator by another.
    Liar {
        /// Which peer.
        peer: NodeId,
        /// Which node says so.
        by: NodeId,
        /// What it did.
        fault: Fault,
    },
    /// This node leads the group now.
    Leads,
    /// This node has all, written.
    Done,
    /// Nothing new came for `patience`: so many chunks are lacking.
    Stuck {
        /// How many.
        lacking: u32,
    },
    /// The coordinator has put this node out.
    Dismissed(Fault),
    /// All nodes are done or have failed: this node may end.
    Finished,
}
