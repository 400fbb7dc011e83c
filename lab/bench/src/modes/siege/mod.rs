//! Runs `bench siege`: a transfer under two attacks, in two namespaces of its own.
//!
//! ```text
//!  namespace a, core 0               namespace b, core 1
//!  client ---- encrypted transfer ---> server's connection
//!  attacker -- unauthenticated Hellos --> server's port, where it goes on accepting
//!           -- forged, replayed, cut and bit-flipped packets --> server's connection
//!           -- datagrams like parts of trains, no header ------> server's connection
//! ```
//!
//! Calm and attacks alternate on one connection, and each attack is compared with the calm before and after it. All three
//! parties are threads of this process, so its memory is the server's plus a constant.
//!
//! | module | what it does |
//! |---|---|
//! | `transfer` | the two ends |
//! | `attack` | the attacker |

mod attack;
mod transfer;

use std::fs;
use std::sync::mpsc::channel;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use netlab::netns::Topology;
use nix::unistd::{SysconfVar, sysconf};
use serde::Serialize;
use zerolane_cli::interrupt::Interrupt;
use zerolane_cli::lab;

use self::attack::{Attack, Attacker};
use self::transfer::{Seen, Shared};
use super::arguments::CoreArgs;
use crate::cpu;
use crate::harness::hosts::MTU;
use crate::harness::link::Offloads;
use crate::limits::CONNECT;
use crate::report::{self, Report, table};

/// Arguments of `zerolane bench siege`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Seconds of each calm and each attack phase
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Key exchanges per second that unauthenticated peers begin, each from another address
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    hellos: u32,
    /// Garbage packets per second for the running connection, with and without a header
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    garbage: u32,
    /// Offloads of the veth between the two namespaces: with `on`, trains pass as a whole, and garbage only between
    /// them
    #[arg(long, default_value = "on")]
    offloads: Offloads,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cores: CoreArgs,
    /// Core of the attacker [default: the client's, because the attack is on the server's]
    #[arg(long)]
    attack_core: Option<usize>,
}

/// The report of `bench siege`; `--json` prints it unchanged.
#[derive(Debug, Serialize)]
struct SiegeReport {
    bench: &'static str,
    security: &'static str,
    offloads: &'static str,
    seconds: u64,
    cores: Cores,
    phases: Vec<Phase>,
    /// Goodput under attack over that of the calm around it.
    flood_goodput_fraction: f64,
    garbage_goodput_fraction: f64,
    parts_goodput_fraction: f64,
    /// Most memory in use from the flood on, less the most before it.
    memory_growth_bytes: i64,
    /// Every byte of the last lap and the sampled words of all laps were right.
    verified: bool,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Cores {
    client: usize,
    server: usize,
    attacker: usize,
}

/// What was counted during one calm or attack.
#[derive(Clone, Debug, Serialize)]
struct Phase {
    what: &'static str,
    gbps: f64,
    /// What the attacker sent, packets a second.
    attack_pps: f64,
    /// Most memory of this process in use.
    resident_bytes: u64,
    #[serde(flatten)]
    seen: Seen,
}

/// The order of phases: each attack has calm on both sides.
const ORDER: [(&str, Option<Attack>); 7] = [
    ("calm", None),
    ("flood of Hellos", Some(Attack::Flood)),
    ("calm", None),
    ("garbage", Some(Attack::Garbage)),
    ("calm", None),
    ("garbage without headers", Some(Attack::Parts)),
    ("calm", None),
];

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    report::present(args.json, |interrupt| measure(args, interrupt))
}

fn measure(args: &Args, interrupt: &Interrupt) -> Result<SiegeReport> {
    let cores = Cores {
        client: args.cores.tx_core,
        server: args.cores.responder(),
        attacker: args.attack_core.unwrap_or(args.cores.tx_core),
    };
    lab::sweep();
    let hosts = Topology::pair("siege", MTU)?;
    args.offloads.apply(&hosts)?;
    attack::route_forged(&hosts)?;
    let shared = Shared::default();
    let phases = thread::scope(|scope| -> Result<Vec<Phase>> {
        // Whatever happens, the ends stop.
        let _stop = shared.stop_when_dropped();
        let (tell, address) = channel();
        let (shared, hosts) = (&shared, &hosts);
        let server = scope.spawn(move || {
            hosts.b().enter()?;
            cpu::pin(cores.server)?;
            transfer::serve(hosts.b().ipv4(), shared, &tell)
        });
        let Ok(address) = address.recv_timeout(CONNECT) else {
            shared.stop();
            joined(server)?;
            bail!("no server");
        };
        let client = scope.spawn(move || {
            hosts.a().enter()?;
            cpu::pin(cores.client)?;
            transfer::send(address, shared)
        });
        let phases = hosts.a().enter_thread(|| {
            cpu::pin(cores.attacker)?;
            let time = Duration::from_secs(args.seconds);
            let attacker = Attacker::new(hosts, address)?;
            shared.await_start()?;
            // Until windows and caches are what they will be.
            thread::sleep(time.min(Duration::from_secs(1)));
            let rate = |attack| match attack {
                Attack::Flood => args.hellos,
                Attack::Garbage | Attack::Parts => args.garbage,
            };
            let phase = |(what, attack): (_, Option<Attack>)| {
                interrupt.check()?;
                let attack = attack.map(|attack| (attack, rate(attack)));
                phase(what, attack, time, &attacker, shared)
            };
            ORDER.into_iter().map(phase).collect::<Result<Vec<Phase>>>()
        })?;
        shared.stop();
        let ends = [joined(client), joined(server)];
        let ended: Result<()> = ends.into_iter().collect();
        match (phases, ended) {
            // Which of them failed first is not known: an end may have been stopped for the attacks, or they for it.
            (Err(attack), Err(end)) => Err(end.context(format!("{attack:#}"))),
            (phases, ended) => ended.and(phases),
        }
    })?;
    Ok(SiegeReport::of(args.seconds, args.offloads, cores, phases))
}

/// The result of an end's thread.
fn joined(end: ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    end.join().unwrap_or_else(|_| bail!("an end panicked"))
}

/// One calm or attack.
fn phase(
    what: &'static str,
    attack: Option<(Attack, u32)>,
    time: Duration,
    attacker: &Attacker,
    shared: &Shared,
) -> Result<Phase> {
    let (started, before) = (Instant::now(), shared.seen());
    let mut resident_bytes = resident()?;
    let mut look = || -> Result<()> {
        resident_bytes = resident_bytes.max(resident()?);
        shared.check()
    };
    let sent = match attack {
        Some((attack, rate)) => attacker.attack(attack, rate, time, &mut look)?,
        None => {
            while started.elapsed() < time {
                thread::sleep(Duration::from_millis(50));
                look()?;
            }
            0
        }
    };
    let seconds = started.elapsed().as_secs_f64();
    let seen = shared.seen().since(&before);
    Ok(Phase {
        what,
        gbps: seen.bytes as f64 * 8e-9 / seconds,
        attack_pps: sent as f64 / seconds,
        resident_bytes,
        seen,
    })
}

/// Memory of this process in use, bytes.
fn resident() -> Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = statm.split(' ').nth(1).context("statm")?.parse()?;
    let page = sysconf(SysconfVar::PAGE_SIZE)?.context("pages")?;
    Ok(pages * page.unsigned_abs())
}

impl SiegeReport {
    fn of(seconds: u64, offloads: Offloads, cores: Cores, phases: Vec<Phase>) -> SiegeReport {
        let fraction = |at: usize| {
            let calm = f64::midpoint(phases[at - 1].gbps, phases[at + 1].gbps);
            phases[at].gbps / calm
        };
        let most = |phases: &[Phase]| phases.iter().map(|it| it.resident_bytes).max();
        let growth = most(&phases[1..])
            .zip(most(&phases[..1]))
            .map_or(0, |(after, before)| {
                after.cast_signed() - before.cast_signed()
            });
        SiegeReport {
            bench: "siege",
            security: "encrypted",
            offloads: offloads.name(),
            seconds,
            cores,
            flood_goodput_fraction: fraction(1),
            garbage_goodput_fraction: fraction(3),
            parts_goodput_fraction: fraction(5),
            memory_growth_bytes: growth,
            verified: true,
            phases,
        }
    }
}

impl Report for SiegeReport {
    fn text(&self) -> String {
        let header = [
            "",
            "Gb/s",
            "attack, packets/s",
            "memory, MiB",
            "cookies requested",
            "key agreements",
            "forged",
            "replayed",
            "other drops",
            "socket buffer",
            "moved, MiB",
        ];
        let mut rows = table(header, 1);
        for it in &self.phases {
            let seen = &it.seen;
            rows.add_row([
                it.what.to_owned(),
                format!("{:.2}", it.gbps),
                format!("{:.0}", it.attack_pps),
                format!("{:.1}", it.resident_bytes as f64 / f64::from(1 << 20)),
                seen.retried.to_string(),
                seen.answered.to_string(),
                seen.forged.to_string(),
                seen.replayed.to_string(),
                seen.dropped.to_string(),
                seen.socket_buffer.to_string(),
                format!("{:.1}", seen.moved_bytes as f64 / f64::from(1 << 20)),
            ]);
        }
        let Cores {
            client,
            server,
            attacker,
        } = self.cores;
        format!(
            "{rows}\nGoodput under the flood: {:.2} of that in the calm around it; under garbage: {:.2}; under garbage \
             without headers: {:.2}. Memory grew by {:.1} MiB.\n{} s each, one encrypted connection, offloads {}, payload verified; client on core {client}, server on \
             core {server}, attacker on core {attacker}, where it slows any end that shares it.",
            self.flood_goodput_fraction,
            self.garbage_goodput_fraction,
            self.parts_goodput_fraction,
            self.memory_growth_bytes as f64 / f64::from(1 << 20),
            self.seconds,
            self.offloads,
        )
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn SiegeReport__an_attack_is_compared_with_the_calm_around_it() {
        let phase = |what, gbps, resident_bytes| Phase {
            what,
            gbps,
            attack_pps: 0.0,
            resident_bytes,
            seen: Seen::default(),
        };
        let figures = [
            (10.0, 5),
            (6.0, 9),
            (5.0, 7),
            (4.0, 8),
            (11.0, 6),
            (6.0, 6),
            (13.0, 6),
        ];
        let phases = ORDER.iter().zip(figures);
        let phases = phases.map(|((what, _), (gbps, resident))| phase(what, gbps, resident));
        let cores = Cores {
            client: 0,
            server: 1,
            attacker: 0,
        };
        let report = SiegeReport::of(1, Offloads::On, cores, phases.collect());
        assert_eq!(report.flood_goodput_fraction, 0.8);
        assert_eq!(report.garbage_goodput_fraction, 0.5);
        assert_eq!(report.parts_goodput_fraction, 0.5);
        assert_eq!(report.memory_growth_bytes, 4);
    }
}
