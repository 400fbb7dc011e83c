//! Takes samples at the kernel's periodic interrupt.

use std::fs;
use std::io;
use std::time::Duration;

use nix::time::{ClockId, clock_getres};
use perf_event::events::Tracepoint;
use perf_event_data::Sample;

use crate::stack::Frame;
use crate::tracing::{Field, Format, Tracepoints};

/// The functions that the tick's timer calls, by the kernel's version.
const HANDLERS: [&str; 2] = ["tick_nohz_handler", "tick_sched_timer"];
/// The first function of an interrupt, which appears as a call from the interrupted one: on x86 and on Arm.
const ENTRIES: [&str; 3] = [
    "asm_sysvec_apic_timer_interrupt",
    "el1h_64_irq",
    "el0t_64_irq",
];
/// CPUs that have no tick while they are busy.
const TICKLESS: &str = "/sys/devices/system/cpu/nohz_full";

/// The tick's tracepoint, which is that of all timers of high resolution.
pub(crate) struct Tick {
    format: Format,
    function: Field,
    /// The addresses of the functions that mean the tick.
    handlers: Vec<u64>,
    frequency_hz: u64,
}

impl Tick {
    /// An error: the samples have to be taken by a timer of their own.
    pub(crate) fn find(tracepoints: &Tracepoints) -> io::Result<Tick> {
        let format = tracepoints.find("timer/hrtimer_expire_entry")?;
        let no = |words: &str| io::Error::new(io::ErrorKind::Unsupported, words);
        let function = format
            .field("function")
            .ok_or_else(|| no("its record has another format"))?;
        let symbols = fs::read_to_string("/proc/kallsyms")?;
        let handlers = addresses(&symbols, &HANDLERS);
        if handlers.is_empty() || addresses(&symbols, &ENTRIES).is_empty() {
            return Err(no("the names of kernel functions are hidden"));
        }
        let tickless = fs::read_to_string(TICKLESS).unwrap_or_default();
        if tickless.contains(|it: char| it.is_ascii_digit()) {
            return Err(no("some CPUs have no tick (nohz_full)"));
        }
        // That clock is as fine as the tick.
        let period = Duration::from(clock_getres(ClockId::CLOCK_MONOTONIC_COARSE)?);
        let frequency_hz = 1e9 / period.as_nanos().max(1) as f64;
        Ok(Tick {
            format,
            function,
            handlers,
            frequency_hz: frequency_hz.round() as u64,
        })
    }

    pub(crate) fn event(&self) -> Tracepoint {
        self.format.event()
    }

    pub(crate) fn frequency_hz(&self) -> u64 {
        self.frequency_hz
    }

    /// Whether it is the tick that expired.
    pub(crate) fn is_of(&self, sample: &Sample<'_>) -> bool {
        let function = sample.raw().and_then(|it| self.function.of(it));
        function.is_some_and(|it| self.handlers.contains(&it))
    }
}

/// Those that are not hidden.
fn addresses(symbols: &str, names: &[&str]) -> Vec<u64> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let name = words.nth(1)?;
        (address != 0 && names.contains(&name)).then_some(address)
    };
    symbols.lines().filter_map(address).collect()
}

/// Whether that is where an interrupt begins: what is leafward of it is the interrupt's, not what was running.
pub(crate) fn is_entry(frame: &Frame) -> bool {
    matches!(frame, Frame::Kernel(Some(symbol)) if ENTRIES.contains(&&**symbol))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn addresses__of_names_that_are_shown() {
        let symbols = "0000000000000000 T tick_sched_timer\nffffffff814352e0 t tick_nohz_handler\n\
                       ffffffff81000000 T tick_nohz_handler_of_another\nnonsense\n";
        assert_eq!(addresses(symbols, &HANDLERS), [0xffff_ffff_8143_52e0]);
    }

    #[test]
    fn find__has_the_frequency_that_the_kernel_was_built_with() {
        let tick = Tracepoints::open().and_then(|it| Tick::find(&it));
        match tick {
            Ok(tick) => {
                let hz = tick.frequency_hz();
                assert!([100, 250, 300, 1000].contains(&hz), "{hz}");
            }
            Err(why) => eprintln!("skipped: {why}"),
        }
    }
}
