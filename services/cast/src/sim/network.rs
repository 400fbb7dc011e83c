//! Models ports, uplinks and disks: until when each is busy.

use super::{Racks, Setup, Uplink};

/// Nanoseconds of virtual time.
pub(super) type Nanos = u64;

/// Something that passes one thing after the other.
#[derive(Clone, Copy, Debug)]
struct Server {
    /// Bytes a second.
    rate: u64,
    free: Nanos,
}

impl Server {
    fn new(rate: u64) -> Server {
        Server { rate, free: 0 }
    }

    fn time(&self, bytes: u64) -> Nanos {
        match self.rate {
            0 => 0,
            rate => (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as Nanos,
        }
    }

    /// Passes what begins to come at `from`: when it is through.
    fn pass(&mut self, from: Nanos, bytes: u64) -> Nanos {
        self.free = self.free.max(from) + self.time(bytes);
        self.free
    }
}

/// All ports of the network, and all disks.
#[derive(Debug)]
pub(super) struct Network {
    outward: Vec<Server>,
    inward: Vec<Server>,
    uplinks_out: Vec<Server>,
    uplinks_in: Vec<Server>,
    carried: Vec<Uplink>,
    disks: Vec<Server>,
    racks: Option<Racks>,
    latency: Nanos,
}

impl Network {
    pub(super) fn new(setup: &Setup) -> Network {
        let nodes = setup.nodes as usize + 1;
        let racks = setup.racks.map_or(0, |it| nodes / it.nodes as usize + 1);
        let uplink = setup.racks.map_or(0, |it| it.uplink);
        let mut disks = vec![Server::new(setup.disk); nodes];
        disks[0] = Server::new(setup.source_disk);
        Network {
            outward: vec![Server::new(setup.port); nodes],
            inward: vec![Server::new(setup.port); nodes],
            uplinks_out: vec![Server::new(uplink); racks],
            uplinks_in: vec![Server::new(uplink); racks],
            carried: vec![Uplink::default(); racks],
            disks,
            racks: setup.racks,
            latency: setup.latency.as_nanos() as Nanos,
        }
    }

    pub(super) fn rack_of(&self, node: u32) -> u32 {
        self.racks.map_or(0, |it| node / it.nodes)
    }

    pub(super) fn carried(self) -> Vec<Uplink> {
        self.carried
    }

    pub(super) fn latency(&self) -> Nanos {
        self.latency
    }

    pub(super) fn slow_down(&mut self, node: u32, factor: u32) {
        let node = node as usize;
        self.outward[node].rate /= u64::from(factor);
        self.inward[node].rate /= u64::from(factor);
    }

    /// A port begins to send: when it is free again, and when all has arrived.
    pub(super) fn send(&mut self, now: Nanos, from: u32, to: u32, bytes: u64) -> (Nanos, Nanos) {
        let (from_rack, to_rack) = (self.rack_of(from) as usize, self.rack_of(to) as usize);
        let free = self.outward[from as usize].pass(now, bytes);
        let mut through = free;
        if self.racks.is_some() && from_rack != to_rack {
            self.carried[from_rack].sent += bytes;
            self.carried[to_rack].received += bytes;
            through = through.max(self.uplinks_out[from_rack].pass(now, bytes));
            through = through.max(self.uplinks_in[to_rack].pass(now, bytes));
        }
        through = through.max(self.inward[to as usize].pass(now, bytes));
        (free, through + self.latency)
    }

    /// A disk reads or writes: when that is done.
    pub(super) fn disk(&mut self, now: Nanos, node: u32, bytes: u64) -> Nanos {
        self.disks[node as usize].pass(now, bytes)
    }
}
