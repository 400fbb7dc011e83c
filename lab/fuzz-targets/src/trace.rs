//! Fuzzes the replay of captures, in several files: no panic, no more flows than the limit, and every packet is counted
//! once.

use zerolane_trace::{Cause, Options, Trace};

/// Few, so that small inputs have flows folded.
const FLOWS: usize = 4;

/// See the first lines of this file.
pub fn run(input: &[u8]) {
    let options = Options {
        max_flows: FLOWS,
        ..Options::default()
    };
    let mut trace = Trace::new(&options);
    // A file is followed by another where such a byte is.
    for file in input.split(|&byte| byte == 0xfe) {
        let _ = trace.read("fuzzed", file);
    }
    let _ = trace.read("fuzzed", input);
    let report = trace.finish();
    assert!(report.flows.len() <= FLOWS && report.hosts.len() <= FLOWS);
    let seen = &report.seen;
    let uncounted = seen.not_ip + seen.cut + seen.malformed + seen.unknown_link;
    assert_eq!(seen.packets, uncounted + report.sum.packets);
    let shown: u64 = report.flows.iter().map(|it| it.counts.packets).sum();
    let folded = report.folded.map_or(0, |it| it.counts.packets);
    assert_eq!(shown + folded, report.sum.packets);
    let rules = &report.sum.rules;
    for tally in [
        &rules.pages,
        &rules.pages_per_stream,
        &rules.pairs,
        &rules.trains,
    ] {
        let misses: u64 = Cause::ALL.map(|cause| tally.misses(cause)).iter().sum();
        assert_eq!(tally.potential, tally.hits + misses);
        assert!(tally.hit_bytes <= tally.bytes);
    }
    assert!(
        rules.pages.hits <= rules.pages_per_stream.hits,
        "others only spoil"
    );
}
