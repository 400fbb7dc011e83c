//! Tests that initiators continue when a target is killed at random points and restarted.

use std::fs::{self, File};
use std::path::PathBuf;

use zerolane_disk::initiator::Error;

use super::support::child::{self, Kind, Target, anywhere};
use super::support::model::Model;
use super::support::{self, seeds};

const DISK: u64 = 4 << 20;
const SERVE: &str = "killed::target__serves_until_it_is_killed";

#[test]
#[ignore = "a process of the other tests"]
fn target__serves_until_it_is_killed() {
    child::serve();
}

struct Image {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

fn image() -> Image {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    File::create(&path).unwrap().set_len(DISK).unwrap();
    Image {
        _directory: directory,
        path,
    }
}

/// All that was told to be done is there, flushed or not: the machine did not stop.
#[test]
fn killed__a_target_of_a_file_loses_nothing() {
    seeds::each(1, |mut rng| {
        let image = image();
        let mut target = Target::start(SERVE, &image.path, anywhere(), Kind::File);
        let address = target.address;
        let queue = child::queue_to(address);
        let mut model = Model::new(DISK, 16);
        for _ in 0..12 {
            for _ in 0..rng.u32(1..80) {
                model.step(&queue, &mut rng, 64 << 10).unwrap();
            }
            // With requests in progress.
            target.kill();
            target = Target::start(SERVE, &image.path, address, Kind::File);
        }
        model.check(&queue);
        assert!(queue.repairs().reconnects > 0, "it was killed");
        target.kill();
        assert!(fs::read(&image.path).unwrap() == model.content, "the image");
    });
}

/// A disk whose cache is lost with its target: what was flushed is there, and a loss is told by every flush.
#[test]
fn killed__what_was_flushed_is_there_and_a_loss_is_told() {
    seeds::each(1, |mut rng| {
        let image = image();
        let mut target = Target::start(SERVE, &image.path, anywhere(), Kind::Cached);
        let address = target.address;
        let mut queue = child::queue_to(address);
        let mut losses = 0;
        for round in 0..8u8 {
            // Before the flush, and behind it.
            let kept = vec![round * 2 + 1; 64 << 10];
            let doubtful = vec![round * 2 + 2; 64 << 10];
            let at = u64::from(round) * (128 << 10);
            support::write(&queue, at, &kept).unwrap();
            support::flush(&queue).unwrap();
            let is_doubtful = rng.bool();
            if is_doubtful {
                support::write(&queue, at + (64 << 10), &doubtful).unwrap();
            }
            target.kill();
            let found = fs::read(&image.path).unwrap();
            assert!(found[at as usize..][..kept.len()] == kept[..], "flushed");
            target = Target::start(SERVE, &image.path, address, Kind::Cached);
            match support::flush(&queue) {
                Ok(()) => assert!(!is_doubtful, "a loss was not told"),
                Err(Error::Lost) => {
                    assert!(is_doubtful, "nothing was lost");
                    losses += 1;
                    let again = support::flush(&queue);
                    assert!(matches!(again, Err(Error::Lost)), "it is told again");
                    queue = child::queue_to(address);
                }
                Err(other) => panic!("{other}"),
            }
        }
        println!("{losses} losses of 8 kills");
    });
}
