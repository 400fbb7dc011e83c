//! Runs the papers' experiments for `zerolane report`, and writes one page that compares the figures.
//!
//! It measures nothing itself: each figure is from a command that anyone can run.
//!
//! | module | what it holds |
//! |---|---|
//! | [`plan`] | the runs |
//! | [`runner`] | runs the plan, and stores each result at once |
//! | [`results`] | the output of the runs, read without trust |
//! | [`sections`] | charts and tables from results, experiment by experiment |
//! | [`found`] | the findings in five sentences |
//! | [`chart`] | SVG |
//! | [`page`] | HTML |
//! | [`figure`] | the parts of a report, as `report.json` stores them |
//! | `captures`, [`machine`] | captures for `trace`; the machine |

#![forbid(unsafe_code)]

mod captures;
pub mod chart;
pub mod figure;
pub mod found;
pub mod machine;
pub mod page;
pub mod plan;
pub mod results;
pub mod runner;
pub mod sections;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use serde::Serialize;
use zerolane_cli::console;
use zerolane_cli::interrupt::Interrupt;

use figure::{Gap, Section};
use machine::Machine;
use plan::Extent;
use results::{Outcome, Results, Run};
use runner::store::{Stamp, Store};

/// Arguments of `zerolane report`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A few short runs, in four minutes instead of forty
    #[arg(long)]
    quick: bool,
    /// The runs of --quick with as little as possible: shows that each works, and measures nothing
    #[arg(long, conflicts_with = "quick")]
    least: bool,
    /// Directory of the report and of the result of each run
    #[arg(long, value_name = "DIR", default_value = "zerolane-report")]
    out: PathBuf,
    /// Continue a stopped report; failed runs are repeated
    #[arg(long)]
    resume: bool,
    /// Do only these runs, separated by commas; the report lists the others as missing
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
}

impl Args {
    fn extent(&self) -> Extent {
        match (self.quick, self.least) {
            (true, _) => Extent::Quick,
            (_, true) => Extent::Least,
            (false, false) => Extent::Full,
        }
    }
}

/// A report, as `report.json` stores it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The version that ran.
    pub version: String,
    /// When it was made: in UTC.
    pub made: String,
    /// How much was measured.
    pub extent: Extent,
    /// Where.
    pub machine: Machine,
    /// Five sentences.
    pub found: Vec<String>,
    /// What could not be tested here, and why.
    pub gaps: Vec<Gap>,
    /// The experiments.
    pub sections: Vec<Section>,
    /// What was run.
    pub runs: Vec<Done>,
}

/// A run without its result.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    /// The name of the plan.
    pub name: String,
    /// The command.
    pub command: String,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Why it gave no result, if it did not.
    pub failed: Option<String>,
}

impl Done {
    /// The seconds with their significant digits.
    fn seconds_shown(&self) -> String {
        format!("{:.1}", self.seconds)
    }
}

/// What no machine like this one can show.
const BEYOND: [(&str, &str); 4] = [
    (
        "network cards",
        "both ends are on one machine, joined by a pair of virtual interfaces: no wire, no DMA, no interrupts of a card",
    ),
    (
        "RDMA",
        "there is no adapter for it here; the papers' figures stand in its place",
    ),
    (
        "the receiver alone",
        "the two ends share memory bandwidth and caches; each end's CPU is sampled apart",
    ),
    (
        "PCI bursts, firmware and chipsets (P0, P1, P4: figures 12 and 15)",
        "they are properties of the papers' own hardware",
    ),
];

impl Report {
    /// Builds the report from the stored runs.
    pub fn new(stamp: &Stamp, made: String, results: &Results) -> Report {
        let sections = sections::all(results);
        let mut gaps: Vec<_> = BEYOND
            .iter()
            .map(|&(what, why)| Gap {
                what: what.into(),
                why: why.into(),
            })
            .collect();
        for gap in sections.iter().flat_map(|it| &it.gaps) {
            if !gaps.contains(gap) {
                gaps.push(gap.clone());
            }
        }
        Report {
            version: stamp.version.clone(),
            made,
            extent: stamp.extent,
            machine: stamp.machine.clone(),
            found: found::sentences(results, &sections).into(),
            gaps,
            sections,
            runs: results.all().map(done).collect(),
        }
    }
}

fn done(run: &Run) -> Done {
    Done {
        name: run.name.clone(),
        command: run.command.clone(),
        seconds: run.seconds,
        failed: match &run.outcome {
            Outcome::Result(_) => None,
            Outcome::Error(why) => Some(why.clone()),
        },
    }
}

/// Runs `zerolane report`.
///
/// # Errors
/// The directory cannot be written, it holds runs of another machine or version, or the user pressed Ctrl-C. A failed
/// run is not an error: the report lists it.
pub fn run(args: &Args) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let interrupt = Interrupt::install()?;
    let stamp = Stamp {
        machine: Machine::here(),
        version: env!("CARGO_PKG_VERSION").into(),
        program: build(&program)?,
        extent: args.extent(),
    };
    let known: Vec<_> = plan::names().collect();
    if let Some(unknown) = args.only.iter().find(|it| !known.contains(it)) {
        bail!(
            "no run is called {unknown}; there are: {}",
            known.join(", ")
        );
    }
    let store = Store::open(&args.out, &stamp, args.resume)?;
    captures::write(&store.captures())?;
    let captures = store
        .captures()
        .canonicalize()
        .context("cannot find the captures")?;
    let mut planned = plan::plan(args.extent(), &captures);
    planned.retain(|it| args.only.is_empty() || args.only.contains(&it.name));
    let runs = runner::run(&planned, &store, &program, &interrupt)?;
    let results = Results::new(runs);
    let made = Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string();
    let report = Report::new(&stamp, made, &results);
    let page = page::render(&report)?;
    store.write("report.json", &serde_json::to_vec_pretty(&report)?)?;
    store.write("report.html", page.as_bytes())?;
    for sentence in &report.found {
        console::say(sentence)?;
    }
    let page = args.out.join("report.html");
    console::say(format_args!("\n{}", page.display()))
}

/// Identifies a build of a version: length and modification time of the program.
fn build(program: &Path) -> Result<String> {
    let meta = program
        .metadata()
        .with_context(|| format!("cannot read {}", program.display()))?;
    Ok(format!("{} {}", meta.len(), meta.mtime()))
}
