//! The table of completion times of `docs/cast.md`, and its plot: what the model says, and what the engine does in virtual
//! time.
//!
//! `cargo run --release -p zerolane-cast --example times -- [MOST_NODES] [PLOT.svg]`

use std::fmt::Write;
use std::time::Instant;

use zerolane_cast::plan::{Cast, Estimate, Shape, estimate, plan};
use zerolane_cast::sim::{Group, Racks, Setup, run};

const NODES: [u32; 5] = [8, 64, 300, 1000, 10_000];
const BYTES: u64 = 100_000_000_000;
/// 10 Gb/s.
const PORT: u64 = 1_250_000_000;
/// Racks whose uplinks have the rate of two of their forty ports.
const RACKS: Racks = Racks {
    nodes: 40,
    uplink: 2 * PORT,
};

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let most = arguments.next().and_then(|it| it.parse().ok());
    let mut rows = Vec::new();
    println!(
        "| nodes | racks | faults | way | chunk | model | simulated | of the ideal | an uplink carries | CPU |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for nodes in NODES
        .into_iter()
        .filter(|it| most.is_none_or(|most| *it <= most))
    {
        for racks in [None, Some(RACKS)] {
            for (dying, slow) in [(0.0, 0.0), (0.01, 0.05)] {
                let row = row(nodes, racks, dying, slow);
                println!("{}", row.text);
                rows.push(row);
            }
        }
    }
    match arguments.next() {
        Some(path) => std::fs::write(path, plot(&rows)),
        None => Ok(()),
    }
}

struct Row {
    nodes: u32,
    /// Racks, and faults.
    series: (bool, bool),
    model: f64,
    simulated: f64,
    text: String,
}

fn row(nodes: u32, racks: Option<Racks>, dying: f64, slow: f64) -> Row {
    let mut group = Group {
        nodes,
        bytes: BYTES,
        port: PORT,
        arity: 1,
        racks,
        dying,
        slow,
        slow_by: 10,
        seed: 1,
    };
    let chosen = choose(&Setup::group(&group), &group);
    group.arity = match chosen.shape {
        Shape::Tree(arity) => arity,
        Shape::Star | Shape::Chain => 1,
    };
    let setup = Setup::group(&group);
    let ideal = setup.ideal().as_secs_f64();
    let began = Instant::now();
    let outcome = run(&setup);
    let cpu = began.elapsed().as_secs_f64();
    let simulated = outcome
        .done(setup.sound())
        .map_or(f64::NAN, |it| it.as_secs_f64());
    let carried = outcome
        .uplinks
        .iter()
        .flat_map(|it| [it.sent, it.received])
        .max();
    let text = format!(
        "| {nodes} | {} | {} | {} | {} MB | {:.1} s | {simulated:.1} s | {:.2} | {} | {cpu:.0} s |",
        racks.map_or("one".into(), |it| format!("of {}", it.nodes)),
        if dying > 0.0 {
            "1 % die, 5 % slow"
        } else {
            "none"
        },
        match group.arity {
            1 => "chain".into(),
            arity => format!("tree of {arity}"),
        },
        u64::from(setup.chunk_bytes) * setup.scale / 1_000_000,
        chosen.seconds,
        simulated / ideal,
        carried.map_or("-".into(), |it| format!(
            "{:.2}",
            it as f64 / setup.bytes() as f64
        )),
    );
    Row {
        nodes,
        series: (racks.is_some(), dying > 0.0),
        model: chosen.seconds,
        simulated,
        text,
    }
}

fn choose(setup: &Setup, group: &Group) -> Estimate {
    let cast = Cast {
        nodes: group.nodes,
        bytes: setup.bytes(),
        chunk_bytes: u32::try_from(u64::from(setup.chunk_bytes) * setup.scale).unwrap_or(u32::MAX),
        link: group.port as f64,
        disk: 0.0,
        memory: 0.0,
        crossings: 1.0,
        latency: setup.latency.as_secs_f64(),
        uplink: group.racks.map_or(0.0, |it| it.uplink as f64),
        rack: group.racks.map_or(0, |it| it.nodes),
        dying: group.dying,
        slow: group.slow,
        detection: setup.options.silence.as_secs_f64() + 2.0 * setup.options.beat.as_secs_f64(),
    };
    let chosen = plan(&cast).chosen;
    estimate(&cast, chosen.shape)
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 50.0;
const BELOW: f64 = 40.0;
const MOST_SECONDS: f64 = 120.0;

fn x(nodes: u32) -> f64 {
    let decades = f64::from(nodes).log10() - f64::from(NODES[0]).log10();
    let all = 10_000f64.log10() - f64::from(NODES[0]).log10();
    LEFT + decades / all * (WIDTH - LEFT - 150.0)
}

fn y(seconds: f64) -> f64 {
    (HEIGHT - BELOW) * (1.0 - seconds.min(MOST_SECONDS) / MOST_SECONDS)
}

/// Lines for what was simulated, dashes for the model.
fn plot(rows: &[Row]) -> String {
    let mut svg = String::new();
    let mut add = |line: String| svg.push_str(&(line + "\n"));
    add(format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">"#
    ));
    add(format!(
        r#"<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>"#
    ));
    for seconds in (0..=120).step_by(20) {
        let at = y(f64::from(seconds));
        add(format!(
            r##"<path d="M{LEFT} {at}H{}" stroke="#ddd"/>"##,
            WIDTH - 150.0
        ));
        add(format!(
            r#"<text x="{}" y="{}" text-anchor="end">{seconds} s</text>"#,
            LEFT - 5.0,
            at + 4.0
        ));
    }
    for nodes in NODES {
        let (at, below) = (x(nodes), HEIGHT - BELOW + 18.0);
        add(format!(
            r#"<text x="{at}" y="{below}" text-anchor="middle">{nodes}</text>"#
        ));
    }
    add(format!(
        r#"<text x="{LEFT}" y="{}">nodes; line: simulated, dashes: model</text>"#,
        HEIGHT - 5.0
    ));
    let series = [
        ((false, false), "#1b9e77", "one rack"),
        ((false, true), "#d95f02", "one rack, faults"),
        ((true, false), "#7570b3", "racks"),
        ((true, true), "#e7298a", "racks, faults"),
    ];
    for (number, (which, colour, name)) in series.into_iter().enumerate() {
        for model in [false, true] {
            let mut path = String::new();
            for row in rows.iter().filter(|it| it.series == which) {
                let seconds = if model { row.model } else { row.simulated };
                let verb = if path.is_empty() { 'M' } else { 'L' };
                write!(path, "{verb}{:.1} {:.1}", x(row.nodes), y(seconds))
                    .expect("a string takes all");
            }
            let dashes = if model {
                r#" stroke-dasharray="4 4""#
            } else {
                ""
            };
            add(format!(
                r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>"#
            ));
        }
        let at = 20.0 + 20.0 * number as f64;
        add(format!(
            r#"<text x="{}" y="{at}" fill="{colour}">{name}</text>"#,
            WIDTH - 140.0
        ));
    }
    add("</svg>".into());
    svg
}
