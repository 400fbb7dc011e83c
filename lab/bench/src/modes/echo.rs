//! Runs `bench echo`: requests of many connections to a single-threaded server, one at a time per connection.
//!
//! Both ends are on loopback, with a thread and a core each. It compares Zerolane's worker at both ends with epoll over TCP.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde::Serialize;
use zerolane::Options;
use zerolane::request::{MAX_CONTROL, Message, ReceiveMessage, WorkKind};
use zerolane::worker::{ConnectionId, Event, Worker};
use zerolane_cli::interrupt::Interrupt;

use super::arguments::CoreArgs;
use crate::contender::zerolane::connection::options;
use crate::cpu;
use crate::harness::runs::order;
use crate::job::name::Name;
use crate::job::settings::Protection;
use crate::limits::CONNECT;
use crate::report::{self, Report, Spread, cell, median, table};

/// Connections that are being made at a time.
const AT_ONCE: usize = 64;
/// Open files beside connections.
const OTHER_FILES: usize = 64;
/// Longest sleep of an end: it looks then whether it is over.
const BEAT: Duration = Duration::from_millis(10);
/// Of an idle connection, which keeps no more than a few messages.
const RECEIVE_BUFFER: usize = 256 << 10;

/// Arguments of `zerolane bench echo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Connections
    #[arg(long, short = 'c', default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Bytes of a request and of its answer
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=MAX_CONTROL as i64))]
    size: u32,
    /// Seconds of a run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Runs of each contender
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    reps: u32,
    /// Protection of Zerolane's connections
    #[arg(long, default_value = "encrypted", value_name = "MODE")]
    security: Protection,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    cores: CoreArgs,
}

/// The report of `bench echo`; `--json` prints it unchanged.
#[derive(Debug, Serialize)]
struct EchoReport {
    bench: &'static str,
    path: &'static str,
    connections: u32,
    size: u32,
    seconds: u64,
    security: Protection,
    /// Requests a second.
    tcp: Spread,
    zerolane: Spread,
    /// Median of the pairs' ratios.
    ratio: f64,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    report::present(args.json, |interrupt| measure(args, interrupt))
}

fn measure(args: &Args, interrupt: &Interrupt) -> Result<EchoReport> {
    allow_files(2 * args.connections as usize + OTHER_FILES)?;
    let (mut tcp, mut zerolane) = (vec![], vec![]);
    for rep in 0..args.reps {
        for contender in order(&[Name::Tcp, Name::Zerolane], rep) {
            interrupt.check()?;
            match contender {
                Name::Tcp => tcp.push(run_tcp(args)?),
                _ => zerolane.push(run_zerolane(args)?),
            }
        }
    }
    let ratios = zerolane
        .iter()
        .zip(&tcp)
        .map(|(ours, theirs)| ours / theirs);
    let ratio = median(ratios).context("no runs")?;
    Ok(EchoReport {
        bench: "echo",
        path: "loopback",
        connections: args.connections,
        size: args.size,
        seconds: args.seconds,
        security: args.security,
        tcp: Spread::of(tcp).context("no runs")?,
        zerolane: Spread::of(zerolane).context("no runs")?,
        ratio,
    })
}

/// Raises the soft limit of open files as far as needed.
fn allow_files(count: usize) -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let count = count as u64;
    ensure!(
        count <= hard,
        "{count} open files are needed, and no more than {hard} allowed (ulimit -H -n): use fewer --connections"
    );
    if soft < count {
        setrlimit(Resource::RLIMIT_NOFILE, count, hard)?;
    }
    Ok(())
}

/// Runs `serve` and `ask` in a thread each, on their cores, until the latter is over. What that returns.
fn on_two_cores(
    args: &Args,
    serve: impl FnOnce(&AtomicBool) -> Result<()> + Send,
    ask: impl FnOnce() -> Result<f64> + Send,
) -> Result<f64> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let server = scope.spawn(|| cpu::pin(args.cores.responder()).and_then(|()| serve(&over)));
        let client = scope.spawn(|| cpu::pin(args.cores.tx_core).and_then(|()| ask()));
        let asked = client.join().map_err(|_| anyhow!("the clients panicked"));
        over.store(true, Ordering::Relaxed);
        let served = server.join().map_err(|_| anyhow!("the server panicked"))?;
        let asked = asked?;
        // What the server found explains why its clients failed.
        served.and(asked)
    })
}

/// What request `number` of a connection holds.
fn fill(request: &mut [u8], connection: u64, number: u64) {
    let word = (connection << 32 | number & 0xffff_ffff).to_le_bytes();
    for (at, byte) in request.iter_mut().enumerate() {
        *byte = word[at % word.len()] ^ at as u8;
    }
}

/// Answers counted from the time when all connections stand.
struct Clock {
    started: Instant,
    length: Duration,
    answers: u64,
}

impl Clock {
    fn start(seconds: u64) -> Clock {
        Clock {
            started: Instant::now(),
            length: Duration::from_secs(seconds),
            answers: 0,
        }
    }

    fn is_over(&self) -> bool {
        self.started.elapsed() >= self.length
    }

    fn rate(&self) -> f64 {
        self.answers as f64 / self.started.elapsed().as_secs_f64()
    }
}

fn worker_options(args: &Args) -> Options {
    let connections = args.connections as usize;
    options(args.security).with(|it| {
        it.flow.receive_buffer = RECEIVE_BUFFER;
        it.listen.max_connections = connections;
        it.listen.max_connections_of_origin = connections;
    })
}

fn run_zerolane(args: &Args) -> Result<f64> {
    let mut server = Worker::new()?;
    let on = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let endpoint = server.listen(on, worker_options(args))?;
    let endpoint = server.endpoint(endpoint).context("it listens")?;
    let to = endpoint.local_addr();
    on_two_cores(
        args,
        move |over| serve_zerolane(server, over),
        || ask_zerolane(args, to),
    )
}

fn serve_zerolane(mut worker: Worker, over: &AtomicBool) -> Result<()> {
    while !over.load(Ordering::Relaxed) {
        worker.wait(Some(BEAT))?;
        while let Some(event) = worker.next_event() {
            match event {
                Event::Accepted { connection, .. } => {
                    let connection = worker.connection(connection).context("just accepted")?;
                    connection.post(ReceiveMessage::new())?;
                }
                Event::Completed {
                    connection,
                    completion,
                } => {
                    let (Some(connection), Ok(_), Some(control)) = (
                        worker.connection(connection),
                        completion.result,
                        completion.control(),
                    ) else {
                        continue;
                    };
                    connection.post(Message::new(control).signalled(false))?;
                    connection.post(ReceiveMessage::new())?;
                }
                Event::EndpointFailed { error, .. } => return Err(error.into()),
                _ => {}
            }
        }
    }
    Ok(())
}

fn ask_zerolane(args: &Args, to: SocketAddr) -> Result<f64> {
    let mut worker = Worker::new()?;
    let options = worker_options(args);
    let (mut started, mut numbers) = (0, std::collections::HashMap::<ConnectionId, u64>::new());
    let deadline = Instant::now() + CONNECT * 4;
    while numbers.len() < args.connections as usize {
        ensure!(
            Instant::now() < deadline,
            "not all connections were established"
        );
        while started < args.connections as usize && started < numbers.len() + AT_ONCE {
            worker.connect(to, &options)?;
            started += 1;
        }
        worker.wait(Some(BEAT))?;
        while let Some(event) = worker.next_event() {
            match event {
                Event::Connected { connection } => {
                    numbers.insert(connection, 0);
                }
                Event::Closed { reason, .. } => return Err(reason.into()),
                _ => {}
            }
        }
    }
    let mut request = vec![0; args.size as usize];
    let ids: Vec<ConnectionId> = numbers.keys().copied().collect();
    for id in ids {
        ask(&mut worker, id, 0, &mut request)?;
    }
    let mut clock = Clock::start(args.seconds);
    while !clock.is_over() {
        worker.wait(Some(BEAT))?;
        while let Some(event) = worker.next_event() {
            match event {
                Event::Completed {
                    connection: id,
                    completion,
                } if completion.kind() == WorkKind::MessageReceived => {
                    completion.result?;
                    let number = numbers.get_mut(&id).context("an unknown connection")?;
                    fill(&mut request, id.to_u64(), *number);
                    ensure!(completion.control() == Some(&request[..]), "a wrong answer");
                    *number += 1;
                    clock.answers += 1;
                    ask(&mut worker, id, *number, &mut request)?;
                }
                Event::Closed { reason, .. } => return Err(reason.into()),
                _ => {}
            }
        }
    }
    Ok(clock.rate())
}

fn ask(worker: &mut Worker, id: ConnectionId, number: u64, request: &mut [u8]) -> Result<()> {
    fill(request, id.to_u64(), number);
    let connection = worker.connection(id).context("the connection is closed")?;
    connection.post(ReceiveMessage::new())?;
    connection.post(Message::new(&*request).signalled(false))?;
    Ok(())
}

fn run_tcp(args: &Args) -> Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let to = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    on_two_cores(
        args,
        |over| serve_tcp(&listener, args.size as usize, over),
        || ask_tcp(args, to),
    )
}

/// Sockets of one epoll instance, by number.
struct Watched {
    epoll: Epoll,
    streams: Vec<Option<TcpStream>>,
}

impl Watched {
    fn new() -> Result<Watched> {
        Ok(Watched {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            streams: vec![],
        })
    }

    fn add(&mut self, stream: TcpStream) -> Result<()> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let number = self.streams.len() as u64;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, number);
        self.epoll.add(stream.as_fd(), event)?;
        self.streams.push(Some(stream));
        Ok(())
    }

    /// Numbers of those that are readable, within [`BEAT`].
    fn ready<'a>(&self, events: &'a mut [EpollEvent]) -> Result<impl Iterator<Item = u64> + 'a> {
        let timeout = EpollTimeout::try_from(BEAT)?;
        let count = match self.epoll.wait(events, timeout) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        Ok(events[..count].iter().map(EpollEvent::data))
    }
}

/// The listener's number.
const LISTENER: u64 = u64::MAX;

fn serve_tcp(listener: &TcpListener, size: usize, over: &AtomicBool) -> Result<()> {
    let mut watched = Watched::new()?;
    let event = EpollEvent::new(EpollFlags::EPOLLIN, LISTENER);
    watched.epoll.add(listener.as_fd(), event)?;
    let mut events = vec![EpollEvent::empty(); 256];
    let mut request = vec![0; size];
    while !over.load(Ordering::Relaxed) {
        let ready: Vec<u64> = watched.ready(&mut events)?.collect();
        for number in ready {
            if number == LISTENER {
                while let Ok((stream, _)) = listener.accept() {
                    watched.add(stream)?;
                }
                continue;
            }
            let slot = &mut watched.streams[number as usize];
            let Some(stream) = slot else { continue };
            match exchange(stream, &mut request) {
                Ok(true) => stream.write_all(&request)?,
                Ok(false) => {}
                // The client has gone.
                Err(_) => *slot = None,
            }
        }
    }
    Ok(())
}

/// Reads what is one request or answer: of so few bytes, nothing is ever there in part.
fn exchange(stream: &mut TcpStream, bytes: &mut [u8]) -> Result<bool> {
    match stream.read(bytes) {
        Ok(0) => bail!("closed"),
        Ok(count) => {
            ensure!(count == bytes.len(), "{count} bytes of {}", bytes.len());
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn ask_tcp(args: &Args, to: SocketAddr) -> Result<f64> {
    let mut watched = Watched::new()?;
    for _ in 0..args.connections {
        watched.add(TcpStream::connect_timeout(&to, CONNECT)?)?;
    }
    let size = args.size as usize;
    let (mut request, mut answer) = (vec![0; size], vec![0; size]);
    let mut numbers = vec![0; watched.streams.len()];
    for (connection, stream) in watched.streams.iter_mut().flatten().enumerate() {
        fill(&mut request, connection as u64, 0);
        stream.write_all(&request)?;
    }
    let mut events = vec![EpollEvent::empty(); 256];
    let mut clock = Clock::start(args.seconds);
    while !clock.is_over() {
        let ready: Vec<u64> = watched.ready(&mut events)?.collect();
        for connection in ready {
            let stream = watched.streams[connection as usize].as_mut();
            let stream = stream.context("an unknown connection")?;
            if !exchange(stream, &mut answer)? {
                continue;
            }
            let number = &mut numbers[connection as usize];
            fill(&mut request, connection, *number);
            ensure!(answer == request, "a wrong answer");
            *number += 1;
            clock.answers += 1;
            fill(&mut request, connection, *number);
            stream.write_all(&request)?;
        }
    }
    Ok(clock.rate())
}

impl Report for EchoReport {
    fn text(&self) -> String {
        let header = ["requests per second", "median", "min", "max"];
        let mut rows = table(header, 1);
        for (name, figures) in [
            ("TCP, epoll", &self.tcp),
            ("Zerolane, worker", &self.zerolane),
        ] {
            let count = |rate: f64| cell(Some(rate), |rate| format!("{rate:.0}"));
            rows.add_row([
                name.to_owned(),
                count(figures.median),
                count(figures.min),
                count(figures.max),
            ]);
        }
        format!(
            "{rows}\nZerolane / TCP: {:.2} (median of pairs). {} connections, {} bytes each way, over {}; one thread \
             and one core per end; {} s per run; Zerolane {}; every answer checked.",
            self.ratio,
            self.connections,
            self.size,
            self.path,
            self.seconds,
            self.security.name()
        )
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn run__both_contenders_answer_every_connection() {
        let args = |seconds| Args {
            connections: 20,
            size: 64,
            seconds,
            reps: 1,
            security: Protection::Encrypted,
            json: false,
            cores: CoreArgs {
                tx_core: 0,
                rx_core: None,
            },
        };
        // A busy machine may not run a client for a second.
        let some = |run: fn(&Args) -> Result<f64>| {
            let mut seconds = [1, 10].into_iter();
            seconds.any(|it| run(&args(it)).unwrap() > 0.0)
        };
        assert!(some(run_zerolane) && some(run_tcp));
    }

    #[test]
    fn fill__tells_connection_and_number() {
        let bytes = |connection, number| {
            let mut request = [0; 64];
            fill(&mut request, connection, number);
            request
        };
        assert_ne!(bytes(1, 0), bytes(2, 0));
        assert_ne!(bytes(1, 0), bytes(1, 1));
        assert_eq!(bytes(1, 7), bytes(1, 7));
    }
}
