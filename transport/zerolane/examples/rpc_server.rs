//! Serves remote calls of many clients in one thread.
//!
//! A call is a message: its name in the control, its arguments as payload. The clients run in another process, also in
//! one thread, each with a connection of its own.
//!
//! ```sh
//! cargo run --release -p zerolane --example rpc_server -- [CLIENTS] [CALLS]
//! ```

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};
use zerolane::request::{Message, ReceiveMessage, WorkKind};
use zerolane::worker::{ConnectionId, Event, Worker};
use zerolane::{Completion, Options, Region};

/// Longest arguments and results of a call, bytes.
const LONGEST: usize = 4096;
/// Clients that connect at a time.
const CONNECTING: usize = 100;
const PATIENCE: Duration = Duration::from_secs(30);

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    // Each connection has a socket of its own.
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => server(1000, 10),
        [clients, calls] => server(clients.parse()?, calls.parse()?),
        ["--clients", address, clients, calls] => {
            all_clients(address.parse()?, clients.parse()?, calls.parse()?)
        }
        _ => Err("see the top of this program".into()),
    }
}

/// Serves all clients of another process, then prints how many calls there were.
fn server(clients: usize, calls: usize) -> Outcome<()> {
    let mut worker = Worker::new()?;
    let endpoint = worker.listen("127.0.0.1:0", Options::default())?;
    let address = worker.endpoint(endpoint).ok_or("closed")?.local_addr();
    let mut others = Command::new(std::env::current_exe()?)
        .args(["--clients", &address.to_string()])
        .args([clients.to_string(), calls.to_string()])
        .spawn()?;
    let (mut answered, mut left) = (0, 0);
    while left < clients {
        if worker.wait(Some(PATIENCE))?.got().is_none() {
            return Err("nothing happens".into());
        }
        while let Some(event) = worker.next_event() {
            match event {
                Event::Accepted { connection, .. } => {
                    await_message(&mut worker, connection, Region::anonymous(LONGEST)?)?;
                }
                Event::Completed {
                    connection,
                    completion,
                } if completion.kind() == WorkKind::MessageReceived
                    && completion.result.is_ok() =>
                {
                    answer(&mut worker, connection, completion)?;
                    answered += 1;
                }
                Event::Closed { .. } => left += 1,
                _ => {}
            }
        }
    }
    if !others.wait()?.success() || answered != clients * calls {
        return Err(format!("{answered} calls answered").into());
    }
    println!("{answered} calls of {clients} clients answered in one thread");
    Ok(())
}

/// Posts a receive of the next message, unless the connection is over.
fn await_message(worker: &mut Worker, id: ConnectionId, place: Region) -> Outcome<()> {
    if let Some(connection) = worker.connection(id) {
        connection.post(ReceiveMessage::new().payload(place))?;
    }
    Ok(())
}

fn answer(worker: &mut Worker, id: ConnectionId, call: Completion) -> Outcome<()> {
    let len = call.result?;
    let name = call.control().ok_or("not a call")?.to_vec();
    let place = call.into_region()?;
    let result = match &name[..] {
        b"sum" => Some(numbers(&place[..len]).sum::<f64>()),
        b"mean" => Some(numbers(&place[..len]).sum::<f64>() / (len / 8) as f64),
        _ => None,
    };
    if let Some(connection) = worker.connection(id) {
        // Answers are unsignalled: only a failure is reported.
        match result {
            Some(result) => {
                let result = Region::from_vec(result.to_le_bytes().to_vec());
                connection.post(Message::new(b"result").payload(result).signalled(false))?;
            }
            None => {
                connection.post(Message::new(b"error: no such call").signalled(false))?;
            }
        }
    }
    await_message(worker, id, place)
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = f64> + '_ {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| f64::from_le_bytes(*word))
}

/// One of many clients.
struct Client {
    number: usize,
    /// Calls made; the last one is not answered.
    made: usize,
}

impl Client {
    fn arguments(&self) -> Vec<f64> {
        let count = 1 + (self.number + self.made) % 100;
        (0..count).map(|it| it as f64).collect()
    }

    /// Makes a call, and receives its result into `place`.
    fn call(&mut self, worker: &mut Worker, id: ConnectionId, place: Region) -> Outcome<()> {
        self.made += 1;
        let arguments = self.arguments();
        let arguments = arguments.iter().flat_map(|it| it.to_le_bytes()).collect();
        let arguments = Region::from_vec(arguments);
        let connection = worker.connection(id).ok_or("the server is gone")?;
        connection.post(ReceiveMessage::new().payload(place))?;
        connection.post(Message::new(b"sum").payload(arguments).signalled(false))?;
        Ok(())
    }
}

/// Connects all clients, a few at a time, makes calls, and checks the results.
fn all_clients(address: SocketAddr, clients: usize, calls: usize) -> Outcome<()> {
    let mut worker = Worker::new()?;
    let start = Instant::now();
    let mut all = HashMap::new();
    let mut numbers_left = 0..clients;
    let mut connect = |worker: &mut Worker, all: &mut HashMap<_, _>| -> Outcome<()> {
        if let Some(number) = numbers_left.next() {
            let id = worker.connect(address, &Options::default())?;
            all.insert(id, Client { number, made: 0 });
        }
        Ok(())
    };
    for _ in 0..CONNECTING {
        connect(&mut worker, &mut all)?;
    }
    while !all.is_empty() {
        if worker.wait(Some(PATIENCE))?.got().is_none() {
            return Err("nothing happens".into());
        }
        while let Some(event) = worker.next_event() {
            match event {
                Event::Connected { connection } => {
                    let client = all.get_mut(&connection).ok_or("an unknown connection")?;
                    client.call(&mut worker, connection, Region::anonymous(8)?)?;
                    connect(&mut worker, &mut all)?;
                }
                Event::Completed {
                    connection,
                    completion,
                } if completion.kind() == WorkKind::MessageReceived => {
                    let client = all.get_mut(&connection).ok_or("an unknown connection")?;
                    completion.result?;
                    let is_result = completion.control() == Some(b"result");
                    let place = completion.into_region()?;
                    let result: f64 = numbers(&place).sum();
                    if !is_result || result != client.arguments().iter().sum::<f64>() {
                        return Err(format!("client {}: {result}", client.number).into());
                    }
                    match client.made < calls {
                        true => client.call(&mut worker, connection, place)?,
                        false => {
                            worker.close(connection);
                        }
                    }
                }
                Event::Closed { connection, reason } => {
                    let client = all.remove(&connection).ok_or("an unknown connection")?;
                    if client.made < calls {
                        return Err(reason.into());
                    }
                }
                _ => {}
            }
        }
    }
    let rate = (clients * calls) as f64 / start.elapsed().as_secs_f64();
    println!("{rate:.0} calls a second");
    Ok(())
}
