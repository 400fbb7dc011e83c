//! Runs every fuzz target on its seeds and on mutations of these, without the coverage that cargo-fuzz follows.
//!
//! ZEROLANE_FUZZ_INPUTS=N runs N mutations a target in place of 2,000, ZEROLANE_FUZZ_SEED=S the same ones again.

#![allow(non_snake_case)]

#[path = "../../../transport/wire/tests/specimens/mod.rs"]
mod specimens;

use fastrand::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::{env, fs};
use zerolane_fuzz_targets::TARGETS;

/// As long as cargo-fuzz makes them in `fuzz/README.md`, bytes.
const LONGEST: usize = 1024;
const BOUNDARIES: [u64; 8] = [0, 1, 0x7f, 0x80, 0xff, 0x7fff_ffff, 0x8000_0000, u64::MAX];

fn from_environment(name: &str) -> Option<u64> {
    env::var(name).ok().map(|it| it.parse().expect(name))
}

/// The seeds of `target`, the shortest first.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    if target == "wire_packet" || target == "wire_datagram" {
        seeds.extend(specimens::packets().into_iter().map(|(_, packet)| {
            let (bytes, len) = packet.emit();
            bytes[..len].to_vec()
        }));
        let (announcement, offset) = specimens::eager();
        seeds.push(announcement.eager(offset).emit().to_vec());
        seeds.push(specimens::data().emit().to_vec());
    }
    let kept = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/seeds")
        .join(target);
    if kept.exists() {
        let files = fs::read_dir(kept).unwrap().map(|it| it.unwrap().path());
        seeds.extend(files.map(|it| fs::read(it).unwrap()));
    }
    assert!(!seeds.is_empty(), "random bytes alone reach nothing");
    seeds.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    seeds
}

/// Part of `bytes`, from anywhere in them.
fn part<'a>(rng: &mut Rng, bytes: &'a [u8]) -> &'a [u8] {
    let start = rng.usize(..=bytes.len());
    &bytes[start..rng.usize(start..=bytes.len())]
}

/// Changes `input` in one place. `other` is another seed.
fn mutate(rng: &mut Rng, input: &mut Vec<u8>, other: &[u8]) {
    let at = rng.usize(..=input.len());
    match rng.u8(..7) {
        0 => input.truncate(at),
        1 => drop(input.splice(at..at, part(rng, other).to_vec())),
        2 => input.extend_from_slice(part(rng, other)),
        3 => drop(input.drain(at..rng.usize(at..=input.len()))),
        4 => {
            let bytes = rng.u64(..).to_ne_bytes();
            drop(input.splice(at..at, part(rng, &bytes).to_vec()));
        }
        5 => {
            let boundary = rng.choice(BOUNDARIES).unwrap().to_be_bytes();
            let len = [1, 2, 4, 8][rng.usize(..4)].min(input.len() - at);
            input[at..at + len].copy_from_slice(&boundary[8 - len..]);
        }
        _ => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= 1 << rng.u8(..8);
            }
        }
    }
    input.truncate(LONGEST);
}

fn run(name: &str, target: fn(&[u8]), input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        eprintln!("{name} panics on {input:02x?}");
        resume_unwind(panic);
    }
}

fn hold(name: &str) {
    let (_, target) = *TARGETS.iter().find(|it| it.0 == name).unwrap();
    let seed = from_environment("ZEROLANE_FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
    let inputs = from_environment("ZEROLANE_FUZZ_INPUTS").unwrap_or(2_000);
    println!("ZEROLANE_FUZZ_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let seeds = seeds(name);
    for input in &seeds {
        run(name, target, input);
    }
    for _ in 0..inputs {
        let mut input = rng.choice(&seeds).unwrap().clone();
        for _ in 0..rng.u8(1..=8) {
            let other = rng.choice(&seeds).unwrap();
            mutate(&mut rng, &mut input, other);
        }
        run(name, target, &input);
    }
}

/// One test a target, so that they run at once and a failure names its target.
macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test] fn $name() { hold(stringify!($name)); })*

        #[test]
        fn targets__have_a_program_and_a_row() {
            let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
            let manifest = fs::read_to_string(programs.join("Cargo.toml")).unwrap();
            let readme = fs::read_to_string(programs.join("README.md")).unwrap();
            for (name, _) in TARGETS {
                let program = fs::read_to_string(programs.join(format!("fuzz_targets/{name}.rs"))).unwrap();
                assert!(program.contains(&format!("zerolane_fuzz_targets::{name}(input)")), "{name}");
                assert!(readme.contains(&format!("\n| `{name}` |")), "{name} has no row");
                assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
            }
        }
    };
}

zerolane_fuzz_targets::with_targets!(tests);
