//! Measures how fast captures are read: makes one in the directory for temporary files, traces it, and removes it.
//!
//! ```text
//! cargo run --release -p zerolane-trace --example throughput -- 1000000000 1514
//! ```
//! The second number is how many bytes of each frame are recorded: with 96 there are ten times as many packets.

use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::time::Instant;

use etherparse::PacketBuilder;
use zerolane_trace::{Options, Trace};

/// TCP payload of a frame.
const PAYLOAD: usize = 1460;
/// Flows that take turns, a page each.
const FLOWS: u16 = 64;
const PACKETS_A_TURN: u32 = 3;

fn main() -> io::Result<()> {
    let mut numbers = std::env::args().skip(1).filter_map(|it| it.parse().ok());
    let bytes: usize = numbers.next().unwrap_or(1_000_000_000);
    let snap: usize = numbers.next().unwrap_or(1514);
    let mut file = tempfile::tempfile()?;
    let packets = write(&mut BufWriter::new(&mut file), bytes, snap)?;
    let len = file.stream_position()?;
    file.rewind()?;
    let report = timed(&file, len, packets);
    let pairs = &report.sum.rules.pairs;
    println!("pairs: {} of {} hit", pairs.hits, pairs.potential);
    Ok(())
}

fn timed(file: &File, len: u64, packets: u64) -> zerolane_trace::Report {
    let started = Instant::now();
    let mut trace = Trace::new(&Options::default());
    trace.read("made", file).expect("a capture");
    let report = trace.finish();
    let seconds = started.elapsed().as_secs_f64();
    assert_eq!(
        (report.seen.packets, &report.inputs[0].ended),
        (packets, &None)
    );
    let nanoseconds = seconds * 1e9 / packets as f64;
    println!("{len} bytes, {packets} packets: {seconds:.2} s, {nanoseconds:.0} ns a packet");
    report
}

/// Writes a pcap file of about `bytes`. How many packets it has.
fn write(out: &mut impl Write, bytes: usize, snap: usize) -> io::Result<u64> {
    for word in [0xa1b2_3c4d_u32, 0x0004_0002, 0, 0, 1 << 18, 1] {
        out.write_all(&word.to_le_bytes())?;
    }
    let frames: Vec<Vec<u8>> = (0..FLOWS).map(frame).collect::<Result<_, _>>()?;
    let recorded = snap.min(frames[0].len());
    let packets = (bytes / (16 + recorded)) as u32;
    for index in 0..packets {
        let turn = index / PACKETS_A_TURN;
        let mut frame = frames[(turn % u32::from(FLOWS)) as usize].clone();
        let number = turn / u32::from(FLOWS) * PACKETS_A_TURN + index % PACKETS_A_TURN;
        frame[38..42].copy_from_slice(&number.wrapping_mul(PAYLOAD as u32).to_be_bytes());
        let time = u64::from(index) * 1_200;
        let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
        for word in [
            seconds as u32,
            rest as u32,
            recorded as u32,
            frame.len() as u32,
        ] {
            out.write_all(&word.to_le_bytes())?;
        }
        out.write_all(&frame[..recorded])?;
    }
    out.flush()?;
    Ok(packets.into())
}

fn frame(flow: u16) -> io::Result<Vec<u8>> {
    let [high, low] = flow.to_be_bytes();
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([10, 1, high, low], [10, 0, 0, 1], 64)
        .tcp(5000 + flow, 80, 0, 1024)
        .write(&mut bytes, &[0; PAYLOAD])
        .map_err(io::Error::other)?;
    Ok(bytes)
}
