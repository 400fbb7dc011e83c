//! Tests the door with fio's verify jobs while the link loses, delays and duplicates packets and goes down, and the
//! server restarts.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fastrand::Rng;
use netsim::Side;
use netsim::link::{LinkConfig, Loss};

use crate::lab::{Between, Lab};
use crate::programs;

const DISK: u64 = 64 << 20;
/// The variable with the job's duration in seconds. The default suits CI.
const SECONDS: &str = "ZEROLANE_FIO_SECONDS";
const SHORT: u64 = 10;

/// A link that delays, reorders, duplicates and loses packets, singly or in bursts.
fn any_link(rng: &mut Rng) -> LinkConfig {
    let loss = rng.f64() * 0.03;
    LinkConfig {
        delay: Duration::from_micros(rng.u64(0..8000)),
        jitter: Duration::from_micros(rng.u64(0..2000)),
        loss: match rng.bool() {
            true => Loss::Random(loss),
            false => Loss::bursts(loss, 8.0),
        },
        duplicate: 0.002,
        ..LinkConfig::default()
    }
}

/// Disturbs the link or the server. Returns which disturbance it was.
fn disturb(lab: &mut Lab, rng: &mut Rng) -> usize {
    let relay = lab.relay.as_ref().unwrap();
    match rng.u32(0..4) {
        0 | 1 => {
            relay.set_config(Side::A, any_link(rng));
            relay.set_config(Side::B, any_link(rng));
            0
        }
        2 => {
            relay.set_up(false);
            std::thread::sleep(Duration::from_millis(rng.u64(50..2500)));
            relay.set_up(true);
            1
        }
        _ => {
            lab.restart();
            2
        }
    }
}

#[test]
fn fio__verifies_what_it_wrote_over_loss_flaps_and_restarts() {
    if !programs::are_there(&["fio"]) {
        return;
    }
    let seconds = std::env::var(SECONDS).map_or(SHORT, |it| it.parse().unwrap());
    let seed = std::env::var("ZEROLANE_SEED").ok();
    let seed = seed.map_or_else(|| fastrand::u64(..), |it| it.parse().unwrap());
    println!("ZEROLANE_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let mut lab = Lab::new(DISK, Between::Relay, &[], &[]);
    let mut fio = Command::new("fio");
    fio.args([
        "--name=verify",
        "--ioengine=nbd",
        "--rw=randrw",
        "--rwmixwrite=70",
    ]);
    fio.args([
        "--bsrange=4k-256k",
        "--iodepth=16",
        "--fsync=128",
        "--time_based",
    ]);
    fio.args([
        "--verify=crc32c",
        "--verify_backlog=128",
        "--verify_fatal=1",
    ]);
    fio.args(["--randrepeat=0", "--output-format=json"]);
    fio.arg(format!("--uri={}", lab.uri));
    fio.arg(format!("--size={DISK}"));
    fio.arg(format!("--runtime={seconds}"));
    fio.current_dir(lab.base.path()).stdin(Stdio::null());
    fio.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut job = fio.spawn().unwrap();
    let mut done = [0; 3];
    let until = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < until && job.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(rng.u64(100..1500)));
        done[disturb(&mut lab, &mut rng)] += 1;
    }
    let output = job.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "fio found a mismatch, or an error: {errors}\n{said}"
    );
    let report = said.split_once('{').map(|(_, it)| format!("{{{it}"));
    let report: serde_json::Value = serde_json::from_str(&report.unwrap()).unwrap();
    let job = &report["jobs"][0];
    let [read, written] = ["read", "write"].map(|it| job[it]["io_bytes"].as_u64().unwrap());
    let [links, flaps, restarts] = done;
    println!(
        "{seconds} s: {written} bytes written, {read} read, 0 mismatches; {links} changes of loss and delay, {flaps} \
         flaps, {restarts} kills of the target"
    );
    assert_eq!(job["error"], 0, "{said}");
    assert!(written > 0 && read > 0, "{said}");
}
