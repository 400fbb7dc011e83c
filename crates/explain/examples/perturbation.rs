//! What sampling costs in goodput: TCP over loopback between two threads, every CPU sampled as `explain` does it, switched
//! on and off by turns. Prints the change in goodput, mean and standard error of the pairs.
//!
//! ```text
//! cargo run --release -p zerolane-explain --example perturbation -- [HZ [PAIRS]]
//! ```
//!
//! 997 Hz and 100 pairs if nothing is said, which take 10 s; 0 Hz switches nothing, and shows what chance makes of it. It needs
//! the right to sample whole CPUs, and a machine that does nothing else.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

/// How long sampling is on, and off.
const TURN: Duration = Duration::from_millis(50);
/// Bytes of a call.
const BUFFER: usize = 128 << 10;
/// Bytes of the ring of each CPU, as `explain` has them.
const RING: usize = 512 << 10;

static RECEIVED: AtomicU64 = AtomicU64::new(0);

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|it| it.parse::<u64>());
    let hz = numbers.next().unwrap_or(Ok(997))?;
    let pairs = numbers.next().unwrap_or(Ok(100))?;
    let mut samplers = samplers(hz)?;
    transfer()?;
    // Until windows have grown.
    thread::sleep(Duration::from_secs(1));
    let mut changes = Vec::new();
    for pair in 0..pairs {
        // A B, then B A: what drifts hits both.
        let first = pair % 2 == 0;
        let one = goodput(&mut samplers, first)?;
        let other = goodput(&mut samplers, !first)?;
        let [on, off] = if first { [one, other] } else { [other, one] };
        changes.push((on / off - 1.0) * 100.0);
    }
    let count = changes.len() as f64;
    let mean = changes.iter().sum::<f64>() / count;
    let squares: f64 = changes.iter().map(|it| (it - mean).powi(2)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    println!("{hz} Hz: goodput changes by {mean:+.1} % +- {error:.1} %, {pairs} pairs");
    Ok(())
}

/// One for each CPU, off; none at 0 Hz.
fn samplers(hz: u64) -> Result<Vec<Sampler>, Box<dyn Error>> {
    let cpus = match hz {
        0 => 0,
        _ => thread::available_parallelism()?.get(),
    };
    let open = |cpu| {
        Builder::new(Software::CPU_CLOCK)
            .sample_frequency(hz)
            .any_pid()
            .one_cpu(cpu)
            .include_kernel()
            .include_hv()
            .sample(SampleFlag::TID | SampleFlag::CALLCHAIN)
            .wakeup_watermark(RING)
            .build()?
            .sampled(RING)
    };
    Ok((0..cpus).map(open).collect::<Result<_, _>>()?)
}

/// Sends and receives until the process ends.
fn transfer() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut to = TcpStream::connect(listener.local_addr()?)?;
    let (mut from, _) = listener.accept()?;
    thread::spawn(move || {
        let buffer = vec![7; BUFFER];
        while to.write_all(&buffer).is_ok() {}
    });
    thread::spawn(move || {
        let mut buffer = vec![0; BUFFER];
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            RECEIVED.fetch_add(len as u64, Ordering::Relaxed);
        }
    });
    Ok(())
}

/// Bytes a second of one turn. What was sampled is taken within it, as it is while `explain` watches.
fn goodput(samplers: &mut [Sampler], on: bool) -> Result<f64, Box<dyn Error>> {
    if on {
        for sampler in samplers.iter_mut() {
            sampler.as_counter_mut().enable()?;
        }
    }
    let (begun, before) = (Instant::now(), RECEIVED.load(Ordering::Relaxed));
    thread::sleep(TURN);
    if on {
        for sampler in samplers.iter_mut() {
            while sampler.next_record().is_some() {}
        }
    }
    let bytes = RECEIVED.load(Ordering::Relaxed) - before;
    let seconds = begun.elapsed().as_secs_f64();
    if on {
        for sampler in samplers {
            sampler.as_counter_mut().disable()?;
        }
    }
    Ok(bytes as f64 / seconds)
}
