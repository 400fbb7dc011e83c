//! Counts why the kernel freed packets that it did not deliver (the tracepoint `skb:kfree_skb`).

use std::collections::BTreeMap;
use std::io;

use perf_event::{Builder, SampleFlag, Sampler};
use perf_event_data::Record;
use serde::Serialize;

use crate::sampler::online_cpus;
use crate::tracing::{Field, Format, Tracepoints};

/// Bytes of the ring of each CPU: about a thousand packets between two looks. What does not fit costs less to drop than to
/// record, and is counted.
const RING_BYTES: usize = 64 << 10;
/// Packets whose reason was not kept.
const UNRECORDED: &str = "too many at once to record why";

/// Packets that the kernel dropped for one reason in one function, on the whole machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DropReason {
    /// The kernel's word, such as `SOCKET_RCVBUFF`.
    pub reason: String,
    /// The function of the kernel that dropped them. `None`: its name is hidden.
    pub function: Option<String>,
    /// How many packets. A packet may hold several segments or datagrams.
    pub count: u64,
}

/// Records them until it is finished.
pub(crate) struct Reasons {
    rings: Vec<Sampler>,
    format: Format,
    reason: Field,
    location: Field,
    /// By reason and place.
    counts: BTreeMap<(u64, u64), u64>,
}

impl Reasons {
    /// Begins.
    pub(crate) fn start(tracepoints: &Tracepoints) -> io::Result<Reasons> {
        let format = tracepoints.find("skb/kfree_skb")?;
        let field = |name| {
            let field = format.field(name);
            field.ok_or_else(|| io::Error::other("before Linux 5.17 the kernel gives no reasons"))
        };
        let (reason, location) = (field("reason")?, field("location")?);
        let open = |cpu| open(cpu, &format);
        let mut rings: Vec<_> = online_cpus()?
            .into_iter()
            .map(open)
            .collect::<io::Result<_>>()?;
        for ring in &mut rings {
            ring.as_counter_mut().enable()?;
        }
        Ok(Reasons {
            rings,
            format,
            reason,
            location,
            counts: BTreeMap::new(),
        })
    }

    /// Takes what was recorded since the last call.
    pub(crate) fn poll(&mut self) {
        for ring in &mut self.rings {
            while let Some(record) = ring.next_record() {
                let Ok(Record::Sample(sample)) = record.parse_record() else {
                    continue;
                };
                let raw = sample.raw().unwrap_or_default();
                if let Some(at) = self.reason.of(raw).zip(self.location.of(raw)) {
                    *self.counts.entry(at).or_default() += 1;
                }
            }
        }
    }

    /// All, the most frequent first. `name`: of the function at an address.
    pub(crate) fn finish(mut self, mut name: impl FnMut(u64) -> Option<String>) -> Vec<DropReason> {
        let mut all = 0;
        for ring in &mut self.rings {
            // It fails on none that was enabled.
            let _ = ring.as_counter_mut().disable();
            all += ring.as_counter_mut().read().unwrap_or(0);
        }
        self.poll();
        let names = self.format.names();
        let mut reasons: Vec<DropReason> = Vec::new();
        for ((reason, location), count) in &self.counts {
            let named = names.get(reason).cloned();
            let (reason, function) = (
                named.unwrap_or_else(|| format!("reason {reason}")),
                name(*location),
            );
            // Several places of one function are one line.
            let same = |it: &&mut DropReason| it.reason == reason && it.function == function;
            match reasons.iter_mut().find(same) {
                Some(line) => line.count += count,
                None => reasons.push(DropReason {
                    reason,
                    function,
                    count: *count,
                }),
            }
        }
        let unrecorded = unrecorded(all, self.counts.values().sum());
        reasons.extend(unrecorded);
        reasons.sort_by(|a, b| b.count.cmp(&a.count).then(a.reason.cmp(&b.reason)));
        reasons
    }
}

/// The kernel counts also those for whose records there was no room.
fn unrecorded(all: u64, recorded: u64) -> Option<DropReason> {
    let count = all.checked_sub(recorded).filter(|it| *it > 0)?;
    Some(DropReason {
        reason: UNRECORDED.into(),
        function: None,
        count,
    })
}

fn open(cpu: usize, format: &Format) -> io::Result<Sampler> {
    let mut builder = Builder::new(format.event());
    builder
        .any_pid()
        .one_cpu(cpu)
        .include_kernel()
        .include_hv()
        .sample_period(1)
        .sample(SampleFlag::RAW)
        .wakeup_watermark(RING_BYTES);
    builder.build()?.sampled(RING_BYTES)
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn unrecorded__is_what_is_left() {
        assert_eq!(unrecorded(7, 7), None);
        assert_eq!(unrecorded(7, 8), None);
        assert_eq!(unrecorded(9, 7).unwrap().count, 2);
    }
}
