//! Fuzzes a slow target with CDBs, parameter lists and task management functions of two initiators, in any order. No
//! panic, no access outside a unit or without permission, sense data that parse to the same, capsules taken as a whole,
//! and one end of every command.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use zerolane_block::cdb::opcode;
use zerolane_block::sense::{Failure, Format, Key, Sense};
use zerolane_block::store::{MemoryStore, Run, Store};
use zerolane_block::{
    Access, Attribute, Disk, Function, Identity, Initiator, Lun, NexusId, Payload, Request,
    Residual, Response, Status, Step, Target, TaskId, Work,
};

const BYTES: u64 = 64 << 10;

/// The only memory that may change.
#[derive(Debug)]
struct Guarded {
    memory: MemoryStore,
    read_only: bool,
}

impl Guarded {
    fn check(&self, at: u64, bytes: u64, writes: bool) {
        let end = at.checked_add(bytes).expect("an address");
        assert!(end <= BYTES, "{at}+{bytes}");
        assert!(!(writes && self.read_only), "written");
    }
}

impl Store for Guarded {
    fn bytes(&self) -> u64 {
        BYTES
    }
    fn is_read_only(&self) -> bool {
        self.read_only
    }
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        self.check(at, into.len() as u64, false);
        self.memory.read(at, into)
    }
    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        self.check(at, from.len() as u64, true);
        self.memory.write(at, from)
    }
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
    fn unmap(&self, at: u64, bytes: u64) -> io::Result<bool> {
        self.check(at, bytes, true);
        self.memory.unmap(at, bytes)
    }
    fn run(&self, at: u64) -> io::Result<Run> {
        self.check(at, 1, false);
        self.memory.run(at)
    }
    fn expect(&self, at: u64, bytes: u64) {
        self.check(at, bytes, false);
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// So many bytes, or what is left.
    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A length: short ones byte by byte, long ones up to 32 KiB.
    fn length(&mut self) -> u64 {
        match self.byte() {
            long @ 128.. => u64::from(long - 127) << 8,
            short => short.into(),
        }
    }

    fn lun(&mut self) -> [u8; 8] {
        let byte = self.byte();
        if byte < 0xf0 {
            return [0, byte % 4, 0, 0, 0, 0, 0, 0];
        }
        let mut lun = [0xc1, 1, 0, 0, 0, 0, 0, 0];
        let bytes = self.bytes(2);
        lun[..bytes.len()].copy_from_slice(bytes);
        lun
    }
}

/// What is outstanding at an end.
struct World {
    target: Target,
    nexuses: [NexusId; 2],
    /// Room for data of commands that have no response yet.
    open: BTreeMap<(NexusId, u64), u64>,
    /// Data that came in the capsules of commands.
    capsules: BTreeMap<(NexusId, u64), u64>,
    works: Vec<(TaskId, NexusId, u64, Work)>,
    fetches: Vec<(TaskId, usize)>,
    tag: u64,
    /// Something was sent that may abort commands.
    aborts: bool,
}

fn attach(target: &mut Target, index: usize) -> NexusId {
    let name = Initiator::named(&[b'a' + index as u8]).expect("a name");
    let access = Access {
        units: None,
        read_only: false,
    };
    target.attach(name, access).expect("room")
}

impl World {
    fn new() -> World {
        let mut target = Target::new();
        for (number, block, read_only) in [(0, 512, false), (1, 4096, true), (2, 4096, false)] {
            let memory = MemoryStore::new(BYTES);
            let store = Arc::new(Guarded { memory, read_only });
            let disk = Disk::of(&*store, block, Identity::of(&[&[number as u8]])).expect("a disk");
            let disk = Disk {
                thin: number != 2,
                write_cache: number != 2,
                ..disk
            };
            let lun = Lun::new(number).expect("a number");
            target.add_unit(lun, disk, store).expect("room");
        }
        let nexuses = [0, 1].map(|index| attach(&mut target, index));
        World {
            target,
            nexuses,
            open: BTreeMap::new(),
            capsules: BTreeMap::new(),
            works: Vec::new(),
            fetches: Vec::new(),
            tag: 0,
            aborts: false,
        }
    }

    fn submit(&mut self, input: &mut Input<'_>) {
        let nexus = self.nexuses[usize::from(input.byte() % 2)];
        let how = input.byte();
        let in_capsule = how >= 128;
        let attribute = match how % 8 {
            0 => Attribute::Ordered,
            1 => Attribute::HeadOfQueue,
            _ => Attribute::Simple,
        };
        self.tag += 1;
        let (lun, length) = (input.lun(), usize::from(input.byte() % 17));
        let request = Request {
            tag: self.tag,
            lun,
            attribute,
            data_in: input.length(),
            data_out: input.length(),
            in_capsule,
            cdb: input.bytes(length),
        };
        self.aborts |= request.cdb.first() == Some(&opcode::PERSISTENT_RESERVE_OUT);
        self.open.insert((nexus, self.tag), request.data_in);
        if in_capsule {
            self.capsules.insert((nexus, self.tag), request.data_out);
        }
        self.target.submit(nexus, &request).expect("a nexus");
    }

    fn take(&mut self, most: usize) {
        for _ in 0..most {
            let Some(step) = self.target.next_step() else {
                return;
            };
            match step {
                Step::Fetch {
                    task,
                    nexus,
                    tag,
                    bytes,
                } => {
                    self.check_capsule(nexus, tag, bytes as u64);
                    self.fetches.push((task, bytes));
                }
                Step::Work {
                    task,
                    nexus,
                    tag,
                    work,
                } => {
                    if let Payload::Out(bytes) = work.payload() {
                        self.check_capsule(nexus, tag, bytes);
                    }
                    self.works.push((task, nexus, tag, work));
                }
                Step::Respond {
                    nexus,
                    tag,
                    response,
                } => {
                    let room = self.open.remove(&(nexus, tag)).expect("one response");
                    check(&response, room);
                }
                Step::Managed { .. } => {}
            }
        }
    }

    /// All of a capsule is taken, or nothing.
    fn check_capsule(&self, nexus: NexusId, tag: u64, bytes: u64) {
        let held = self.capsules.get(&(nexus, tag));
        assert!(held.is_none_or(|&it| it == bytes), "{bytes} of {held:?}");
    }

    fn fetch(&mut self, input: &mut Input<'_>) {
        let Some((task, bytes)) = self.fetches.pop() else {
            return;
        };
        let mut parameters = input.bytes(bytes).to_vec();
        // Else the length is wrong.
        if input.byte() < 0xf8 {
            parameters.resize(bytes, 0);
        }
        self.target.fetched(task, &parameters);
    }

    fn work(&mut self, input: &mut Input<'_>) {
        let which = usize::from(input.byte());
        if self.works.is_empty() {
            return;
        }
        let (task, _, _, work) = self.works.swap_remove(which % self.works.len());
        let outcome = perform(&work, input.byte());
        self.target.done(task, outcome);
    }

    fn manage(&mut self, input: &mut Input<'_>) {
        let nexus = self.nexuses[usize::from(input.byte() % 2)];
        let tag = self.tag.saturating_sub(input.byte().into());
        let function = match input.byte() % 5 {
            0 => Function::AbortTask(tag),
            1 => Function::AbortTaskSet,
            2 => Function::ClearTaskSet,
            3 => Function::ResetUnit,
            _ => Function::QueryTask(tag),
        };
        self.aborts = true;
        let lun = input.lun();
        self.target
            .manage(nexus, 0, lun, function)
            .expect("a nexus");
    }

    fn come_back(&mut self, index: usize) {
        let nexus = self.nexuses[index];
        self.target.detach(nexus);
        self.open.retain(|&(of, _), _| of != nexus);
        self.nexuses[index] = attach(&mut self.target, index);
    }

    /// All that is outstanding is done.
    fn drain(&mut self) {
        loop {
            self.take(usize::MAX);
            if let Some((task, bytes)) = self.fetches.pop() {
                self.target.fetched(task, &vec![0; bytes]);
            } else if let Some((task, _, _, work)) = self.works.pop() {
                self.target.done(task, perform(&work, 0));
            } else {
                return;
            }
        }
    }
}

fn perform(work: &Work, content: u8) -> Result<Vec<u8>, Failure> {
    match work.payload() {
        Payload::None => {}
        Payload::In(bytes) => work.read(0, &mut vec![0; bytes as usize])?,
        Payload::Out(bytes) => work.write(0, &vec![content; bytes as usize])?,
    }
    work.finish()
}

fn check(response: &Response, room: u64) {
    assert!(response.data.len() as u64 <= room);
    assert_eq!(
        response.status == Status::CheckCondition,
        response.sense.is_some()
    );
    assert!(response.data.is_empty() || response.status == Status::Good);
    if let Residual::Under(bytes) | Residual::Over(bytes) = response.residual {
        assert!(bytes > 0);
    }
    let Some(sense) = response.sense else {
        return;
    };
    assert!(sense.field.is_none() || sense.key == Key::IllegalRequest);
    assert_eq!(Sense::parse(&sense.encode(Format::Descriptor)), Ok(sense));
    let fixed = Sense {
        information: sense.information.filter(|&it| it <= u32::MAX.into()),
        ..sense
    };
    assert_eq!(Sense::parse(&sense.encode(Format::Fixed)), Ok(fixed));
}

/// See the first lines of this file.
pub fn run(input: &[u8]) {
    let mut input = Input(input);
    let mut world = World::new();
    while !input.0.is_empty() {
        match input.byte() % 16 {
            0..8 => world.submit(&mut input),
            8 => world.take(1),
            9 => world.take(usize::MAX),
            10 | 11 => world.fetch(&mut input),
            12 | 13 => world.work(&mut input),
            14 => world.manage(&mut input),
            _ => world.come_back(usize::from(input.byte() % 2)),
        }
    }
    world.drain();
    // Commands that were aborted have no response.
    assert!(world.aborts || world.open.is_empty(), "{:?}", world.open);
}
