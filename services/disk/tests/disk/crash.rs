//! Tests crash consistency: target and initiator are killed at random points, again and again.
//!
//! Flushed data must survive, and every sector must hold exactly one write.

use std::collections::HashMap;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use fastrand::Rng;
use zerolane_disk::initiator::Options;

use super::support::child::{Kind, Target, anywhere};
use super::support::writer::{self, Line, Running, SECTOR};
use super::support::{self, seeds};

const DISK: u64 = 4 << 20;
const SERVE: &str = "killed::target__serves_until_it_is_killed";
const WRITE: &str = "crash::initiator__writes_until_it_is_killed";
/// How many kills, of each kind of disk. The figure is 200 in all.
const KILLS: &str = "ZEROLANE_KILLS";
const FEW: u32 = 8;

#[test]
#[ignore = "a process of the other tests"]
fn initiator__writes_until_it_is_killed() {
    writer::write();
}

/// What each sector may be.
struct Sectors {
    /// The write of which it is at least.
    floor: Vec<u64>,
    /// Later ones, which were begun.
    later: Vec<Vec<u64>>,
    /// Where writes were that are not known to be safe.
    started: HashMap<u64, (u64, u64)>,
    highest: u64,
    safe: u64,
}

impl Sectors {
    fn new() -> Sectors {
        let count = (DISK as usize) / SECTOR;
        Sectors {
            floor: vec![0; count],
            later: vec![Vec::new(); count],
            started: HashMap::new(),
            highest: 0,
            safe: 0,
        }
    }

    fn hear(&mut self, line: Line) {
        match line {
            Line::Begins(version, start, count) => {
                self.highest = self.highest.max(version);
                self.started.insert(version, (start, count));
                for sector in start..start + count {
                    self.later[sector as usize].push(version);
                }
            }
            Line::Safe(versions) => versions.into_iter().for_each(|it| self.keep(it)),
        }
    }

    fn keep(&mut self, version: u64) {
        let (start, count) = self.started.remove(&version).expect("it was begun");
        self.safe += 1;
        for sector in start as usize..(start + count) as usize {
            let floor = self.floor[sector].max(version);
            self.floor[sector] = floor;
            self.later[sector].retain(|&it| it > floor);
        }
    }

    /// Whether `found`, all of the disk, is what it may be.
    fn check(&self, found: &[u8]) {
        for (sector, bytes) in found.chunks(SECTOR).enumerate() {
            let version = writer::version_of(sector as u64, bytes);
            let version = version.unwrap_or_else(|| panic!("sector {sector} is torn"));
            let (floor, later) = (self.floor[sector], &self.later[sector]);
            assert!(
                version == floor || later.contains(&version),
                "sector {sector} is of write {version}, and write {floor} was flushed; begun later: {later:?}"
            );
        }
    }
}

/// Target and initiator, and what is known of the disk.
struct Lab {
    _directory: tempfile::TempDir,
    image: PathBuf,
    kind: Kind,
    address: SocketAddr,
    target: Target,
    writer: Running,
    sectors: Sectors,
}

impl Lab {
    fn new(kind: Kind, rng: &mut Rng) -> Lab {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        File::create(&image).unwrap().set_len(DISK).unwrap();
        let target = Target::start(SERVE, &image, anywhere(), kind);
        Lab {
            _directory: directory,
            image,
            kind,
            address: target.address,
            writer: Running::start(WRITE, target.address, 1, rng.u64(..)),
            target,
            sectors: Sectors::new(),
        }
    }

    fn restart_target(&mut self) {
        self.target.kill();
        self.target = Target::start(SERVE, &self.image, self.address, self.kind);
    }

    fn kill_writer(&mut self) {
        for line in self.writer.kill() {
            self.sectors.hear(line);
        }
    }

    fn restart_writer(&mut self, rng: &mut Rng) {
        let first = self.sectors.highest + 1;
        self.writer = Running::start(WRITE, self.address, first, rng.u64(..));
    }

    /// What another initiator reads is what it may be.
    fn check(&self) {
        let queue = support::open(self.address, 0, Options::default());
        let found = support::read(&queue, 0, DISK).unwrap();
        self.sectors.check(&found);
    }

    /// Lets it write for a while, and kills something.
    fn round(&mut self, rng: &mut Rng) -> &'static str {
        for _ in 0..rng.u32(1..150) {
            let line = self.writer.next().expect("it writes until it is killed");
            self.sectors.hear(line);
        }
        std::thread::sleep(Duration::from_micros(rng.u64(0..5000)));
        match rng.u32(0..3) {
            0 => {
                self.restart_target();
                "target"
            }
            1 => {
                self.kill_writer();
                self.check();
                self.restart_writer(rng);
                "initiator"
            }
            _ => {
                self.target.kill();
                self.kill_writer();
                self.sectors.check(&fs::read(&self.image).unwrap());
                self.target = Target::start(SERVE, &self.image, self.address, self.kind);
                self.check();
                self.restart_writer(rng);
                "both"
            }
        }
    }
}

fn kills() -> u32 {
    let given = std::env::var(KILLS).ok();
    given.map_or(FEW, |it| it.parse().expect("a number in ZEROLANE_KILLS"))
}

fn survives(kind: Kind) {
    seeds::each(1, |mut rng| {
        let mut lab = Lab::new(kind, &mut rng);
        let mut killed = HashMap::new();
        for _ in 0..kills() {
            *killed.entry(lab.round(&mut rng)).or_insert(0) += 1;
        }
        lab.kill_writer();
        lab.check();
        lab.target.kill();
        lab.sectors.check(&fs::read(&lab.image).unwrap());
        let Sectors { highest, safe, .. } = lab.sectors;
        println!("{kind:?}: {killed:?} killed; {highest} writes begun, {safe} flushed and there");
        assert!(safe > 0, "something was flushed");
    });
}

#[test]
fn crash__what_was_flushed_to_a_file_is_there_and_no_sector_is_torn() {
    survives(Kind::File);
}

#[test]
fn crash__what_was_flushed_to_a_disk_that_loses_its_cache_is_there_and_no_sector_is_torn() {
    survives(Kind::Cached);
}
