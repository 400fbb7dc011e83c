//! Sets up a target with disks in memory, and initiators that call it.

#![allow(dead_code, unreachable_pub)] // Each test program uses a part.

use std::sync::Arc;

use zerolane_block::cdb::{Command, Extent, Form};
use zerolane_block::sense::{Code, Key, Sense};
use zerolane_block::store::{MemoryStore, Store};
use zerolane_block::{
    Access, Attribute, Disk, Identity, Initiator, Lun, NexusId, Request, Response, Status, Target,
    execute,
};

pub const BLOCK: usize = 512;
pub const BLOCKS: u64 = 4096;

/// A target and one initiator at its unit 0.
#[derive(Debug)]
pub struct Rig {
    pub target: Target,
    pub nexus: NexusId,
    tag: u64,
}

pub fn lun(number: u16) -> Lun {
    Lun::new(number).unwrap()
}

pub fn disk(store: &dyn Store) -> Disk {
    Disk::of(store, BLOCK as u32, Identity::of(&[b"test"])).unwrap()
}

pub fn extent(lba: u64, blocks: u64) -> Extent {
    Extent { lba, blocks }
}

/// Blocks that are all different, and different for each seed.
pub fn pattern(blocks: u64, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; blocks as usize * BLOCK];
    random.fill(&mut bytes);
    bytes
}

pub fn read(extent: Extent) -> Command {
    Command::Read {
        form: Form::Sixteen,
        extent,
        dpo: false,
        fua: false,
    }
}

pub fn write(extent: Extent) -> Command {
    Command::Write {
        form: Form::Sixteen,
        extent,
        dpo: false,
        fua: false,
    }
}

impl Rig {
    /// One disk in memory of [`BLOCKS`].
    pub fn new() -> Rig {
        Rig::of(Arc::new(MemoryStore::new(BLOCKS * BLOCK as u64)))
    }

    /// One disk that is `store`.
    pub fn of(store: Arc<dyn Store>) -> Rig {
        let disk = disk(&*store);
        Rig::with(disk, store)
    }

    pub fn with(disk: Disk, store: Arc<dyn Store>) -> Rig {
        let mut target = Target::new();
        target.add_unit(lun(0), disk, store).unwrap();
        let nexus = attach(&mut target, "first");
        let mut rig = Rig {
            target,
            nexus,
            tag: 0,
        };
        rig.hear(nexus);
        rig
    }

    /// Another initiator, which has heard of the reset.
    pub fn join(&mut self, name: &str) -> NexusId {
        let nexus = attach(&mut self.target, name);
        self.hear(nexus);
        nexus
    }

    /// Takes the attention that waits for a newcomer.
    fn hear(&mut self, nexus: NexusId) {
        let response = self.by(nexus, &Command::TestUnitReady, &[], 0).0;
        assert_eq!(response.sense.unwrap().code, Code::POWER_ON);
    }

    pub fn tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }

    /// Has bytes of a CDB done at that unit.
    pub fn raw(
        &mut self,
        nexus: NexusId,
        lun: [u8; 8],
        cdb: &[u8],
        out: &[u8],
        room: usize,
    ) -> (Response, Vec<u8>) {
        let request = Request {
            tag: self.tag(),
            lun,
            attribute: Attribute::Simple,
            cdb,
            data_in: 0,
            data_out: 0,
            in_capsule: false,
        };
        let mut data = vec![0; room];
        let response = execute(&mut self.target, nexus, &request, out, &mut data).unwrap();
        (response.expect("no other commands"), data)
    }

    /// Has a command done.
    pub fn by(
        &mut self,
        nexus: NexusId,
        command: &Command,
        out: &[u8],
        room: usize,
    ) -> (Response, Vec<u8>) {
        let cdb = command.cdb().expect("it fits");
        self.raw(nexus, lun(0).encode(), cdb.as_bytes(), out, room)
    }

    pub fn run(&mut self, command: &Command, out: &[u8], room: usize) -> (Response, Vec<u8>) {
        self.by(self.nexus, command, out, room)
    }

    /// Has a command done that succeeds, and returns what it read.
    pub fn good(&mut self, command: &Command, out: &[u8], room: usize) -> Vec<u8> {
        let (response, mut data) = self.run(command, out, room);
        assert_eq!(response.status, Status::Good, "{command:?}: {response:?}");
        assert_eq!(response.sense, None);
        // Of parameter data only what there is.
        if !response.data.is_empty() {
            data.truncate(response.data.len());
        }
        data
    }

    /// Has a command done that fails.
    pub fn fails(&mut self, command: &Command, out: &[u8], room: usize) -> Sense {
        let (response, _) = self.run(command, out, room);
        check(&response)
    }

    pub fn read(&mut self, extent: Extent) -> Vec<u8> {
        self.good(&read(extent), &[], extent.blocks as usize * BLOCK)
    }

    pub fn write(&mut self, lba: u64, bytes: &[u8]) {
        let blocks = (bytes.len() / BLOCK) as u64;
        self.good(&write(extent(lba, blocks)), bytes, 0);
    }

    /// Has six to sixteen bytes done, as they are.
    pub fn bytes(&mut self, cdb: &[u8], out: &[u8], room: usize) -> (Response, Vec<u8>) {
        self.raw(self.nexus, lun(0).encode(), cdb, out, room)
    }
}

/// An initiator that may not write, and has heard of the reset.
pub fn reader(rig: &mut Rig) -> NexusId {
    let access = Access {
        read_only: true,
        ..Access::default()
    };
    let name = Initiator::named(b"reader").unwrap();
    let reader = rig.target.attach(name, access).unwrap();
    rig.by(reader, &Command::TestUnitReady, &[], 0);
    reader
}

/// The sense data of a command that failed by them.
pub fn check(response: &Response) -> Sense {
    assert_eq!(response.status, Status::CheckCondition, "{response:?}");
    response.sense.expect("with CHECK CONDITION")
}

/// An initiator that has heard nothing yet.
pub fn attach(target: &mut Target, name: &str) -> NexusId {
    let initiator = Initiator::named(name.as_bytes()).unwrap();
    target.attach(initiator, Access::default()).unwrap()
}

pub fn illegal(code: Code) -> Sense {
    Sense::new(Key::IllegalRequest, code)
}
