//! Defines the options of a cast, and the events that it reports.

use std::time::Duration;

use crate::limits::LONGEST;
use crate::message::{Contact, Fault, Message, NodeId};

/// How to treat a node that holds others back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Slow {
    /// It keeps its place, and its descendants wait.
    Wait,
    /// It gets a place without successors, and is served when no other node waits.
    #[default]
    Demote,
    /// It is excluded.
    Drop,
}

/// Options of a node and, at the source, of the whole group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Most chunks that a node holds in memory, including those in flight to it: see [`window_for`].
    pub window: u32,
    /// Whether a written chunk that a successor still lacks may leave memory, to be read again later. If not, a slow
    /// successor holds this node back.
    pub spill: bool,
    /// Whether written chunks can be read again. Chunks written to a pipe cannot.
    pub readable: bool,
    /// Whether the driver fills chunks of zeros by itself ([`Action::Fill`]). Their digests identify them, so no peer
    /// has to send them.
    pub fills: bool,
    /// Longest silence of a live end.
    pub beat: Duration,
    /// At the coordinator: the silence, several beats, after which no node receives from this one until it speaks
    /// again.
    pub suspicion: Duration,
    /// The silence after which a peer counts as dead; longer than `suspicion`.
    pub silence: Duration,
    /// How long a stripe may stall before a node looks for other providers of the missing chunks.
    pub stall: Duration,
    /// How long a node continues without progress before it reports that it is stuck. At the coordinator, a member that
    /// receives none of its available chunks for [`IDLE_PATIENCES`](crate::limits::IDLE_PATIENCES) times as long has
    /// failed.
    pub patience: Duration,
    /// At the source: the number of nodes to wait for before the start; 0: all that join within `gather`.
    pub expected: u32,
    /// At the source: how long to wait for them.
    pub gather: Duration,
    /// At the coordinator: how to treat slow nodes.
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

/// The window with which no transfer waits for memory: for each stripe two chunks inbound and two outbound, and again
/// as many as a chain needs.
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

/// An action for the driver to execute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect to a node; the end is `connected` or `disconnected`.
    Connect(Contact),
    /// Close the connection to a node. Do not report its end.
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
        /// The chunk is not in memory and must be read from the store.
        from_store: bool,
    },
    /// Cancel a requested send whose chunk has not fully left: the peer no longer waits for it. Its end is `sent` all
    /// the same.
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

/// An event for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// At the coordinator: a node takes part.
    Joined(NodeId),
    /// At the coordinator: a node has all, written.
    NodeDone(NodeId),
    /// At the coordinator: a node has left.
    NodeFailed(NodeId, Fault),
    /// At the coordinator: a node holds others back.
    NodeSlow(NodeId),
    /// A peer misbehaved, as this node saw, or as another node reported to the coordinator.
    Liar {
        /// Which peer.
        peer: NodeId,
        /// Which node says so.
        by: NodeId,
        /// Its offence.
        fault: Fault,
    },
    /// This node leads the group now.
    Leads,
    /// This node has all, written.
    Done,
    /// Nothing new arrived for `patience`: so many chunks are missing.
    Stuck {
        /// How many.
        lacking: u32,
    },
    /// The coordinator has excluded this node.
    Dismissed(Fault),
    /// All nodes are done or have failed: this node may end.
    Finished,
}
