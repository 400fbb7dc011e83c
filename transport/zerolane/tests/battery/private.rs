//! Tests that private data travels with the request and with the answer, also if the program decides.

use crate::path::Path;
use zerolane::Options;
use zerolane::options::PrivateData;

fn with(base: &Options, data: &[u8], asks: bool) -> Options {
    base.clone().with(|it| {
        it.private_data = Some(PrivateData::new(data).expect("short enough"));
        it.listen.asks = asks;
    })
}

pub fn both_ways(path: Path, base: &Options) {
    let longest: Vec<u8> = (1..=64).collect();
    for asks in [false, true] {
        let (a, b) = (with(base, &longest, false), with(base, b"answer", asks));
        let Some(pair) = path.connect_with(&a, &b) else {
            return;
        };
        assert_eq!(pair.b.peer_data(), longest);
        assert_eq!(pair.a.peer_data(), b"answer");
    }
}
