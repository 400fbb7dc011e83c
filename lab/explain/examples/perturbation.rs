//! Measures how much goodput sampling costs, by switching it on and off during TCP over loopback.
//!
//! TCP runs between two threads, and every CPU is sampled as `explain` does. The program prints the change of goodput (the median
//! of pairs, and its confidence interval at 95 %) and the time of the interrupts alone: how long each interrupt stopped a thread
//! that watches the clock.
//!
//! ```text
//! cargo run --release -p zerolane-explain --example perturbation -- [HZ [PAIRS]]
//! ```
//!
//! The defaults, 997 Hz and 600 pairs, take two minutes. With 0 Hz nothing is switched, which shows the effect of chance.
//! The program needs permission to sample whole CPUs, and an otherwise idle machine.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

/// How long sampling is on, and off.
const TURN: Duration = Duration::from_millis(100);
/// For so long a thread looks at the time while it is sampled.
const LOOK: Duration = Duration::from_secs(2);
/// Shorter pauses are no interrupts.
const PAUSE_MIN: Duration = Duration::from_nanos(700);
/// Bytes of a call.
const BUFFER: usize = 128 << 10;
/// Bytes of the ring of each CPU, as `explain` has them.
const RING: usize = 512 << 10;
/// Standard deviations of what has a probability of 95 % around the mean.
const DEVIATIONS: f64 = 1.96;

static RECEIVED: AtomicU64 = AtomicU64::new(0);

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|it| it.parse::<u64>());
    let hz = numbers.next().unwrap_or(Ok(997))?;
    let pairs = numbers.next().unwrap_or(Ok(600))?;
    let mut samplers = samplers(hz)?;
    let pauses = pauses(&mut samplers)?;
    let share: f64 = pauses.iter().sum::<f64>() / LOOK.as_secs_f64();
    let (samples, pause) = (pauses.len(), median(pauses).unwrap_or_default());
    println!(
        "{hz} Hz: {samples} samples of a thread that does nothing else in {LOOK:?}; it was away for {:.1} us each (median), {:.2} % of the time in all",
        pause * 1e6,
        share * 100.0
    );
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
    let [low, high] = interval(&changes).ok_or("no pairs")?;
    let middle = median(changes).ok_or("no pairs")?;
    println!(
        "{hz} Hz: goodput changes by {middle:+.2} % ({low:+.2} to {high:+.2}), {pairs} pairs of {TURN:?}"
    );
    Ok(())
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Holds the median, whatever the distribution: of n values as many lie below it as heads fall in n throws of a coin.
fn interval(values: &[f64]) -> Option<[f64; 2]> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let (half, deviation) = (
        values.len() as f64 / 2.0,
        (values.len() as f64).sqrt() / 2.0,
    );
    let low = (half - DEVIATIONS * deviation).floor().max(0.0) as usize;
    let high = (values.len().checked_sub(1)?).checked_sub(low)?;
    Some([*values.get(low)?, *values.get(high)?])
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

fn switch(samplers: &mut [Sampler], on: bool) -> Result<(), Box<dyn Error>> {
    for sampler in samplers {
        let counter = sampler.as_counter_mut();
        if on {
            counter.enable()?;
        } else {
            counter.disable()?;
        }
    }
    Ok(())
}

/// Takes what was sampled, as it is taken while `explain` watches; how many samples of this process it was.
fn take(samplers: &mut [Sampler]) -> usize {
    let mine = std::process::id();
    let mut count = 0;
    for sampler in samplers {
        while let Some(record) = sampler.next_record() {
            let record = record.parse_record();
            let of = record.ok().and_then(|it| match it {
                perf_event::data::Record::Sample(sample) => sample.pid(),
                _ => None,
            });
            count += usize::from(of == Some(mine));
        }
    }
    count
}

/// Seconds that a thread which looks at the time was away, once for each sample of it. What is no sample is shorter, or rare.
fn pauses(samplers: &mut [Sampler]) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut pauses = Vec::new();
    switch(samplers, true)?;
    let started = Instant::now();
    let mut last = started;
    while last - started < LOOK {
        let now = Instant::now();
        if now - last >= PAUSE_MIN {
            pauses.push((now - last).as_secs_f64());
        }
        last = now;
    }
    switch(samplers, false)?;
    let samples = take(samplers);
    pauses.sort_by(|one, other| other.total_cmp(one));
    pauses.truncate(samples);
    Ok(pauses)
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

/// Bytes a second of one turn. What was sampled is taken within it.
fn goodput(samplers: &mut [Sampler], on: bool) -> Result<f64, Box<dyn Error>> {
    if on {
        switch(samplers, true)?;
    }
    let (started, before) = (Instant::now(), RECEIVED.load(Ordering::Relaxed));
    thread::sleep(TURN);
    if on {
        take(samplers);
    }
    let bytes = RECEIVED.load(Ordering::Relaxed) - before;
    let seconds = started.elapsed().as_secs_f64();
    if on {
        switch(samplers, false)?;
    }
    Ok(bytes as f64 / seconds)
}
