//! Tracks the requests and waits of a connection's handles, and answers them.

use super::arrivals::{Arrivals, Standing};
use super::pending::{Claim, GivenUp, Outcome, Unposted};
use super::requests::{Awaited, Direction, Requests, Waiting};
use crate::completion::{Completion, Output};
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::id::RequestId;
use crate::request::Immediate;
use std::collections::VecDeque;
use std::net::SocketAddr;
use zerolane_lane::{CloseReason, PublicKey, TransferError};
use zerolane_wire::PrivateData;

/// The peer's address, key and private data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    pub(super) key: Option<PublicKey>,
    pub(super) data: Option<PrivateData>,
}

impl Peer {
    pub(super) fn of(connection: &Connection) -> Peer {
        Peer {
            address: connection.peer_addr(),
            key: connection.peer_key(),
            data: connection.driver.peer_data().copied(),
        }
    }
}

/// Called once the connection is established or has failed.
type OnConnected = Box<dyn FnOnce(Result<Peer>) + Send>;

/// Called with the reason when the connection is over. Dropping it calls it, too.
type OnEnd = Box<dyn FnOnce(&Error) + Send>;

/// The owner of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Holder {
    /// The worker's user, who gets events.
    #[default]
    User,
    /// A handle that was asked for and not made yet. No events.
    Expected,
    /// A handle.
    Handle,
    /// None yet: it waits in the backlog of its endpoint. No events, and its completions stay with it.
    Untaken,
    /// None: the last handle was dropped. Received data is not kept.
    None,
}

#[derive(Default)]
pub(super) struct Claims {
    holder: Holder,
    /// The reason, once the end was reported: nothing waits any more.
    over: Option<Error>,
    /// Called when the connection is established.
    connected: Option<OnConnected>,
    requests: Requests,
    /// Data received for a request that was given up, and messages that no handle has asked for.
    kept: VecDeque<Completion>,
    immediates: VecDeque<Immediate>,
    immediates_awaited: VecDeque<Claim<Immediate>>,
    immediates_given_up: GivenUp,
    messages_awaited: VecDeque<Claim<Completion>>,
    messages_given_up: GivenUp,
    arrivals: Arrivals,
    /// Why the connection ended before all sends were done.
    unsent: Option<CloseReason>,
    /// Waits of closing handles.
    ended: Vec<Claim<()>>,
    /// Waits for the end of the connection, whichever end closed it.
    ends: Vec<Claim<Error>>,
    ends_given_up: GivenUp,
    on_end: Vec<OnEnd>,
}

impl std::fmt::Debug for Claims {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claims")
            .field("holder", &self.holder)
            .finish_non_exhaustive()
    }
}

impl Claims {
    /// Reserves the connection for a handle: no more events.
    pub(super) fn expect_handle(&mut self) {
        self.holder = Holder::Expected;
    }

    /// Makes a handle the owner.
    pub(super) fn hold(&mut self) {
        self.holder = Holder::Handle;
    }

    /// Leaves the connection in the backlog of its endpoint.
    pub(super) fn await_program(&mut self) {
        self.holder = Holder::Untaken;
    }

    /// Whether it waits in the backlog of its endpoint.
    pub(super) fn is_untaken(&self) -> bool {
        self.holder == Holder::Untaken
    }

    /// Leaves the connection without an owner, because its last handle was dropped.
    pub(super) fn forsake(&mut self) {
        self.holder = Holder::None;
        self.recycle_kept();
        self.immediates.clear();
    }

    /// Whether a handle, not the user, gets what happens, so that there are no events.
    pub(super) fn is_handled(&self) -> bool {
        self.holder != Holder::User
    }

    /// Whether a handle owns the connection and may ask for kept data.
    pub(super) fn is_held(&self) -> bool {
        self.holder == Holder::Handle
    }

    /// Calls `connected` when the connection is established or has failed.
    pub(super) fn await_connected(&mut self, connected: OnConnected) {
        self.expect_handle();
        self.connected = Some(connected);
    }

    /// False if the caller must report an event to the user.
    pub(super) fn on_connected(&mut self, peer: impl FnOnce() -> Peer) -> bool {
        if let Some(connected) = self.connected.take() {
            self.hold();
            connected(Ok(peer()));
        }
        self.is_handled()
    }

    /// Whether no request or wait is pending, and no received data is kept.
    pub(super) fn is_idle(&self) -> bool {
        let kept = self.kept.is_empty() && self.immediates.is_empty();
        let awaited = self.immediates_awaited.iter().any(Claim::is_awaited)
            || self.messages_awaited.iter().any(Claim::is_awaited);
        let awaited = awaited || !self.ended.is_empty() || self.arrivals.is_awaited();
        self.requests.is_empty() && kept && !awaited
    }

    /// How many received items wait for a handle to ask for them.
    pub(super) fn unread(&self) -> usize {
        self.kept.len() + self.immediates.len()
    }

    /// Posts `waiting` after the requests that wait already.
    pub(super) fn post(
        &mut self,
        direction: Direction,
        mut waiting: Waiting,
        connection: &mut Connection,
    ) {
        if !self.give_kept(direction, &mut waiting) {
            self.requests.post(direction, waiting, connection);
        }
    }

    /// Answers `waiting` with data kept from a request that was given up. False if there is none.
    pub(super) fn give_kept(&mut self, direction: Direction, waiting: &mut Waiting) -> bool {
        if let Direction::Incoming(kind) = direction
            && let Some(at) = self
                .kept
                .iter()
                .position(|it| it.kind() == kind && !it.is_pooled())
            && let Some(claim) = waiting.claim.take()
        {
            if let Some(mut kept) = self.kept.remove(at) {
                kept.id = waiting.id;
                if let Err(Ok(kept)) = claim.answer(Ok(kept)) {
                    self.keep(kept);
                }
            }
            return true;
        }
        false
    }

    /// Posts waiting requests while there is room.
    pub(super) fn post_waiting(&mut self, connection: &mut Connection) {
        self.requests.post_waiting(connection);
    }

    /// Answers the request that a completion belongs to. Returns the completion if it belongs to the user.
    pub(super) fn deliver(&mut self, mut completion: Completion) -> Option<Completion> {
        if let (true, Err(TransferError::Closed(reason))) =
            (completion.kind().is_outgoing(), completion.result)
        {
            self.unsent = Some(reason);
        }
        if let Some(immediate) = completion.immediate()
            && self.is_handled()
        {
            self.deliver_immediate(immediate);
            return None;
        }
        if completion.is_pooled() && self.is_handled() {
            self.deliver_message(completion);
            return None;
        }
        let given_up = match self.requests.end(completion.id) {
            Some(Awaited { id, claim }) => {
                completion.id = id;
                claim.answer(Ok(completion)).err()?.ok()?
            }
            None if self.is_handled() => completion,
            None => return Some(completion),
        };
        self.keep(given_up);
        None
    }

    /// Keeps data received for a request that was given up.
    pub(super) fn keep(&mut self, completion: Completion) {
        let received = matches!(
            completion.output,
            Output::Receive { .. } | Output::MessageReceived { .. }
        );
        if received && completion.result.is_ok() && self.holder != Holder::None {
            self.kept.push_back(completion);
        }
    }

    fn deliver_immediate(&mut self, mut immediate: Immediate) {
        while let Some(claim) = self.immediates_awaited.pop_front() {
            match claim.answer(Ok(immediate)) {
                Err(Ok(again)) => immediate = again,
                _ => return,
            }
        }
        if self.holder != Holder::None {
            self.immediates.push_back(immediate);
        }
    }

    fn deliver_message(&mut self, mut message: Completion) {
        while let Some(claim) = self.messages_awaited.pop_front() {
            match claim.answer(Ok(message)) {
                Err(Ok(again)) => message = again,
                _ => return,
            }
        }
        self.keep_message(message, VecDeque::push_back);
    }

    fn keep_message(
        &mut self,
        message: Completion,
        push: impl FnOnce(&mut VecDeque<Completion>, Completion),
    ) {
        if self.holder == Holder::None {
            message.recycle();
        } else {
            push(&mut self.kept, message);
        }
    }

    /// Answers with the next message that has memory of a pool.
    pub(super) fn await_message(&mut self, claim: Claim<Completion>) {
        match self.kept.iter().position(Completion::is_pooled) {
            Some(place) => {
                if let Some(message) = self.kept.remove(place)
                    && let Err(Ok(message)) = claim.answer(Ok(message))
                {
                    self.keep_message(message, VecDeque::push_front);
                }
            }
            // Dropping the claim refuses it.
            None if self.over.is_some() => {}
            None => self.messages_awaited.push_back(claim),
        }
    }

    /// Withdraws a wait for a message. One that already came goes to the next wait.
    pub(super) fn give_up_message(&mut self, unread: Option<Completion>) {
        match unread {
            Some(message) => self.keep_message(message, VecDeque::push_front),
            None if self.messages_given_up.add(self.messages_awaited.len()) => {
                self.messages_awaited.retain(Claim::is_awaited);
            }
            None => {}
        }
    }

    fn recycle_kept(&mut self) {
        for completion in self.kept.drain(..) {
            completion.recycle();
        }
    }

    /// Answers with the next immediate.
    pub(super) fn await_immediate(&mut self, claim: Claim<Immediate>) {
        match self.immediates.pop_front() {
            Some(immediate) => {
                if let Err(Ok(immediate)) = claim.answer(Ok(immediate)) {
                    self.immediates.push_front(immediate);
                }
            }
            None => match &self.over {
                Some(reason) => claim.answer_or_drop(Err(reason.again())),
                None => self.immediates_awaited.push_back(claim),
            },
        }
    }

    /// Withdraws a wait for an immediate. An immediate that already came goes to the next wait.
    pub(super) fn give_up_immediate(&mut self, unread: Option<Immediate>) {
        match unread {
            Some(it) if self.holder != Holder::None => self.immediates.push_front(it),
            _ if self.immediates_given_up.add(self.immediates_awaited.len()) => {
                self.immediates_awaited.retain(Claim::is_awaited);
            }
            _ => {}
        }
    }

    /// The waits for parts of requests and for announcements. `None` if nothing more can arrive.
    pub(super) fn arrivals(&mut self) -> Option<&mut Arrivals> {
        self.over.is_none().then_some(&mut self.arrivals)
    }

    /// The state of request `id`.
    pub(super) fn standing(&self, id: RequestId) -> Standing {
        self.requests.standing(id)
    }

    /// Answers waits for parts of requests.
    pub(super) fn report_arrivals(&mut self, connection: &Connection) {
        if self.arrivals.is_empty() {
            return;
        }
        let requests = &self.requests;
        self.arrivals.report(connection, |id| requests.standing(id));
    }

    /// Answers at the end of the connection, which begins to close.
    pub(super) fn await_closed(&mut self, claim: Claim<()>) {
        if self.over.is_none() {
            self.ended.push(claim);
        }
    }

    /// Answers with the reason when the connection is over.
    pub(super) fn await_end(&mut self, claim: Claim<Error>) {
        match &self.over {
            Some(reason) => claim.answer_or_drop(Ok(reason.again())),
            None => self.ends.push(claim),
        }
    }

    /// Withdraws a wait for the end.
    pub(super) fn give_up_end(&mut self) {
        if self.ends_given_up.add(self.ends.len()) {
            self.ends.retain(Claim::is_awaited);
        }
    }

    /// Calls `on_end` when the connection is over.
    pub(super) fn call_at_end(&mut self, on_end: OnEnd) {
        match &self.over {
            Some(reason) => on_end(reason),
            None => self.on_end.push(on_end),
        }
    }

    /// Refuses request `id`, which was not posted, because it was cancelled.
    pub(super) fn refuse(&mut self, id: RequestId) {
        self.requests.refuse(id);
    }

    /// Gives up request `id`: removes it if it was not posted, or returns the connection's identifier of it.
    pub(super) fn give_up(&mut self, id: RequestId) -> Option<RequestId> {
        self.requests.give_up(id)
    }

    /// Ends all requests and waits, because the connection is over. False if the caller must report an event to the
    /// user.
    pub(super) fn on_closed(&mut self, reason: &Error) -> bool {
        self.over = Some(reason.again());
        if let Some(connected) = self.connected.take() {
            connected(Err(reason.again()));
        }
        let unposted = self.requests.has_unposted_outgoing();
        let unsent = self.unsent.or(unposted.then_some(CloseReason::Local));
        self.requests.end_all(reason);
        for claim in self.immediates_awaited.drain(..) {
            claim.answer_or_drop(Err(reason.again()));
        }
        for claim in self.messages_awaited.drain(..) {
            claim.answer_or_drop(Err(reason.again()));
        }
        self.arrivals.end(reason);
        for claim in self.ended.drain(..) {
            let ended: Outcome<()> = match (reason, unsent) {
                (Error::Closed(CloseReason::Local | CloseReason::Peer(_)), None) => Ok(()),
                (Error::Closed(_), Some(unsent)) => Err(Unposted::because(Error::Closed(unsent))),
                (reason, _) => Err(Unposted::because(reason.again())),
            };
            let _ = claim.answer(ended);
        }
        for claim in self.ends.drain(..) {
            claim.answer_or_drop(Ok(reason.again()));
        }
        for on_end in self.on_end.drain(..) {
            on_end(reason);
        }
        self.is_handled()
    }
}

#[cfg(test)]
#[path = "claims_tests.rs"]
mod tests;
