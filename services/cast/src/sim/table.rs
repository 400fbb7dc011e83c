//! Renders the table of completion times, `tests/cast-times.md`, and its plot, `tests/cast-times.svg`.
//!
//! Both show the model beside the simulation.

use std::fmt::{self, Display, Write};

use super::{Group, Racks, Setup, run};
use crate::limits::STORE_SENDS;
use crate::plan::{Cast, Shape, estimate, plan};

/// Nodes of the rows.
pub const NODES: [u32; 5] = [1, 8, 64, 1000, 10_000];

/// Nodes of the rows that a test repeats: the others take too long for each run of the tests.
pub const QUICK: u32 = 8;

/// Nodes of the longest chain that is simulated. A longer one fills for longer than it takes to pass the content.
const LONGEST_CHAIN: u32 = 64;

/// Most nodes in racks that are simulated.
const MOST_IN_RACKS: u32 = 1000;

/// Stripes of the trees of the rows.
const TREE: Shape = Shape::Tree(4);

/// Bytes of the content.
const BYTES: u64 = 100_000_000_000;

/// Bytes a second of a port: 10 Gb/s.
const PORT: u64 = 1_250_000_000;

/// Racks whose uplinks have the rate of two of their forty ports.
const RACKS: Racks = Racks {
    nodes: 40,
    uplink: 2 * PORT,
};

/// What is wrong with the nodes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// Nothing.
    None,
    /// 1 % die, each at a random moment; one at least.
    Dying,
    /// 5 % are slow by ten times from the start; one at least.
    Slow,
    /// Both.
    Both,
}

impl Faults {
    const ALL: [Faults; 4] = [Faults::None, Faults::Dying, Faults::Slow, Faults::Both];

    /// The shares that die, and that are slow.
    fn shares(self) -> (f64, f64) {
        match self {
            Faults::None => (0.0, 0.0),
            Faults::Dying => (0.01, 0.0),
            Faults::Slow => (0.0, 0.05),
            Faults::Both => (0.01, 0.05),
        }
    }
}

impl Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Faults::None => "none",
            Faults::Dying => "1 % die",
            Faults::Slow => "5 % slow",
            Faults::Both => "1 % die, 5 % slow",
        })
    }
}

/// What is one row of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// Nodes besides the source.
    pub nodes: u32,
    /// Whether they stand in racks of forty.
    pub racks: bool,
    /// What is wrong with them.
    pub faults: Faults,
    /// The way.
    pub shape: Shape,
    /// What random choices come from.
    pub seed: u64,
}

/// One row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Of what.
    pub case: Case,
    /// Bytes of a chunk in the simulation.
    pub chunk: u64,
    /// Seconds by the model.
    pub model: f64,
    /// Seconds until the last sound node had all, in the simulation; none where it is not simulated, not a number if one never had.
    pub simulated: Option<f64>,
    /// Seconds in which a port passes the content.
    pub ideal: f64,
    /// How often the busiest uplink carried the content in one direction.
    pub carried: Option<f64>,
    /// The most chunks in memory at one node, and how many its window and its reads allow.
    pub memory: Option<(u32, u32)>,
    /// It is the way that the model chooses.
    pub chosen: bool,
}

/// The rows for so many nodes: star and long chains by the model alone, chain, tree of four stripes, what else is chosen; and
/// in racks the way that is chosen there.
#[must_use]
pub fn cases(nodes: u32, seed: u64) -> Vec<Case> {
    let mut cases = Vec::new();
    for faults in Faults::ALL {
        if nodes == 1 && faults != Faults::None {
            continue;
        }
        let case = |racks, shape| Case {
            nodes,
            racks,
            faults,
            shape,
            seed,
        };
        if faults == Faults::None {
            cases.push(case(false, Shape::Star));
        }
        cases.push(case(false, Shape::Chain));
        if nodes > 1 {
            cases.push(case(false, TREE));
        }
        let chosen = choice(&case(false, Shape::Chain));
        if ![Shape::Chain, TREE].contains(&chosen) {
            cases.push(case(false, chosen));
        }
        let alike = matches!(faults, Faults::None | Faults::Both);
        if alike && (RACKS.nodes..=MOST_IN_RACKS).contains(&nodes) {
            cases.push(case(true, choice(&case(true, Shape::Chain))));
        }
    }
    cases
}

/// The way that the model chooses for what a case is of.
fn choice(case: &Case) -> Shape {
    plan(&setup(case).1).chosen.shape
}

/// Simulates one.
#[must_use]
pub fn row(case: Case) -> Row {
    let (setup, cast) = setup(&case);
    let ideal = setup.ideal().as_secs_f64();
    let mut row = Row {
        case,
        chunk: u64::from(setup.chunk_bytes) * setup.scale,
        model: estimate(&cast, case.shape).seconds,
        simulated: None,
        ideal,
        carried: None,
        memory: None,
        chosen: case.shape == choice(&case),
    };
    let long = case.shape == Shape::Chain && case.nodes > LONGEST_CHAIN;
    if case.shape == Shape::Star || long {
        return row;
    }
    let outcome = run(&setup);
    let done = outcome.done(setup.sound());
    row.simulated = Some(done.map_or(f64::NAN, |it| it.as_secs_f64()));
    let most = setup.options.window + setup.arity + STORE_SENDS as u32;
    let peak = outcome.nodes.iter().map(|it| it.peak_window).max();
    row.memory = peak.map(|it| (it, most));
    let carried = outcome.uplinks.iter().flat_map(|it| [it.sent, it.received]);
    row.carried = carried.max().map(|it| it as f64 / setup.bytes() as f64);
    row
}

fn setup(case: &Case) -> (Setup, Cast) {
    let racks = case.racks.then_some(RACKS);
    let (dying, slow) = case.faults.shares();
    let setup = Setup::group(&Group {
        nodes: case.nodes,
        bytes: BYTES,
        port: PORT,
        arity: match case.shape {
            Shape::Tree(arity) => arity,
            Shape::Star | Shape::Chain => 1,
        },
        racks,
        dying,
        slow,
        slow_by: 10,
        seed: case.seed,
    });
    let chunk = u64::from(setup.chunk_bytes) * setup.scale;
    let chunk = u32::try_from(chunk).unwrap_or(u32::MAX);
    let cast = Cast {
        latency: setup.latency.as_secs_f64(),
        uplink: racks.map_or(0.0, |it| it.uplink as f64),
        rack: racks.map_or(0, |it| it.nodes),
        dying,
        slow,
        detection: setup.options.suspicion.as_secs_f64() + 2.0 * setup.options.beat.as_secs_f64(),
        ..Cast::over_ports(case.nodes, setup.bytes(), chunk, PORT as f64)
    };
    (setup, cast)
}

/// The head of the table.
pub const HEAD: &str = "\
| nodes | racks | faults | way | chunk | model | simulated | of the ideal | memory | an uplink carries |
|---|---|---|---|---|---|---|---|---|---|";

impl Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let racks = if self.case.racks { "of 40" } else { "one" };
        let way = match self.case.shape {
            Shape::Star => "star".into(),
            Shape::Chain => "chain".into(),
            Shape::Tree(arity) => format!("tree of {arity}"),
        };
        write!(
            f,
            "| {} | {racks} | {} | {way}{} | {} MB | {:.1} s |",
            self.case.nodes,
            self.case.faults,
            if self.chosen { " (chosen)" } else { "" },
            self.chunk / 1_000_000,
            self.model
        )?;
        match self.simulated {
            Some(seconds) => write!(f, " {seconds:.1} s | {:.2} |", seconds / self.ideal)?,
            None => write!(f, " - | {:.2} |", self.model / self.ideal)?,
        }
        match self.memory {
            Some((peak, most)) => write!(f, " {peak} of {most} |")?,
            None => write!(f, " - |")?,
        }
        match self.carried {
            Some(times) => write!(f, " {times:.2} |"),
            None => write!(f, " - |"),
        }
    }
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 50.0;
const RIGHT: f64 = 150.0;
const BELOW: f64 = 40.0;
/// The axis of seconds has a logarithmic scale: a star takes as often as long as there are nodes.
const SECONDS: (f64, f64) = (60.0, 2000.0);

fn x(nodes: u32) -> f64 {
    let least = f64::from(NODES[0]).log10();
    let all = f64::from(NODES[NODES.len() - 1]).log10() - least;
    LEFT + (f64::from(nodes).log10() - least) / all * (WIDTH - LEFT - RIGHT)
}

fn y(seconds: f64) -> f64 {
    let share = (seconds / SECONDS.0).log10() / (SECONDS.1 / SECONDS.0).log10();
    (HEIGHT - BELOW) * (1.0 - share.clamp(0.0, 1.0))
}

/// Completion time over nodes of one rack, with and without faults: lines for what was simulated, dashes for a star, which the
/// model alone says.
#[must_use]
pub fn plot(rows: &[Row]) -> String {
    let mut svg = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">
<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>
<text x="{LEFT}" y="{}">nodes; 100 GB over ports of 10 Gb/s</text>
"##,
        HEIGHT - 5.0
    );
    let mut add = |line: fmt::Arguments<'_>| writeln!(svg, "{line}").expect("a string takes all");
    for seconds in [60, 80, 100, 150, 200, 500, 1000, 2000] {
        let (at, right) = (y(f64::from(seconds)), WIDTH - RIGHT);
        add(format_args!(
            r##"<path d="M{LEFT} {at:.1}H{right}" stroke="#ddd"/>"##
        ));
        let (x, y) = (LEFT - 5.0, at + 4.0);
        add(format_args!(
            r#"<text x="{x}" y="{y:.1}" text-anchor="end">{seconds} s</text>"#
        ));
    }
    for nodes in NODES {
        let (x, y) = (x(nodes), HEIGHT - BELOW + 16.0);
        add(format_args!(
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="middle">{nodes}</text>"#
        ));
    }
    let series = [
        ("star (model)", "#888888", Faults::None, Shape::Star),
        ("chain", "#1b9e77", Faults::None, Shape::Chain),
        ("chain, faults", "#66a61e", Faults::Both, Shape::Chain),
        ("tree of 4", "#7570b3", Faults::None, TREE),
        ("tree of 4, faults", "#d95f02", Faults::Both, TREE),
    ];
    for (number, (name, colour, faults, shape)) in series.into_iter().enumerate() {
        let of = |it: &&Row| !it.case.racks && it.case.faults == faults && it.case.shape == shape;
        let mut path = String::new();
        for row in rows.iter().filter(of) {
            let seconds = row.simulated.unwrap_or(row.model);
            if !seconds.is_finite() || seconds > SECONDS.1 {
                continue;
            }
            let verb = if path.is_empty() { 'M' } else { 'L' };
            let (x, y) = (x(row.case.nodes), y(seconds));
            write!(path, "{verb}{x:.1} {y:.1}").expect("a string takes all");
            add(format_args!(
                r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{colour}"/>"#
            ));
        }
        let dashes = if shape == Shape::Star { "4 4" } else { "none" };
        add(format_args!(
            r#"<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>"#
        ));
        let (x, y) = (WIDTH - RIGHT + 10.0, 20 + 20 * number);
        add(format_args!(
            r#"<text x="{x}" y="{y}" fill="{colour}">{name}</text>"#
        ));
    }
    svg + "</svg>\n"
}
