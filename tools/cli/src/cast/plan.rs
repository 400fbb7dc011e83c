//! Implements `zerolane cast plan`: estimates a cast, and simulates it on request.

use std::fmt;

use anyhow::{Result, anyhow, ensure};
use bytesize::ByteSize;
use serde::Serialize;
use zerolane_cast::plan::{Bound, Cast, Estimate, Plan, Shape, plan};
use zerolane_cast::sim::{Group, Outcome, Racks, Setup, run as simulate};
use zerolane_castnet::chunk_bytes;

use crate::console;
use crate::exit::Exit;
use crate::rate;
use crate::units;

/// Most nodes of a plan.
const MAX_NODES: i64 = 100_000;

/// Most nodes of a simulation. More take too long.
const MAX_SIMULATED: u32 = 10_000;

/// Arguments of `zerolane cast plan`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
docs/reference/cast-design.md describes the model. Nothing is sent: rates are those given here. The chosen shape is the \
one that a cast without --tree takes: it depends on the number of nodes and the size only, not on rates and faults. \
--simulate runs the engine of casts over a model of the network, with the faults of --fail and --slow; the same seed gives the same run.")]
pub(crate) struct Args {
    /// Nodes besides the source
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=MAX_NODES))]
    nodes: u32,
    /// Bytes of the content, such as 100GB
    #[arg(long)]
    size: ByteSize,
    /// Rate of each node's port, such as 10gbit or 1GB/s
    #[arg(long, value_parser = rate::parse, default_value = "10gbit")]
    link: u64,
    /// Rate of each node's disk; without it, disks cost no time
    #[arg(long, value_parser = rate::parse)]
    disk: Option<u64>,
    /// Rate of each node's memory; without it, memory costs no time
    #[arg(long, value_parser = rate::parse)]
    memory: Option<u64>,
    /// Rate of each node's I/O bus; without it, it costs no time
    #[arg(long, value_parser = rate::parse)]
    bus: Option<u64>,
    /// Rate that each node's CPU carries, such as 1GB/s by `cast` between two hosts without a limiting link; without it,
    /// the CPU costs no time
    #[arg(long, value_parser = rate::parse)]
    cpu: Option<u64>,
    /// Nodes of a rack, and the rate of its uplink: 40:100gbit
    #[arg(long, value_name = "NODES:RATE", value_parser = parse_racks)]
    racks: Option<Racks>,
    /// Share of the nodes that die during the cast, such as 1%
    #[arg(long, value_parser = units::percent, default_value = "0%")]
    fail: f64,
    /// Share of the nodes that are ten times slower, such as 5%
    #[arg(long, value_parser = units::percent, default_value = "0%")]
    slow: f64,
    /// Also run the engine over a model of the network
    #[arg(long)]
    simulate: bool,
    /// Seed of the simulation's random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

fn parse_racks(text: &str) -> Result<Racks, String> {
    let (nodes, uplink) = text
        .split_once(':')
        .ok_or("not NODES:RATE, such as 40:100gbit")?;
    let nodes = nodes
        .parse()
        .ok()
        .filter(|it| *it > 0)
        .ok_or("a rack has one node at least")?;
    let uplink = rate::parse(uplink)?;
    Ok(Racks { nodes, uplink })
}

/// Passes over the memory bus: from the device, a copy by the kernel, to the disk, out to the next node.
const CROSSINGS: f64 = 5.0;

/// Prints the plan, and the simulation's result.
pub(crate) fn run(args: &Args) -> Result<()> {
    let usage = |words: &str| anyhow!(words.to_owned()).context(Exit::Usage);
    ensure!(args.size.as_u64() > 0, usage("there is nothing to cast"));
    ensure!(
        !args.simulate || args.nodes <= MAX_SIMULATED,
        usage("--simulate takes at most 10000 nodes")
    );
    ensure!(args.fail + args.slow < 1.0, usage("no node would be left"));
    let cast = Cast {
        nodes: args.nodes,
        bytes: args.size.as_u64(),
        chunk_bytes: chunk_bytes(args.size.as_u64()),
        link: args.link as f64,
        disk: args.disk.unwrap_or(0) as f64,
        memory: args.memory.unwrap_or(0) as f64,
        crossings: CROSSINGS,
        bus: args.bus.unwrap_or(0) as f64,
        cpu: args.cpu.unwrap_or(0) as f64,
        copies: 0.0,
        copy: 0.0,
        latency: 50e-6,
        uplink: args.racks.map_or(0.0, |it| it.uplink as f64),
        rack: args.racks.map_or(0, |it| it.nodes),
        dying: args.fail,
        slow: args.slow,
        detection: 1.2,
    };
    let planned = plan(&cast);
    let simulation = args.simulate.then(|| Simulation::of(args, &planned));
    let shown = Shown::new(&planned, simulation);
    match args.json {
        true => console::say(serde_json::to_string(&shown)?),
        false => console::say(shown),
    }
}

#[derive(Debug, Serialize)]
struct Shown {
    estimates: Vec<Way>,
    /// The topology that a cast chooses by default.
    chosen: String,
    why: String,
    /// The topology that is faster with these rates and faults, which a cast does not know.
    faster: Option<String>,
    #[serde(skip)]
    advice: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulation: Option<Simulation>,
}

/// One topology, and its estimated time.
#[derive(Debug, Serialize)]
struct Way {
    shape: String,
    seconds: f64,
    fill_seconds: f64,
    fault_seconds: f64,
    limited_by: &'static str,
}

/// The result of the simulation.
#[derive(Debug, Serialize)]
struct Simulation {
    seed: u64,
    /// Until the last node that is neither dead nor slow was done; `null` if such a node did not finish.
    seconds: Option<f64>,
    /// The content over a port's rate.
    ideal_seconds: f64,
    /// The most that one node held in memory.
    memory_bytes: u64,
}

impl Simulation {
    fn of(args: &Args, planned: &Plan) -> Simulation {
        let group = Group {
            nodes: args.nodes,
            bytes: args.size.as_u64(),
            port: args.link,
            arity: arity(planned.chosen.shape),
            racks: args.racks,
            dying: args.fail,
            slow: args.slow,
            slow_by: 10,
            seed: args.seed,
        };
        let mut setup = Setup::group(&group);
        setup.disk = args.disk.unwrap_or(0);
        setup.source_disk = setup.disk;
        let outcome: Outcome = simulate(&setup);
        let chunks = outcome.nodes.iter().map(|it| it.peak_window).max();
        Simulation {
            seed: args.seed,
            seconds: outcome.done(setup.sound()).map(|it| it.as_secs_f64()),
            ideal_seconds: setup.ideal().as_secs_f64(),
            memory_bytes: u64::from(chunks.unwrap_or(0))
                * u64::from(setup.chunk_bytes)
                * setup.scale,
        }
    }
}

impl Shown {
    fn new(plan: &Plan, simulation: Option<Simulation>) -> Shown {
        let estimates = plan.estimates.iter().map(|it| Way {
            shape: name(it.shape),
            seconds: it.seconds,
            fill_seconds: it.fill,
            fault_seconds: it.faults,
            limited_by: limit(it.bound),
        });
        Shown {
            estimates: estimates.collect(),
            chosen: name(plan.chosen.shape),
            why: why(&plan.chosen),
            faster: plan.faster.map(|it| name(it.shape)),
            advice: plan.faster.map(|it| arity(it.shape)),
            simulation,
        }
    }
}

fn name(shape: Shape) -> String {
    match shape {
        Shape::Star => "star".into(),
        Shape::Chain => "chain".into(),
        Shape::Tree(arity) => format!("tree of {arity}"),
    }
}

/// The value of `--tree` for `shape`.
fn arity(shape: Shape) -> u32 {
    match shape {
        Shape::Tree(arity) => arity,
        Shape::Star | Shape::Chain => 1,
    }
}

fn limit(bound: Bound) -> &'static str {
    match bound {
        Bound::Link => "link",
        Bound::SourceLink => "source's link",
        Bound::Disk => "disk",
        Bound::Memory => "memory",
        Bound::Bus => "I/O bus",
        Bound::Cpu => "CPU",
        Bound::Uplink => "uplink",
    }
}

fn why(chosen: &Estimate) -> String {
    match chosen.shape {
        Shape::Tree(_) => {
            "a chain of so many takes long to fill, and all behind a node wait when it dies".into()
        }
        Shape::Star | Shape::Chain => {
            "each node sends the content once, and trees would not be faster".into()
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for way in &self.estimates {
            writeln!(
                f,
                "{:<10} {:>10.1} s  limited by the {}; {:.1} s to fill, {:.1} s for faults",
                way.shape, way.seconds, way.limited_by, way.fill_seconds, way.fault_seconds
            )?;
        }
        write!(f, "chosen: {}: {}", self.chosen, self.why)?;
        if let (Some(faster), Some(arity)) = (&self.faster, self.advice) {
            write!(
                f,
                "\nfaster with these rates and faults, which a cast does not know: {faster}, by --tree {arity}"
            )?;
        }
        let Some(simulation) = &self.simulation else {
            return Ok(());
        };
        write!(f, "\nsimulated with seed {}: ", simulation.seed)?;
        match simulation.seconds {
            Some(seconds) => write!(
                f,
                "{seconds:.1} s, {:.2} of the ideal",
                seconds / simulation.ideal_seconds
            )?,
            None => write!(f, "not all were done")?,
        }
        write!(
            f,
            "; a node holds at most {}",
            ByteSize(simulation.memory_bytes)
        )
    }
}
