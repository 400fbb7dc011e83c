//! Describes a job on a disk, for a worker thread.

use zerolane_block::sense::Failure;
use zerolane_block::{Payload, TaskId, Work};

use super::Peer;

/// The work of a command.
#[derive(Debug)]
pub struct Job {
    pub(super) peer: Peer,
    pub(super) tag: u32,
    pub(super) task: TaskId,
    pub(super) work: Work,
    /// The data to write.
    pub(super) data: Vec<u8>,
}

/// Finished work.
#[derive(Debug)]
pub struct Done {
    pub(super) peer: Peer,
    pub(super) tag: u32,
    pub(super) task: TaskId,
    /// The read data.
    pub(super) read: Vec<u8>,
    pub(super) outcome: Result<Vec<u8>, Failure>,
}

impl Job {
    /// Executes the work; may block as long as the disk does.
    pub fn perform(self) -> Done {
        let mut read = Vec::new();
        let moved = match self.work.payload() {
            Payload::None => Ok(()),
            Payload::In(bytes) => {
                // The engine bounds it.
                read.resize(bytes as usize, 0);
                self.work.read(0, &mut read)
            }
            Payload::Out(_) => self.work.write(0, &self.data),
        };
        Done {
            peer: self.peer,
            tag: self.tag,
            task: self.task,
            outcome: moved.and_then(|()| self.work.finish()),
            read,
        }
    }
}
