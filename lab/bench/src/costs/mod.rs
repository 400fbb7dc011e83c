//! Measures unit costs on this machine, each alone. It does not run what the model predicts from them.
//!
//! | module | what it measures |
//! |---|---|
//! | `memory` | a byte copied, read, sealed, by the amount of memory |
//! | `handed` | the same for memory that passes between cores |
//! | `calls` | a system call, a wake-up |
//! | `tcp`, `udp` | a byte of a stream, a train, at either end |
//! | `library` | a Transfer alone, both ends in one thread |
//! | `caches` | their sizes |
//! | `lockstep` | threads that take turns |
//! | `samples`, `rounds` | repetitions |
//! | `place` | where the experiments run |

mod caches;
mod calls;
mod handed;
mod library;
mod lockstep;
mod memory;
pub(crate) mod place;
pub(crate) mod rounds;
pub(crate) mod samples;
mod tcp;
mod udp;

use std::thread;

use anyhow::{Context, Result, bail};
use zerolane_cli::interrupt::Interrupt;
use zerolane_model::{TRAIN, UnitCosts};

use self::place::Place;
use self::samples::Effort;
use crate::cpu;
use crate::job::settings::Protection;

/// Sizes of memory, bytes: a train, which stays in a core's own cache, buffers that may stay in the shared one, and one that
/// stays in none.
const SIZES: [usize; 5] = [TRAIN, 1 << 20, 2 << 20, 8 << 20, 64 << 20];
/// Of those, the shortest buffer that streams are measured with.
const LEAST_STREAM: usize = 1 << 20;

/// All of them, over a path that carries so many bytes of a datagram.
pub(crate) fn measure(
    effort: Effort,
    place: &Place<'_>,
    datagram: usize,
    interrupt: &Interrupt,
) -> Result<UnitCosts> {
    let on_core = |bytes| on_core(place.cores[1], || memory::measure(effort, bytes));
    let streams = SIZES.into_iter().filter(|&bytes| bytes >= LEAST_STREAM);
    let last = SIZES[SIZES.len() - 1];
    let memory = each(interrupt, SIZES, on_core)?;
    let cached = *memory.first().context("no sizes of memory")?;
    let parts = library::parts(effort, place, datagram, cached)?;
    let library = |protection| library::measure(effort, place, &parts, protection);
    Ok(UnitCosts {
        caches: caches::of(place.cores[1]),
        system_call: calls::system_call(effort)?,
        wake: calls::wake(effort, place.cores)?,
        contention: memory::contention(effort, place.cores, last)?,
        memory,
        handed: handed::measure(effort, place.cores)?,
        tcp: each(interrupt, streams, |bytes| {
            tcp::measure(effort, place, bytes)
        })?,
        trains: each(interrupt, SIZES, |bytes| {
            udp::measure(effort, place, bytes, datagram)
        })?,
        plain: library(Protection::Plain)?,
        encrypted: library(Protection::Encrypted)?,
    })
}

fn each<T>(
    interrupt: &Interrupt,
    sizes: impl IntoIterator<Item = usize>,
    mut measure: impl FnMut(usize) -> Result<T>,
) -> Result<Vec<T>> {
    let measured = sizes.into_iter().map(|bytes| {
        interrupt.check()?;
        measure(bytes)
    });
    measured.collect()
}

/// Has a thread of this core do it: this one is bound to none.
fn on_core<T: Send>(core: usize, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let pinned = || {
        cpu::pin(core)?;
        work()
    };
    let done = thread::scope(|scope| scope.spawn(pinned).join());
    done.unwrap_or_else(|_| bail!("a thread of an experiment panicked"))
}
