//! Chunks on their way: received into slots, checked, written, and sent on.

#[cfg(test)]
use zerolane::Region;
use zerolane::memory::Memory;
use zerolane::worker::ConnectionId;
use zerolane::{Completion, Work};
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
        let control: Option<[u8; 4]> = completion.control[..].try_into().ok();
        let slot = completion.into_region();
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
            match there.post_message_recv(Some(self.pool.take()?)) {
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
            Done::Read {
                to,
                chunk,
                content,
                result,
            } => match result {
                Ok(true) => self.send_chunk(to, chunk, content, true),
                Ok(false) if self.node.leads() => return Err(Error::Changed(self.name.clone())),
                Ok(false) => return Err(Error::Disk(self.name.clone())),
                Err(error) => return Err(Error::io(format!("reading {}", self.name))(error)),
            },
        }
        Ok(())
    }

    /// Gives up sending a chunk: its completion is told as that of any.
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
        let limit = self.membership.transport.max_rate;
        let pace = match from_store {
            true => limit,
            false => self.pace.rate().into_iter().chain(limit).min(),
        };
        if let Some((connection, link)) = self.links.link_to(to)
            && !link.withdrawn.remove(&chunk)
            && let Some(there) = self.worker.connection(connection)
        {
            there.set_max_rate(pace);
            let work = Work::default().with_context(u64::from(chunk));
            if let Ok(id) = there.post_message(&chunk.to_le_bytes(), Some(bytes), work) {
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
