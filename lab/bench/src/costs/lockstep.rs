//! Runs two threads in turn, one core each, and times each alone without its waits.

use std::hint::spin_loop;
use std::sync::mpsc::{Receiver, RecvError, Sender, TryRecvError, channel};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};

use crate::cpu;

/// Seconds of each turn of both threads. The turns are numbered from 0.
pub(super) fn turns(
    cores: [usize; 2],
    turns: usize,
    first: impl FnMut(usize) -> Result<()> + Send,
    second: impl FnMut(usize) -> Result<()> + Send,
) -> Result<[Vec<f64>; 2]> {
    let (to_second, of_first) = channel();
    let (to_first, of_second) = channel();
    let gone = || anyhow!("the other thread has ended");
    thread::scope(|scope| {
        let other = scope.spawn(move || take(cores[1], turns, second, &of_first, &to_first));
        let one = scope.spawn(move || {
            cpu::pin(cores[0])?;
            let (mut first, mut seconds) = (first, Vec::with_capacity(turns));
            for turn in 0..turns {
                let began = Instant::now();
                first(turn)?;
                seconds.push(began.elapsed().as_secs_f64());
                to_second.send(()).map_err(|_| gone())?;
                wait(&of_second).map_err(|_| gone())?;
            }
            anyhow::Ok(seconds)
        });
        let (one, other) = (one.join(), other.join());
        let joined = |it: thread::Result<Result<Vec<f64>>>| {
            it.unwrap_or_else(|_| Err(anyhow!("a thread of an experiment panicked")))
        };
        // Of an end that was left alone the other's error says why.
        let (one, other) = (joined(one), joined(other));
        let other = other.context("the second of two threads")?;
        Ok([one?, other])
    })
}

fn take(
    core: usize,
    turns: usize,
    mut work: impl FnMut(usize) -> Result<()>,
    mine: &Receiver<()>,
    done: &Sender<()>,
) -> Result<Vec<f64>> {
    cpu::pin(core)?;
    let mut seconds = Vec::with_capacity(turns);
    for turn in 0..turns {
        if wait(mine).is_err() {
            break;
        }
        let began = Instant::now();
        work(turn)?;
        seconds.push(began.elapsed().as_secs_f64());
        if done.send(()).is_err() {
            break;
        }
    }
    Ok(seconds)
}

/// Checks a channel before it lets another thread use the core.
const LOOKS: u32 = 1 << 10;

/// Waits without sleeping, because an idle core is slow at first.
fn wait(channel: &Receiver<()>) -> Result<(), RecvError> {
    loop {
        for _ in 0..LOOKS {
            match channel.try_recv() {
                Ok(()) => return Ok(()),
                Err(TryRecvError::Disconnected) => return Err(RecvError),
                Err(TryRecvError::Empty) => spin_loop(),
            }
        }
        thread::yield_now();
    }
}
