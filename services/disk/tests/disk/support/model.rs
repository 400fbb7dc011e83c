//! Compares random requests with a model of a disk.

use std::collections::VecDeque;

use fastrand::Rng;
use zerolane::Region;
use zerolane_disk::initiator::{Done, Error, Pending, Queue, Request};

use super::BLOCK;

/// What the disk has to have, and the requests in progress, none of which overlap if one of them writes.
pub struct Model {
    pub content: Vec<u8>,
    busy: VecDeque<(Expected, Pending)>,
    most: usize,
}

struct Expected {
    at: usize,
    bytes: usize,
    /// The expected bytes of a read.
    content: Option<Vec<u8>>,
    writes: bool,
    is_flush: bool,
}

impl Model {
    pub fn new(bytes: u64, most: usize) -> Model {
        Model {
            content: vec![0; bytes as usize],
            busy: VecDeque::new(),
            most,
        }
    }

    /// Begins a random request of at most `longest` bytes; waits for one if there are too many.
    ///
    /// # Errors
    /// A flush failed. Anything else that fails is a panic.
    pub fn step(&mut self, queue: &Queue, rng: &mut Rng, longest: u64) -> Result<(), Error> {
        if self.busy.len() >= self.most {
            self.wait_for_one()?;
        }
        let blocks = self.content.len() as u64 / BLOCK;
        let count = rng.u64(1..=longest / BLOCK);
        let start = rng.u64(0..=blocks - count);
        let (at, bytes) = ((start * BLOCK) as usize, (count * BLOCK) as usize);
        let kind = rng.u32(0..100);
        let writes = kind < 55;
        let overlaps =
            |it: &Expected| (it.writes || writes) && it.at < at + bytes && at < it.at + it.bytes;
        while self.busy.iter().any(|(it, _)| overlaps(it)) {
            self.wait_for_one()?;
        }
        let mut expected = Expected {
            at,
            bytes,
            content: None,
            writes,
            is_flush: false,
        };
        let place = &mut self.content[at..at + bytes];
        let at = at as u64;
        let request = match kind {
            0..45 => {
                rng.fill(place);
                let memory = super::region(place);
                let durable = kind < 5;
                Request::Write {
                    at,
                    memory,
                    durable,
                }
            }
            45..55 => {
                place.fill(0);
                let (bytes, unmap) = (bytes as u64, kind < 50);
                Request::Zero { at, bytes, unmap }
            }
            55..95 => {
                expected.content = Some(place.to_vec());
                let memory = Region::anonymous(bytes).unwrap();
                Request::Read { at, memory }
            }
            _ => {
                expected.is_flush = true;
                Request::Flush
            }
        };
        self.busy.push_back((expected, queue.start(request)));
        Ok(())
    }

    fn wait_for_one(&mut self) -> Result<(), Error> {
        let Some((expected, pending)) = self.busy.pop_front() else {
            return Ok(());
        };
        let Done { result, memory } = pending.wait();
        if expected.is_flush {
            return result;
        }
        result.unwrap();
        if let Some(content) = expected.content {
            assert!(memory[..] == content[..], "read at {}", expected.at);
        }
        Ok(())
    }

    /// Waits for all.
    ///
    /// # Errors
    /// As of [`Model::step`].
    pub fn settle(&mut self) -> Result<(), Error> {
        while !self.busy.is_empty() {
            self.wait_for_one()?;
        }
        Ok(())
    }

    /// All of the disk is as the model has it.
    pub fn check(&mut self, queue: &Queue) {
        self.settle().unwrap();
        let found = super::read(queue, 0, self.content.len() as u64).unwrap();
        let differs = found.iter().zip(&self.content).position(|(a, b)| a != b);
        assert_eq!(differs, None, "the first byte that differs");
    }
}
