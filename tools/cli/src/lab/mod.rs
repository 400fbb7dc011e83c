//! Implements `zerolane lab`: runs programs in hosts on an emulated network.
//!
//! | module | what it does |
//! |---|---|
//! | `link` | from the command line to the link's configuration |
//! | `changes` | changes of the link while they run |
//! | `program` | the programs in the hosts |
//! | `guard` | ends them if the lab is killed |
//! | `report` | what became of the frames |

mod changes;
pub(crate) mod guard;
pub mod link;
mod program;
mod report;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use netlab::lab::{Lab, LabConfig, MODERATION};
use netlab::netns::{self, MAX_HOSTS, MAX_INTERFACES};

use crate::console;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::units;
use changes::Change;
use guard::Guard;
use link::LinkArgs;
use program::Programs;

/// Arguments of `zerolane lab`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
The hosts are network namespaces, removed at the end with all that runs in them. Programs find them \
in their environment; N is 1 to ZEROLANE_LAB_HOSTS, and ZEROLANE_LAB_HOST is the program's own:
  ZEROLANE_LAB_ADDRN    IPv4 address
  ZEROLANE_LAB_ADDR6_N  IPv6 address, where the kernel has IPv6
  ZEROLANE_LAB_NETNSN   namespace: nsenter --net=/run/netns/$ZEROLANE_LAB_NETNS2 COMMAND
  ZEROLANE_LAB_DEVICEN  interface
  ZEROLANE_LAB_ADDR_N_I    IPv4 address of interface I, from 1
  ZEROLANE_LAB_DEVICE_N_I  its name

Example:
  zerolane lab --rtt 20ms --loss 0.1% --rate 1gbit -- sh -c 'ping -c 3 $ZEROLANE_LAB_ADDR2'

The exit code is the command's, 128 and the signal if one killed it, 127 if there is no such \
command; before the command runs, the codes below.")]
pub struct Args {
    #[command(flatten)]
    link: LinkArgs,
    /// Rate of each host's own interface; packets that it sends faster wait there
    #[arg(long, value_name = "RATE", value_parser = units::rate)]
    interface_rate: Option<u64>,
    /// Hold frames back for up to this long so that they arrive together, as a card with interrupt moderation does
    /// (`rx-usecs` of ethtool): 1us to 10ms
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    moderation: Option<Duration>,
    /// MTU of the hosts' interfaces
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(68..=65521))]
    mtu: u32,
    /// How many hosts [default: 2, or as many as the script has lines]
    #[arg(long)]
    hosts: Option<usize>,
    /// Seed of the random choices: which packets are lost, duplicated and held back
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many interfaces each host has, each in a network of its own, with links like those of the others
    #[arg(long, default_value_t = 1, value_name = "N")]
    interfaces: usize,
    /// Change the links after a time; may be repeated. "5s --loss 1%" replaces all earlier options; "8s down" and "9s
    /// up" take the links down and up; "0s interface 2 --rtt 20ms" changes only those of the second interfaces
    #[arg(long, value_name = "TIME WHAT")]
    change: Vec<Change>,
    /// Run a line of FILE in each host with sh; end when host 1's line ends
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    script: Option<PathBuf>,
    /// Print no report at the end
    #[arg(short, long)]
    quiet: bool,
    /// The command to run in host 1
    #[arg(
        last = true,
        value_name = "COMMAND",
        required_unless_present = "script"
    )]
    command: Vec<OsString>,
}

/// Runs the command or the script, and returns its exit code.
pub(crate) fn run(args: Args) -> Result<Exit> {
    let programs = match &args.script {
        Some(path) => Programs::script(path)?,
        None => Programs::one(args.command.clone())?,
    };
    let config = config(&args, &programs)?;
    check_rights()?;
    let interrupt = Interrupt::install()?;
    let exit = interrupt.explain(run_in_lab(config, &programs, &args, &interrupt))?;
    // After our signal, the command's own exit code means nothing.
    interrupt.check()?;
    Ok(exit)
}

fn config(args: &Args, programs: &Programs) -> Result<LabConfig> {
    let hosts = args.hosts.unwrap_or_else(|| programs.hosts().max(2));
    let usage = |wrong: String| anyhow::anyhow!(wrong).context(Exit::Usage);
    if !(2..=MAX_HOSTS).contains(&hosts) {
        return Err(usage(format!(
            "--hosts {hosts}: a lab has 2 to {MAX_HOSTS}"
        )));
    }
    if !(1..=MAX_INTERFACES).contains(&args.interfaces) || hosts * args.interfaces > MAX_HOSTS {
        return Err(usage(format!(
            "--interfaces {} of {hosts} hosts: a host has 1 to {MAX_INTERFACES}, and all hosts together have at most \
             {MAX_HOSTS}",
            args.interfaces
        )));
    }
    if let Some(wrong) = args.moderation.filter(|it| !MODERATION.contains(it)) {
        return Err(usage(format!("--moderation {wrong:?}: it is 1us to 10ms")));
    }
    let highest = args.change.iter().filter_map(Change::interface).max();
    if let Some(number) = highest.filter(|&it| it > args.interfaces) {
        return Err(usage(format!(
            "--change is of interface {number}, and --interfaces says {}",
            args.interfaces
        )));
    }
    if programs.hosts() > hosts {
        let lines = console::counted(programs.hosts(), "line");
        return Err(usage(format!("the script has {lines} for {hosts} hosts")));
    }
    Ok(LabConfig {
        prefix: "lab".into(),
        hosts,
        interfaces: args.interfaces,
        mtu: args.mtu,
        link: args.link.config()?,
        interface_bits_per_s: args.interface_rate,
        moderation: args.moderation,
        core: None,
        seed: args.seed,
    })
}

fn check_rights() -> Result<()> {
    ensure!(
        netns::is_permitted(),
        "the lab makes network namespaces, and this process may not: run it as root"
    );
    Ok(())
}

/// Removes the namespaces that killed labs, benchmarks and tests left behind, and reports it.
pub fn sweep() {
    // A process that may not remove namespaces may not make any either; the caller reports that.
    for name in netns::sweep_stale().unwrap_or_default() {
        console::note(format_args!(
            "removed {name}, left behind by a killed process"
        ));
    }
}

fn run_in_lab(
    config: LabConfig,
    programs: &Programs,
    args: &Args,
    interrupt: &Interrupt,
) -> Result<Exit> {
    sweep();
    let _guard = Guard::start()?;
    let lab = Lab::start(config).context("cannot set up the lab")?;
    let exit = std::thread::scope(|scope| {
        let (running, ended) = std::sync::mpsc::channel();
        scope.spawn(|| changes::make(args.change.clone(), &lab, &{ ended }));
        let exit = programs.run(&lab, interrupt);
        drop(running);
        exit
    });
    for host in lab.hosts() {
        host.kill_all()?;
    }
    let stats = lab.stop()?;
    if !args.quiet {
        console::note(report::of(&stats, args.interfaces));
    }
    exit
}
