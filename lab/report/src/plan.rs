//! Lists the runs of a report, and estimates their time on two cores.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::captures;

/// How much a report measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Extent {
    /// All that the papers measured.
    Full,
    /// A few sizes, few repetitions.
    Quick,
    /// The runs of [`Extent::Quick`] with few bytes and without repetitions: shows that each works.
    Least,
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Extent::Full => "full",
            Extent::Quick => "quick",
            Extent::Least => "least",
        })
    }
}

/// A run of the report: this program with these arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its name, by which sections ask for it and `--only` chooses it.
    pub name: String,
    /// The words after `zerolane`.
    pub words: Vec<String>,
    /// How long it is expected to take, seconds: for the progress alone, and for when it is given up.
    pub expected_s: u32,
}

/// The words of a run in the plans.
struct Row {
    name: &'static str,
    quick: &'static str,
    full: &'static str,
    expected_s: [u32; 2],
}

const fn row(
    name: &'static str,
    expected_s: [u32; 2],
    quick: &'static str,
    full: &'static str,
) -> Row {
    Row {
        name,
        quick,
        full,
        expected_s,
    }
}

/// All runs but those of captures.
const ROWS: &[Row] = &[
    row(
        "bulk-64KiB",
        [4, 25],
        "bench bulk --buffer 64KiB --bytes 256MiB --reps 3 --only zerolane,tcp,zerolane_plain",
        "bench bulk --buffer 64KiB --bytes 1GiB --reps 5 --only zerolane,tcp,zerolane_plain,tcp_splice,tls",
    ),
    row(
        "bulk-1MiB",
        [6, 60],
        "bench bulk --buffer 1MiB --bytes 512MiB --reps 3 --only zerolane,tcp,zerolane_plain,tcp_splice,tls",
        "bench bulk --buffer 1MiB --bytes 2GiB --reps 5 --only zerolane,tcp,zerolane_plain,tcp_splice,tls,quinn",
    ),
    row(
        "bulk-64MiB",
        [6, 60],
        "bench bulk --buffer 64MiB --bytes 512MiB --reps 3 --only zerolane,tcp,zerolane_plain,tcp_splice",
        "bench bulk --buffer 64MiB --bytes 2GiB --reps 5 --only zerolane,tcp,zerolane_plain,tcp_splice,tls,quinn",
    ),
    row(
        "curve",
        [8, 25],
        "bench curve --quick --size 64,1KiB,16KiB,256KiB,4MiB --only tcp,udp,messages,puts",
        "bench curve --quick",
    ),
    row(
        "speculation",
        [10, 100],
        "bench speculation --bytes 96MiB --reps 2",
        "bench speculation --reps 5",
    ),
    row(
        "offloads-off",
        [4, 25],
        "bench bulk --buffer 1MiB --bytes 128MiB --reps 3 --offloads off --only zerolane_plain,tcp,zerolane",
        "bench bulk --buffer 1MiB --bytes 1GiB --reps 5 --offloads off --only zerolane_plain,tcp,zerolane",
    ),
    row(
        "offloads-none",
        [3, 25],
        "bench bulk --buffer 1MiB --bytes 128MiB --reps 2 --offloads none --only zerolane_plain,tcp,zerolane",
        "bench bulk --buffer 1MiB --bytes 1GiB --reps 5 --offloads none --only zerolane_plain,tcp,zerolane",
    ),
    row(
        "offloads-sender",
        [4, 25],
        "bench bulk --buffer 1MiB --bytes 128MiB --reps 3 --offloads sender-off --only zerolane_plain,tcp,zerolane",
        "bench bulk --buffer 1MiB --bytes 1GiB --reps 5 --offloads sender-off --only zerolane_plain,tcp,zerolane",
    ),
    row(
        "buffers-64KiB",
        [1, 12],
        "bench bulk --buffer 1MiB --bytes 128MiB --reps 3 --only tcp --tcp-sndbuf 64KiB --tcp-rcvbuf 64KiB",
        "bench bulk --buffer 1MiB --bytes 2GiB --reps 5 --only tcp --tcp-sndbuf 64KiB --tcp-rcvbuf 64KiB",
    ),
    row(
        "buffers-send-64KiB",
        [1, 12],
        "bench bulk --buffer 1MiB --bytes 128MiB --reps 3 --only tcp --tcp-sndbuf 64KiB --tcp-rcvbuf 128KiB",
        "bench bulk --buffer 1MiB --bytes 2GiB --reps 5 --only tcp --tcp-sndbuf 64KiB --tcp-rcvbuf 128KiB",
    ),
    row(
        "buffers-receive-64KiB",
        [1, 12],
        "bench bulk --buffer 1MiB --bytes 128MiB --reps 3 --only tcp --tcp-sndbuf 128KiB --tcp-rcvbuf 64KiB",
        "bench bulk --buffer 1MiB --bytes 2GiB --reps 5 --only tcp --tcp-sndbuf 128KiB --tcp-rcvbuf 64KiB",
    ),
    row(
        "buffers-128KiB",
        [1, 12],
        "bench bulk --buffer 1MiB --bytes 128MiB --reps 3 --only tcp --tcp-sndbuf 128KiB --tcp-rcvbuf 128KiB",
        "bench bulk --buffer 1MiB --bytes 2GiB --reps 5 --only tcp --tcp-sndbuf 128KiB --tcp-rcvbuf 128KiB",
    ),
    row(
        "stream-mtu",
        [7, 110],
        "bench stream --protocol tcp,extended --source buffer,sendfile --sink none --size 1MiB --mtu 1500,9000 --bytes 256MiB --reps 3",
        "bench stream --protocol tcp,extended --source buffer,sendfile --sink none,checksum --size 1MiB --mtu 1500,4352,9000,16384,57344 --bytes 512MiB --reps 5",
    ),
    row(
        "stream-checksum-offloaded",
        [2, 35],
        "bench stream --protocol tcp --sink none,copy --offloads off --mtu 1500,9000 --bytes 64MiB --reps 2",
        "bench stream --protocol tcp --sink none,copy --offloads off --mtu 1500,9000,57344 --bytes 512MiB --reps 4",
    ),
    row(
        "stream-checksum-software",
        [2, 35],
        "bench stream --protocol tcp --sink none,copy --offloads none --mtu 1500,9000 --bytes 64MiB --reps 2",
        "bench stream --protocol tcp --sink none,copy --offloads none --mtu 1500,9000,57344 --bytes 512MiB --reps 4",
    ),
    row(
        "stream-protocols",
        [7, 100],
        "bench stream --protocol tcp,classic,extended --source buffer --sink none,touch --size 512KiB --mtu 1500 --bytes 128MiB --reps 3",
        "bench stream --protocol tcp,classic,extended --source buffer,sendfile --sink none,touch --size 512KiB --mtu 1500,9000 --bytes 512MiB --reps 5",
    ),
    row(
        "stream-protocols-128KiB",
        [3, 40],
        "bench stream --protocol tcp,classic --source buffer --sink none,touch --size 128KiB --mtu 1500 --bytes 64MiB --reps 2",
        "bench stream --protocol tcp,classic,extended --source buffer --sink none,touch --size 128KiB --mtu 1500,9000 --bytes 512MiB --reps 3",
    ),
    row(
        "stream-transfer",
        [7, 100],
        "bench stream --protocol tcp,classic,extended --sink none --size 4KiB,32KiB,256KiB --mtu 1500 --bytes 32MiB --reps 3",
        "bench stream --protocol tcp,classic,extended --sink none --size 4KiB,8KiB,16KiB,32KiB,64KiB,128KiB,256KiB,512KiB --mtu 1500,9000 --bytes 64MiB --reps 4",
    ),
    row(
        "stream-stu",
        [5, 50],
        "bench stream --protocol classic,extended --sink none --size 512KiB --mtu 9000 --stu 512,1024,2048,4096 --bytes 64MiB --reps 3",
        "bench stream --protocol classic,extended --sink none --size 512KiB --mtu 9000 --stu 512,1024,2048,4096 --bytes 256MiB --reps 5",
    ),
    row(
        "ladder",
        [8, 90],
        "bench ladder --size 16KiB,1MiB --bytes 96MiB --reps 2",
        "bench ladder --size 4KiB,16KiB,64KiB,256KiB,1MiB --bytes 256MiB --reps 5",
    ),
    row(
        "latency",
        [15, 180],
        "bench latency --quick --size 64,16KiB --only udp,tcp,zerolane",
        "bench latency",
    ),
    row("put_lat", [1, 8], "bench put_lat --quick", "bench put_lat"),
    row("get_lat", [1, 8], "bench get_lat --quick", "bench get_lat"),
    row(
        "send_lat",
        [1, 8],
        "bench send_lat --quick",
        "bench send_lat",
    ),
    row(
        "put_lat-event",
        [1, 8],
        "bench put_lat --quick --event",
        "bench put_lat --event",
    ),
    row(
        "get_lat-event",
        [1, 8],
        "bench get_lat --quick --event",
        "bench get_lat --event",
    ),
    row(
        "send_lat-event",
        [1, 8],
        "bench send_lat --quick --event",
        "bench send_lat --event",
    ),
    row(
        "put_bw",
        [2, 18],
        "bench put_bw --quick",
        "bench put_bw --reps 3",
    ),
    row("get_bw", [2, 30], "bench get_bw --quick", "bench get_bw"),
    row(
        "send_bw",
        [2, 18],
        "bench send_bw --quick",
        "bench send_bw --reps 3",
    ),
    row(
        "explain-tcp",
        [3, 6],
        "explain --json -- zerolane bench stream --protocol tcp --sink none --size 1MiB --bytes 2GiB --reps 1 --no-soak",
        "explain --json -- zerolane bench stream --protocol tcp --sink none --size 1MiB --bytes 8GiB --reps 1 --no-soak",
    ),
    row(
        "explain-plain",
        [3, 6],
        "explain --json -- zerolane bench stream --protocol extended --security plain --sink none --size 1MiB --bytes 2GiB --reps 1 --no-soak",
        "explain --json -- zerolane bench stream --protocol extended --security plain --sink none --size 1MiB --bytes 8GiB --reps 1 --no-soak",
    ),
    row(
        "explain-encrypted",
        [3, 6],
        "explain --json -- zerolane bench stream --protocol extended --sink none --size 1MiB --bytes 2GiB --reps 1 --no-soak",
        "explain --json -- zerolane bench stream --protocol extended --sink none --size 1MiB --bytes 8GiB --reps 1 --no-soak",
    ),
    row(
        "model",
        [15, 80],
        "bench model --quick --bytes 256MiB --reps 3",
        "bench model",
    ),
    row(
        "fan",
        [8, 50],
        "bench fan --ends 2 --time 1 --reps 1",
        "bench fan --ends 4 --time 2 --reps 3",
    ),
    row(
        "loss",
        [13, 260],
        "bench loss --at 0%,0.01%,0.1% --time 1s --reps 1 --only classic,extended,cubic",
        "bench loss --at 0%,0.0001%,0.0005%,0.001%,0.01%,0.1%,1% --time 2s --reps 4",
    ),
    row(
        "loss-128KiB",
        [4, 50],
        "bench loss --at 0%,0.1% --time 1s --reps 1 --buffer 8MiB --only classic",
        "bench loss --at 0%,0.0001%,0.0005%,0.001%,0.01%,0.1% --time 2s --reps 2 --buffer 8MiB --only classic,extended",
    ),
    row(
        "rtt",
        [13, 200],
        "bench rtt --at 0,10ms,100ms --time 1s --reps 1 --only classic,extended,cubic",
        "bench rtt --at 0,250us,500us,1ms,2500us,5ms,10ms,20ms,50ms,100ms --time 2s --reps 2",
    ),
    row(
        "rtt-128KiB",
        [4, 50],
        "bench rtt --at 0,10ms --time 1s --reps 1 --buffer 8MiB --only classic",
        "bench rtt --at 0,250us,500us,1ms,2500us,5ms,10ms,20ms,50ms,100ms --time 2s --reps 1 --buffer 8MiB --only classic,extended",
    ),
    row(
        "incast",
        [9, 90],
        "bench incast --time 1s",
        "bench incast --time 5s",
    ),
    row(
        "chain",
        [6, 60],
        "bench chain --bytes 128MiB --reps 2",
        "bench chain --bytes 1GiB --reps 5",
    ),
];

/// The words of a quick run with few bytes and without repetitions.
fn least(quick: &str) -> String {
    let mut words = Vec::new();
    let mut option = "";
    // A run moves whole buffers.
    let buffer_mib = if quick.contains("--buffer 64MiB") {
        64
    } else {
        1
    };
    for word in quick.split(' ') {
        let mib = word.strip_suffix("MiB");
        let mib = mib.and_then(|it| it.parse::<u32>().ok());
        words.push(match (option, mib) {
            ("--bytes", Some(mib)) => format!("{}MiB", (mib / 16).max(buffer_mib)),
            ("--reps", _) => "1".into(),
            ("--time", _) if word == "1s" => "300ms".into(),
            _ => word.into(),
        });
        option = word;
    }
    words.join(" ")
}

/// The plan: all runs in order. `captures` is the directory of the captures for `trace`.
pub fn plan(extent: Extent, captures: &Path) -> Vec<Planned> {
    let rows = ROWS.iter().map(|row| {
        let words = match extent {
            Extent::Full => row.full.into(),
            Extent::Quick => row.quick.into(),
            Extent::Least => least(row.quick),
        };
        let json = ["--json".to_owned()];
        // `explain` has its own before the command that it runs.
        let json = json.into_iter().filter(|_| !words.starts_with("explain"));
        Planned {
            name: row.name.into(),
            words: words.split(' ').map(str::to_owned).chain(json).collect(),
            expected_s: row.expected_s[usize::from(extent == Extent::Full)],
        }
    });
    let traces = captures::ALL.iter().map(|capture| Planned {
        name: format!("trace-{}", capture.name),
        words: vec![
            "trace".into(),
            captures
                .join(capture.file_name())
                .to_string_lossy()
                .into_owned(),
            "--json".into(),
        ],
        expected_s: 1,
    });
    rows.chain(traces).collect()
}

/// The names of all runs, for the error message of `--only`.
pub fn names() -> impl Iterator<Item = String> {
    let rows = ROWS.iter().map(|row| row.name.to_owned());
    rows.chain(captures::ALL.iter().map(|it| format!("trace-{}", it.name)))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    /// Seconds that all runs together are expected to take.
    fn expected_s(extent: Extent) -> u32 {
        let planned = plan(extent, Path::new("captures"));
        planned.iter().map(|it| it.expected_s).sum()
    }

    /// What is asked, 40 and 4 minutes, and a tenth of it left for what is between the runs.
    #[test]
    fn plan__keeps_to_its_time() {
        for (extent, asked_s) in [(Extent::Quick, 240), (Extent::Full, 2400)] {
            let expected_s = expected_s(extent);
            assert!(
                expected_s <= asked_s - asked_s / 10,
                "{extent}: {expected_s} s of {asked_s}"
            );
        }
    }

    #[test]
    fn least__has_few_bytes_and_no_repetitions() {
        for (quick, expected) in [
            (
                "bench bulk --buffer 1MiB --bytes 128MiB --reps 3 --only tcp",
                "bench bulk --buffer 1MiB --bytes 8MiB --reps 1 --only tcp",
            ),
            (
                "bench bulk --buffer 64MiB --bytes 512MiB --reps 3",
                "bench bulk --buffer 64MiB --bytes 64MiB --reps 1",
            ),
            ("bench rtt --time 1s", "bench rtt --time 300ms"),
            ("explain -- x --bytes 2GiB", "explain -- x --bytes 2GiB"),
        ] {
            assert_eq!(least(quick), expected);
        }
    }
}
