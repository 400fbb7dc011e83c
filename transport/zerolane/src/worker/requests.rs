//! Keeps the requests of a connection's handles, and finds them by either of their identifiers.

use super::arrivals::Standing;
use super::pending::{Claim, Unposted, gone};
use crate::completion::Completion;
use crate::connection::Connection;
use crate::error::{Error, Refused};
use crate::id::RequestId;
use crate::request::Request;
use std::collections::{BTreeMap, HashMap};
use zerolane_lane::{PostError, TransferError, WorkKind};

/// The result of an attempt to post.
pub(super) enum Attempt {
    Posted(RequestId),
    /// Done without a completion.
    Done,
    /// There is no room now.
    Full,
    Refused(Unposted),
}

/// Posts, or gives the memory back if there is no connection.
pub(super) type Post = Box<dyn FnMut(Option<&mut Connection>) -> Attempt + Send>;

/// A request that is not posted yet.
pub(super) struct Waiting {
    /// Its identifier, by which its handle cancels it.
    pub(super) id: RequestId,
    pub(super) post: Post,
    pub(super) claim: Option<Claim<Completion>>,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Waiting").field(&self.id).finish()
    }
}

/// Returns the memory of a request that was never posted.
impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take()
            && let Attempt::Refused(refused) = (self.post)(None)
        {
            let _ = claim.answer(Err(refused));
        }
    }
}

/// The queue that a request waits in. There are two, so that sends that wait for room do not delay receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Outgoing,
    Incoming(WorkKind),
}

/// A request that is posted.
#[derive(Debug)]
pub(super) struct Awaited {
    /// The identifier that the handle knows it by. The connection has another.
    pub(super) id: RequestId,
    pub(super) claim: Claim<Completion>,
}

/// Where a request is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In a queue, under this number.
    Waits(u64),
    /// Posted, with this identifier of the connection's.
    Posted(RequestId),
}

/// The requests of handles that are not over. Each is found, and given up, without a look at the others.
#[derive(Default)]
pub(super) struct Requests {
    known: Known,
    /// In the order in which they came.
    outgoing: BTreeMap<u64, Waiting>,
    incoming: BTreeMap<u64, Waiting>,
    /// How many had to wait so far.
    waited: u64,
}

#[derive(Default)]
struct Known {
    /// Those that are posted, by the connection's identifiers.
    posted: HashMap<RequestId, Awaited>,
    /// All, by the handles' identifiers.
    places: HashMap<RequestId, Place>,
}

impl Known {
    /// Posts `waiting`, or answers that it is refused. False if there is no room.
    fn post(&mut self, waiting: &mut Waiting, connection: &mut Connection) -> bool {
        let id = waiting.id;
        let attempt = (waiting.post)(Some(connection));
        if matches!(attempt, Attempt::Full) {
            return false;
        }
        match (attempt, waiting.claim.take()) {
            (Attempt::Posted(posted), Some(claim)) => {
                self.places.insert(id, Place::Posted(posted));
                self.posted.insert(posted, Awaited { id, claim });
                return true;
            }
            (Attempt::Refused(refused), Some(claim)) => {
                let _ = claim.answer(Err(refused));
            }
            _ => {}
        }
        self.places.remove(&id);
        true
    }
}

impl Requests {
    pub(super) fn is_empty(&self) -> bool {
        self.known.places.is_empty()
    }

    pub(super) fn has_unposted_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Posts `waiting` after the requests that wait already.
    pub(super) fn post(
        &mut self,
        direction: Direction,
        mut waiting: Waiting,
        connection: &mut Connection,
    ) {
        let queue = match direction {
            Direction::Outgoing => &mut self.outgoing,
            Direction::Incoming(_) => &mut self.incoming,
        };
        if queue.is_empty() && self.known.post(&mut waiting, connection) {
            return;
        }
        let place = Place::Waits(self.waited);
        self.known.places.insert(waiting.id, place);
        queue.insert(self.waited, waiting);
        self.waited += 1;
    }

    /// Posts waiting requests while there is room.
    pub(super) fn post_waiting(&mut self, connection: &mut Connection) {
        for queue in [&mut self.outgoing, &mut self.incoming] {
            while let Some(mut first) = queue.first_entry()
                && self.known.post(first.get_mut(), connection)
            {
                first.remove();
            }
        }
    }

    /// Removes the request that the connection knows by `posted`: it is over.
    pub(super) fn end(&mut self, posted: RequestId) -> Option<Awaited> {
        let awaited = self.known.posted.remove(&posted)?;
        self.known.places.remove(&awaited.id);
        Some(awaited)
    }

    /// The state of request `id`.
    pub(super) fn standing(&self, id: RequestId) -> Standing {
        match self.known.places.get(&id) {
            Some(&Place::Posted(posted)) => Standing::Posted(posted),
            Some(Place::Waits(_)) => Standing::Waits,
            None => Standing::Over,
        }
    }

    /// Gives up request `id`: removes it if it was not posted, or returns the connection's identifier of it.
    pub(super) fn give_up(&mut self, id: RequestId) -> Option<RequestId> {
        match *self.known.places.get(&id)? {
            Place::Posted(posted) => Some(posted),
            Place::Waits(number) => {
                self.known.places.remove(&id);
                let outgoing = self.outgoing.remove(&number);
                drop(outgoing.or_else(|| self.incoming.remove(&number)));
                None
            }
        }
    }

    /// Refuses request `id`, which was not posted, because it was cancelled.
    pub(super) fn refuse(&mut self, id: RequestId) {
        let Some(&Place::Waits(number)) = self.known.places.get(&id) else {
            return;
        };
        self.known.places.remove(&id);
        let outgoing = self.outgoing.remove(&number);
        if let Some(mut waiting) = outgoing.or_else(|| self.incoming.remove(&number))
            && let Some(claim) = waiting.claim.take()
            && let Attempt::Refused(refused) = (waiting.post)(None)
        {
            let error = Error::Transfer(TransferError::Cancelled);
            let _ = claim.answer(Err(Refused { error, ..refused }));
        }
    }

    /// Ends all of them: the connection is over.
    pub(super) fn end_all(&mut self, reason: &Error) {
        self.known.places.clear();
        // Dropping the requests that were not posted returns their memory.
        self.outgoing.clear();
        self.incoming.clear();
        for (_, Awaited { claim, .. }) in self.known.posted.drain() {
            claim.answer_or_drop(Err(reason.again()));
        }
    }
}

/// Makes an attempt that posts `request`, with its success reported, because a handle waits for it.
pub(super) fn attempt<R: Request + Send + 'static>(request: R) -> Post {
    let mut request = Some(request.signal());
    Box::new(move |connection| {
        let Some(taken) = request.take() else {
            return Attempt::Refused(Unposted::gone());
        };
        let posted = match connection {
            Some(connection) => connection.try_post(taken),
            None => Err((gone(), taken)),
        };
        match posted {
            Ok(id) => Attempt::Posted(id),
            Err((Error::Post(PostError::Full), taken)) => {
                request = Some(taken);
                Attempt::Full
            }
            Err((error, taken)) => {
                let memory = taken.give_back();
                Attempt::Refused(Refused { error, memory })
            }
        }
    })
}
