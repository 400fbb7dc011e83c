//! Runs the threads beside the connections: one checks chunks, one writes them, one reads chunks to send from the store.
//!
//! A slow disk therefore delays no peer. At most one window of chunks waits for each thread.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
#[cfg(test)]
use std::time::Duration;

use zerolane::{Region, Waker};
use zerolane_cast::{Manifest, NodeId};

use crate::error::Error;
use crate::pool::Chunk;
use crate::store::Store;

/// A finished job.
#[derive(Debug)]
pub(crate) enum Done {
    /// A chunk that came was compared with its digest.
    Checked {
        from: NodeId,
        chunk: u32,
        content: Chunk,
        right: bool,
    },
    /// A chunk of zeros is in the store.
    Filled { chunk: u32, result: io::Result<()> },
    /// A chunk is in the store.
    Written { chunk: u32, result: io::Result<()> },
    /// A chunk of the store is in memory; `Ok(false)` if it has other bytes than it should.
    Read {
        to: NodeId,
        chunk: u32,
        content: Chunk,
        result: io::Result<bool>,
    },
}

enum Job {
    Check {
        from: NodeId,
        chunk: u32,
        content: Chunk,
        manifest: Arc<Manifest>,
    },
    Write {
        chunk: u32,
        offset: u64,
        content: Chunk,
        #[cfg(test)]
        pause: Duration,
    },
    Fill {
        chunk: u32,
        offset: u64,
        len: usize,
    },
    Read {
        to: NodeId,
        chunk: u32,
        slot: Region,
        manifest: Arc<Manifest>,
    },
}

/// The threads. Dropping this ends them after their current jobs. With memory, the drop waits for them, so that nothing
/// touches the memory afterwards. With a device, which may never answer, it does not wait.
#[derive(Debug)]
pub(crate) struct Jobs {
    /// Until this is dropped.
    to_do: Option<ToDo>,
    done: Receiver<Done>,
    /// The threads for which the drop waits.
    threads: Vec<JoinHandle<()>>,
    /// Extra delay of each write, for tests of slow disks.
    #[cfg(test)]
    pub(crate) pause: Duration,
}

#[derive(Debug)]
struct ToDo {
    checker: Sender<Job>,
    writer: Sender<Job>,
    reader: Sender<Job>,
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.to_do = None;
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Jobs {
    /// Starts them; `waker` is used for each end.
    pub(crate) fn start(store: &Store, waker: &Waker) -> Result<Jobs, Error> {
        let (done_from, done) = channel();
        let (mut threads, waited_for) = (Vec::new(), store.is_memory());
        let mut begin = |name: &str| -> Result<Sender<Job>, Error> {
            let (jobs, to_do) = channel::<Job>();
            let (store, waker, done) = (store.clone(), waker.clone(), done_from.clone());
            let work = move || {
                for job in to_do {
                    if done.send(perform(&store, job)).is_err() {
                        return;
                    }
                    waker.wake();
                }
            };
            let thread = thread::Builder::new()
                .name(format!("cast-{name}"))
                .spawn(work);
            let thread = thread.map_err(Error::io("starting a thread"))?;
            threads.extend(waited_for.then_some(thread));
            Ok(jobs)
        };
        let to_do = ToDo {
            checker: begin("check")?,
            writer: begin("write")?,
            reader: begin("read")?,
        };
        Ok(Jobs {
            to_do: Some(to_do),
            done,
            threads,
            #[cfg(test)]
            pause: Duration::ZERO,
        })
    }

    pub(crate) fn check(&self, from: NodeId, chunk: u32, content: Chunk, manifest: Arc<Manifest>) {
        self.order(
            |it| &it.checker,
            Job::Check {
                from,
                chunk,
                content,
                manifest,
            },
        );
    }

    pub(crate) fn write(&self, chunk: u32, offset: u64, content: Chunk) {
        self.order(
            |it| &it.writer,
            Job::Write {
                chunk,
                offset,
                content,
                #[cfg(test)]
                pause: self.pause,
            },
        );
    }

    pub(crate) fn fill(&self, chunk: u32, offset: u64, len: usize) {
        self.order(|it| &it.writer, Job::Fill { chunk, offset, len });
    }

    pub(crate) fn read(&self, to: NodeId, chunk: u32, slot: Region, manifest: Arc<Manifest>) {
        self.order(
            |it| &it.reader,
            Job::Read {
                to,
                chunk,
                slot,
                manifest,
            },
        );
    }

    fn order(&self, of: impl Fn(&ToDo) -> &Sender<Job>, job: Job) {
        if let Some(to_do) = &self.to_do {
            // A thread that is gone has panicked, and its cast with it.
            let _ = of(to_do).send(job);
        }
    }

    pub(crate) fn next_done(&self) -> Option<Done> {
        self.done.try_recv().ok()
    }
}

fn perform(store: &Store, job: Job) -> Done {
    match job {
        Job::Check {
            from,
            chunk,
            content,
            manifest,
        } => {
            let right = manifest.check(chunk, &content.bytes()).is_ok();
            Done::Checked {
                from,
                chunk,
                content,
                right,
            }
        }
        Job::Write {
            chunk,
            offset,
            content,
            #[cfg(test)]
            pause,
        } => {
            #[cfg(test)]
            thread::sleep(pause);
            let result = store.write_all_at(&content.bytes(), offset);
            Done::Written { chunk, result }
        }
        Job::Fill { chunk, offset, len } => {
            let result = store.fill(len, offset);
            Done::Filled { chunk, result }
        }
        Job::Read {
            to,
            chunk,
            mut slot,
            manifest,
        } => {
            let header = manifest.header();
            let len = header.bytes_of(chunk);
            let offset = u64::from(chunk) * u64::from(header.chunk_bytes);
            let read = store.read_exact_at(&mut slot[..len], offset);
            let content = Chunk::new(slot, len);
            let result = match read {
                Ok(()) => Ok(manifest.check(chunk, &content.bytes()).is_ok()),
                // Shorter than it was.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
                Err(error) => Err(error),
            };
            Done::Read {
                to,
                chunk,
                content,
                result,
            }
        }
    }
}
