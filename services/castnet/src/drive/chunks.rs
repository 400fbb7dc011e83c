//! Moves chunks through a node: receives them into slots, checks them, writes them, and forwards them.

use zerolane::Completion;
#[cfg(test)]
use zerolane::Region;
use zerolane::memory::Memory;
use zerolane::request::ReceiveMessage;
use zerolane::worker::ConnectionId;
use zerolane_cast::{Fault, NodeId};

use super::Drive;
use crate::error::Error;
use crate::jobs::Done;
use crate::links::Sending;
use crate::pool::Chunk;

impl Drive {
    pub(super) fn take_chunk(
        &mut self,
        connection: ConnectionId,
        id: NodeId,
        completion: Completion,
        len: usize,
    ) -> Result<(), Error> {
        let control: Option<[u8; 4]> = completion.control().and_then(|it| it.try_into().ok());
        let slot = completion.into_region()?;
        let (Some(control), Some(manifest)) = (control, self.manifest.clone()) else {
            self.pool.give(slot);
            self.node.fault(self.now(), id, Fault::Garbage);
            return Ok(());
        };
        let chunk = u32::from_le_bytes(control);
        self.received += len as u64;
        self.pace.note(self.now(), len as u64);
        if let Some(link) = self.links.get(connection) {
            link.wanted.remove(&chunk);
        }
        self.jobs.check(id, chunk, Chunk::new(slot, len), manifest);
        self.post_slots(connection)
    }

    /// Has a receive posted for each chunk that was asked for.
    pub(super) fn post_slots(&mut self, connection: ConnectionId) -> Result<(), Error> {
        let (Some(link), Some(there)) = (
            self.links.get(connection),
            self.worker.connection(connection),
        ) else {
            return Ok(());
        };
        while link.slots.len() < link.wanted.len() {
            match there.post(ReceiveMessage::new().payload(self.pool.take()?)) {
                Ok(id) => link.slots.push(id),
                Err(refused) => {
                    refused.memory.into_iter().for_each(|it| self.pool.give(it));
                    return Ok(());
                }
            }
        }
        if link.wanted.is_empty() {
            for id in &link.slots {
                there.cancel(*id);
            }
        }
        Ok(())
    }

    pub(super) fn take_done(&mut self, done: Done) -> Result<(), Error> {
        let now = self.now();
        match done {
            Done::Checked {
                from,
                chunk,
                content,
                right,
            } => match self.node.chunk(now, from, chunk, right) {
                true => drop(self.memory.insert(chunk, content)),
                false => self.pool.retire(content),
            },
            Done::Written { chunk, result } => {
                result.map_err(|it| Error::io(format!("writing {}", self.name))(it))?;
                self.node.written_chunk(now, chunk);
            }
            Done::Filled { chunk, result } => {
                result.map_err(|it| Error::io(format!("writing {}", self.name))(it))?;
                self.node.filled(now, chunk);
            }
            Done::Read {
                to,
                chunk,
                content,
                result,
            } => match result {
                Ok(true) => self.send_chunk(to, chunk, content, true),
                Ok(false) if self.node.is_source() => {
                    return Err(Error::Changed(self.name.clone()));
                }
                Ok(false) => return Err(Error::Disk(self.name.clone())),
                Err(error) => return Err(Error::io(format!("reading {}", self.name))(error)),
            },
        }
        Ok(())
    }

    /// Cancels the send of a chunk. Its completion is reported like any other.
    pub(super) fn withdraw(&mut self, to: NodeId, chunk: u32) {
        let Some((connection, link)) = self.links.link_to(to) else {
            return;
        };
        match (link.sending.get(&chunk), self.worker.connection(connection)) {
            (Some(sending), Some(there)) => drop(there.cancel(sending.id)),
            _ => drop(link.withdrawn.insert(chunk)),
        }
    }

    pub(super) fn send_chunk(&mut self, to: NodeId, chunk: u32, content: Chunk, from_store: bool) {
        let bytes = self.shown(&content);
        let limit = self.membership.transport.rate.max;
        let pace = match from_store {
            true => limit,
            false => self.pace.rate().into_iter().chain(limit).min(),
        };
        if let Some((connection, link)) = self.links.link_to(to)
            && !link.withdrawn.remove(&chunk)
            && let Some(there) = self.worker.connection(connection)
        {
            there.set_max_rate(pace);
            if let Ok(id) = there.post(
                zerolane::request::Message::new(&chunk.to_le_bytes())
                    .payload(bytes)
                    .context(u64::from(chunk)),
            ) {
                let sending = Sending {
                    id,
                    content,
                    from_store,
                };
                link.sending.insert(chunk, sending);
                return;
            }
        }
        if from_store {
            self.pool.retire(content);
        }
        self.node.sent(self.now(), to, chunk);
    }

    #[cfg(not(test))]
    fn shown(&self, content: &Chunk) -> Memory {
        content.bytes().into()
    }

    #[cfg(test)]
    fn shown(&self, content: &Chunk) -> Memory {
        match self.lies {
            true => Region::from_vec(content.bytes().iter().map(|it| !it).collect()).into(),
            false => content.bytes().into(),
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use zerolane::security::Anyone;
    use zerolane::worker::Worker;
    use zerolane::{Options as Transport, Region};
    use zerolane_cast::{Contact, Manifest, Message, Node, Options, Place, Profile};

    use super::*;
    use crate::drive::Membership;
    use crate::invitation::Word;
    use crate::store::Store;

    const NOW: Duration = Duration::ZERO;

    fn profile(id: NodeId) -> Profile {
        let address = Vec::new();
        Profile {
            contact: Contact { id, address },
            rack: 0,
            rate: 0,
        }
    }

    fn drive(node: Node) -> Drive {
        let membership = Membership::new([1; 32], Transport::default()).unwrap();
        let mut worker = Worker::new().unwrap();
        let options = membership.options(Arc::new(Anyone));
        let endpoint = worker.listen("127.0.0.1:0", options);
        let store = Store::File(Arc::new(tempfile::tempfile().unwrap()));
        let store = (&store, "content".to_owned());
        let endpoint = endpoint.unwrap();
        Drive::new(worker, endpoint, node, membership, store, Instant::now()).unwrap()
    }

    /// The error of a node whose store returns wrong bytes.
    fn after_a_bad_read(node: Node) -> Error {
        let read = Done::Read {
            to: NodeId(9),
            chunk: 0,
            content: Chunk::new(Region::from_vec(vec![0; 8]), 8),
            result: Ok(false),
        };
        drive(node).take_done(read).unwrap_err()
    }

    /// A busy source hears hundreds of results in one turn.
    #[test]
    fn words__of_many_hosts_at_once_are_no_fault() {
        let manifest = Manifest::of(&[7; 64], 8, 1).unwrap();
        let node = Node::source(NOW, profile(NodeId(1)), manifest, Options::default());
        let mut drive = drive(node);
        let options = drive.membership.options(Arc::new(Anyone));
        let to = "127.0.0.1:9";
        let connection = drive.worker.connect(to, &options).unwrap();
        let ended = postcard::to_extend(&Word::Ended(Ok(())), b"ZLi\x05".to_vec()).unwrap();
        for host in 0..1000 {
            drive.node.connected(NOW, NodeId(100 + host));
            drive.take_message(connection, NodeId(100 + host), &ended);
        }
        drive.act().unwrap();
        assert_eq!(drive.events, []);
        assert_eq!(drive.words.len(), 1000);
    }

    #[test]
    fn read__of_other_bytes_is_the_source_s_fault_only_at_the_source() {
        let (source, own) = (NodeId(1), NodeId(2));
        let manifest = Manifest::of(&[7; 64], 8, 1).unwrap();
        let (header, options) = (manifest.header(), Options::default());
        let error = after_a_bad_read(Node::source(NOW, profile(source), manifest, options));
        assert!(matches!(error, Error::Changed(_)), "{error}");
        // One that leads since the source is gone.
        let leaders = vec![profile(source).contact];
        let mut node = Node::receiver(NOW, profile(own), leaders, options, None);
        node.connected(NOW, source);
        node.message(NOW, source, Message::Welcome(header));
        let place = Place {
            epoch: 1,
            predecessors: vec![Some(profile(source).contact)],
            helpers: Vec::new(),
            successors: vec![profile(own).contact],
            demoted: false,
        };
        node.message(NOW, source, Message::Place(place));
        node.disconnected(NOW, source);
        assert!(node.leads());
        let error = after_a_bad_read(node);
        assert!(matches!(error, Error::Disk(_)), "{error}");
    }
}
