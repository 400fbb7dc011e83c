//! Runs an echo server and its clients as tokio tasks: one for the worker, one for each connection.
//!
//! A program that does this needs the feature `tokio` of `zerolane`.
//!
//! ```sh
//! cargo run --release -p zerolane --example tokio_echo -- [CLIENTS] [ECHOES]
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use tokio::task::JoinSet;
use zerolane::failure::TransferError;
use zerolane::worker::{ConnectionHandle, EndpointHandle, Worker, WorkerHandle};
use zerolane::{Options, Region};

/// Longest message, bytes.
const LONGEST: usize = 64 << 10;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (clients, echoes) = match &arguments[..] {
        [] => (100, 100),
        [clients, echoes] => (clients.parse()?, echoes.parse()?),
        _ => return Err("see the top of this program".into()),
    };
    let worker = Worker::new()?;
    let handle = Arc::new(worker.handle());
    let running = tokio::spawn(worker.run());
    let on = "127.0.0.1:0";
    let endpoint = handle.listen(on, Options::default()).await?;
    let address = endpoint.local_addr();
    let serving = tokio::spawn(serve(endpoint, clients));
    let mut calling = JoinSet::new();
    for number in 0..clients {
        calling.spawn(client(Arc::clone(&handle), address, number, echoes));
    }
    while let Some(done) = calling.join_next().await {
        done??;
    }
    let echoed = serving.await??;
    println!("{echoed} messages of {clients} clients echoed");
    handle.stop();
    Ok(running.await??)
}

/// Accepts `clients` connections, and echoes each until it ends. Returns how many messages there were.
async fn serve(endpoint: EndpointHandle, clients: usize) -> Outcome<usize> {
    let mut serving = JoinSet::new();
    for _ in 0..clients {
        serving.spawn(echo(endpoint.accept().await?));
    }
    let mut echoed = 0;
    while let Some(done) = serving.join_next().await {
        echoed += done??;
    }
    Ok(echoed)
}

/// Sends back every message until the client has finished.
async fn echo(connection: ConnectionHandle) -> Outcome<usize> {
    for echoed in 0.. {
        let received = connection.recv(Region::anonymous(LONGEST)?).await?;
        let len = match received.result {
            Err(TransferError::Finished) => {
                connection.close().await?;
                return Ok(echoed);
            }
            result => result?,
        };
        let mut bytes = received.into_region()?;
        drop(bytes.split_off(len));
        connection.send(bytes).await?.result?;
    }
    Ok(0)
}

async fn client(
    worker: Arc<WorkerHandle>,
    address: SocketAddr,
    number: usize,
    echoes: usize,
) -> Outcome<()> {
    let connection = worker.connect(address, &Options::default()).await?;
    for n in 0..echoes {
        let message = vec![(number + n) as u8; 1 + (number * 131 + n * 977) % LONGEST];
        let back = connection.recv(Region::anonymous(message.len())?);
        let sent = connection.send(Region::from_vec(message.clone()));
        sent.await?.result?;
        if back.await?.into_region()?[..] != message {
            return Err(format!("client {number}, message {n}").into());
        }
    }
    connection.finish().await?;
    // The server sees the end of this direction, and closes. If this end closed first, the server would see only that.
    match connection.recv(Region::anonymous(1)?).await {
        Ok(more) if more.result.is_ok() => {
            Err(format!("client {number}: more than it sent").into())
        }
        _ => Ok(()),
    }
}
