//! Runs `bench handshake`: sets up and closes connections one after the other, both ends on loopback.
//!
//! Encrypted connections arrive faster than the rate above which the gate asks unauthenticated peers for a cookie. The
//! server reports which connections were asked, so one run on one machine measures both kinds.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use zerolane::{Connection, Endpoint};

use zerolane_cli::interrupt::Interrupt;

use super::arguments::CoreArgs;
use crate::contender::zerolane::connection::options;
use crate::cpu;
use crate::job::settings::Protection;
use crate::limits::CONNECT;
use crate::measured::times::{Quantiles, Times};
use crate::report::{self, Report, cell, table};

/// Encrypted connections a second: more than twice what the gate lets in without a cookie, and half of what it works
/// out keys for.
const PER_SECOND: u32 = 500;

/// Arguments of `zerolane bench handshake`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Connections, plain and encrypted each
    #[arg(long, short = 'n', default_value_t = 3000, value_parser = clap::value_parser!(u32).range(500..=1_000_000))]
    count: u32,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cores: CoreArgs,
}

/// The report of `bench handshake`; `--json` prints it unchanged.
#[derive(Debug, Serialize)]
struct HandshakeReport {
    bench: &'static str,
    path: &'static str,
    /// Key exchange begun to both ends connected.
    plain: Figures,
    encrypted: Figures,
    /// None, if the machine is too slow to be asked for one.
    encrypted_with_cookie: Option<Figures>,
}

/// The connections of one kind.
#[derive(Debug, Serialize)]
struct Figures {
    count: u64,
    connect_us: Quantiles,
    /// From the call until the other end has agreed.
    close_us: Quantiles,
}

/// What the server says of each connection: whether it was asked for a cookie.
type Verdicts = Receiver<Result<bool>>;

/// Times of one kind.
struct Kind {
    connect: Times,
    close: Times,
    count: u64,
}

impl Kind {
    fn new() -> Result<Kind> {
        Ok(Kind {
            connect: Times::new()?,
            close: Times::new()?,
            count: 0,
        })
    }

    fn figures(&self) -> Result<Figures> {
        Ok(Figures {
            count: self.count,
            connect_us: self.connect.quantiles(1)?,
            close_us: self.close.quantiles(1)?,
        })
    }
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    report::present(args.json, |interrupt| measure(args, interrupt))
}

fn measure(args: &Args, interrupt: &Interrupt) -> Result<HandshakeReport> {
    let [plain, _] = kinds(args, Protection::Plain, interrupt)?;
    let [encrypted, cookie] = kinds(args, Protection::Encrypted, interrupt)?;
    Ok(HandshakeReport {
        bench: "handshake",
        path: "loopback",
        plain: plain.figures()?,
        encrypted: encrypted.figures()?,
        encrypted_with_cookie: (cookie.count > 0).then(|| cookie.figures()).transpose()?,
    })
}

/// Connects `count` times; those without and those with a cookie.
fn kinds(args: &Args, protection: Protection, interrupt: &Interrupt) -> Result<[Kind; 2]> {
    let server_core = args.cores.responder();
    let accepting = options(protection).with(|it| {
        // The thread that is measured accepts.
        it.listen.backlog = 0;
    });
    let endpoint = Endpoint::bind((Ipv4Addr::LOCALHOST, 0), accepting)?;
    let (to, count) = (endpoint.local_addr(), args.count);
    let (tell, verdicts) = channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let served = cpu::pin(server_core).and_then(|()| serve(endpoint, count, &tell));
            if let Err(error) = served {
                // The client has given up already.
                let _ = tell.send(Err(error));
            }
        });
        let client = scope.spawn(move || {
            cpu::pin(args.cores.tx_core)?;
            connect_all(to, protection, count, &verdicts, interrupt)
        });
        client.join().map_err(|_| anyhow!("the client panicked"))?
    })
}

/// Accepts `count` connections, one after the other, and waits for the end of each.
fn serve(mut endpoint: Endpoint, count: u32, tell: &Sender<Result<bool>>) -> Result<()> {
    let mut asked = 0;
    for _ in 0..count {
        let connection = endpoint.accept(Some(CONNECT))?;
        let mut connection = connection.context("no client connected")?;
        let now = endpoint.gate_counters().map_or(0, |it| it.retried);
        tell.send(Ok(now > asked)).context("the client is gone")?;
        asked = now;
        // Nothing comes but the end.
        let _ = connection.recv_into(&mut [0]);
    }
    Ok(())
}

fn connect_all(
    to: SocketAddr,
    protection: Protection,
    count: u32,
    verdicts: &Verdicts,
    interrupt: &Interrupt,
) -> Result<[Kind; 2]> {
    let mut kinds = [Kind::new()?, Kind::new()?];
    let options = options(protection);
    let start = Instant::now();
    for number in 0..count {
        interrupt.check()?;
        let due = start + Duration::from_secs(number.into()) / PER_SECOND;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let started = Instant::now();
        let connection = Connection::connect(to, &options)?;
        let connected = Instant::now();
        let asked = verdicts
            .recv_timeout(CONNECT)
            .context("the server is gone")??;
        let closing = Instant::now();
        connection.close()?;
        let kind = &mut kinds[usize::from(asked)];
        kind.connect.record(connected - started);
        kind.close.record(closing.elapsed());
        kind.count += 1;
    }
    Ok(kinds)
}

impl Report for HandshakeReport {
    fn text(&self) -> String {
        let header = [
            "connection",
            "count",
            "connect us: median",
            "p99",
            "close us: median",
            "p99",
        ];
        let mut rows = table(header, 1);
        for (name, figures) in [
            ("plain", Some(&self.plain)),
            ("encrypted", Some(&self.encrypted)),
            (
                "encrypted, with a cookie",
                self.encrypted_with_cookie.as_ref(),
            ),
        ] {
            let Some(figures) = figures else { continue };
            let us = |us: Option<f64>| cell(us, |us| format!("{us:.0}"));
            rows.add_row([
                name.to_owned(),
                figures.count.to_string(),
                us(figures.connect_us.median),
                us(figures.connect_us.p99),
                us(figures.close_us.median),
                us(figures.close_us.p99),
            ]);
        }
        format!(
            "{rows}\nTwo threads on {}, one core each, {PER_SECOND} connections per second, both ends asleep in \
             between.",
            self.path
        )
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    const FEW: Args = Args {
        count: 20,
        json: false,
        cores: CoreArgs {
            tx_core: 0,
            rx_core: None,
        },
    };

    #[test]
    fn kinds__every_connection_is_counted_once() {
        let interrupt = Interrupt::install().unwrap();
        for protection in [Protection::Plain, Protection::Encrypted] {
            let [without, with_cookie] = kinds(&FEW, protection, &interrupt).unwrap();
            // So few are asked for no cookie.
            assert_eq!((without.count, with_cookie.count), (20, 0));
            let figures = without.figures().unwrap();
            assert!(figures.connect_us.median > Some(0.0) && figures.close_us.median > Some(0.0));
        }
    }
}
