//! Stores key-value blocks as inference servers do: one process fills the store, another reads it.
//!
//! The store exports its memory from a worker in a thread of its own, as a passive target. The prefill process claims
//! blocks with an atomic counter, and puts the blocks of a request with one scattered put, whose immediate carries the
//! request's number. The store passes that number on. The decode process gets the blocks with one scattered get.
//!
//! ```sh
//! cargo run --release -p zerolane --example kv_cache -- [REQUESTS] [BLOCKS OF EACH] [BYTES OF A BLOCK]
//! ```

use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::Duration;
use zerolane::request::{GetPieces, Message, PutPieces};
use zerolane::worker::{Pending, Worker};
use zerolane::{Connection, ExportedRegion, Options, Region, RequestId, Rights};

/// Room for the counter of claimed blocks at the start, bytes.
const WORDS: u64 = 64;
/// Size of a number in the table of blocks, bytes.
const NUMBER: u64 = 8;
const PATIENCE: Duration = Duration::from_secs(30);

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The layout of the memory: a counter, a table of each request's blocks, the blocks.
struct Layout {
    requests: u64,
    blocks: u64,
    size: u64,
}

impl Layout {
    fn parse(arguments: &[&str]) -> Outcome<Layout> {
        let [requests, blocks, size] = arguments else {
            return Err("see the top of this program".into());
        };
        Ok(Layout {
            requests: requests.parse()?,
            blocks: blocks.parse()?,
            size: size.parse()?,
        })
    }

    fn start(&self) -> u64 {
        WORDS + self.requests * self.blocks * NUMBER
    }

    fn len(&self) -> u64 {
        self.start() + self.requests * self.blocks * self.size
    }

    /// The offset of a request's row of the table.
    fn row(&self, request: u64) -> u64 {
        WORDS + request * self.blocks * NUMBER
    }

    /// The offset of a block. Blocks are claimed in order and are scattered: odd and even ones apart.
    fn block(&self, number: u64) -> u64 {
        let total = self.requests * self.blocks;
        let odd = number % 2 * total.div_ceil(2);
        self.start() + (odd + number / 2) * self.size
    }

    /// The content that prefill computes and decode expects.
    fn content(&self, request: u64, block: u64) -> Vec<u8> {
        let pair = [(request % 251) as u8, (block % 251) as u8];
        pair.into_iter().cycle().take(self.size as usize).collect()
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match &arguments[..] {
        [] => store(&Layout::parse(&["32", "64", "65536"])?),
        ["--prefill", address, rest @ ..] => prefill(address.parse()?, &Layout::parse(rest)?),
        ["--decode", address, rest @ ..] => decode(address.parse()?, &Layout::parse(rest)?),
        rest => store(&Layout::parse(rest)?),
    }
}

/// Owns the memory, and passes on the numbers of complete requests.
fn store(layout: &Layout) -> Outcome<()> {
    let memory = ExportedRegion::new(Region::anonymous(layout.len() as usize)?);
    let memory = memory.map_err(|_| "regions are page-aligned")?;
    let worker = Worker::new()?.spawn()?;
    let endpoint = within(worker.listen("127.0.0.1:0", Options::default()))?;
    within(endpoint.export("cache", &memory, Rights::ALL))?;
    let address = endpoint.local_addr();
    let mut filling = spawn("--prefill", address, layout)?;
    let prefill = within(endpoint.accept())?;
    let mut reading = spawn("--decode", address, layout)?;
    let decode = within(endpoint.accept())?;
    for _ in 0..layout.requests {
        let request = within(prefill.immediate())?.number;
        within(decode.post(Message::new(request.to_le_bytes().to_vec())))?.result?;
    }
    within(prefill.post(Message::new(b"done")))?.result?;
    if !filling.wait()?.success() || !reading.wait()?.success() {
        return Err("a process failed".into());
    }
    let blocks = memory.word(0).load(std::sync::atomic::Ordering::SeqCst);
    let size = layout.size;
    println!("{blocks} blocks of {size} bytes went through the store, all right");
    worker.stop()?;
    Ok(())
}

fn spawn(role: &str, address: SocketAddr, layout: &Layout) -> Outcome<Child> {
    let numbers = [layout.requests, layout.blocks, layout.size].map(|it| it.to_string());
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(role).arg(address.to_string()).args(numbers);
    Ok(command.spawn()?)
}

fn within<T: Send + 'static>(mut pending: Pending<T>) -> Outcome<T> {
    Ok(pending.wait_for(PATIENCE).ok_or("nothing happens")??)
}

/// Waits for the end of the one request in flight.
fn complete(connection: &mut Connection, id: RequestId) -> Outcome<Vec<zerolane::memory::Memory>> {
    let completion = connection.wait(Some(PATIENCE))?.got();
    let completion = completion.filter(|it| it.id == id);
    let completion = completion.ok_or("not the request's end")?;
    completion.result?;
    Ok(completion.into_pieces())
}

/// Fills the store, request by request.
fn prefill(address: SocketAddr, layout: &Layout) -> Outcome<()> {
    let mut connection = Connection::connect(address, &Options::default())?;
    let cache = connection.open_region("cache", Rights::ALL)?;
    for request in 0..layout.requests {
        let first = connection.fetch_add(&cache, 0, layout.blocks)?;
        let numbers = first..first + layout.blocks;
        let row: Vec<u8> = numbers.clone().flat_map(u64::to_le_bytes).collect();
        let mut pieces = vec![(layout.row(request), Region::from_vec(row).into())];
        for (block, number) in (0..).zip(numbers) {
            let content = Region::from_vec(layout.content(request, block));
            pieces.push((layout.block(number), content.into()));
        }
        // The immediate is delivered when all pieces are in place.
        let id = connection.post(PutPieces::new(&cache, pieces).immediate(request as u32))?;
        complete(&mut connection, id)?;
    }
    // Immediates that the store has not taken are lost with the connection, so wait until it has all of them.
    connection.recv_message(None)?;
    Ok(connection.close()?)
}

/// Reads the requests that the store announces.
fn decode(address: SocketAddr, layout: &Layout) -> Outcome<()> {
    let mut connection = Connection::connect(address, &Options::default())?;
    let cache = connection.open_region("cache", Rights::READ)?;
    let mut row = vec![0; (layout.blocks * NUMBER) as usize];
    for _ in 0..layout.requests {
        let control = connection.recv_message(None)?.control;
        let request = u64::from(u32::from_le_bytes(control[..].try_into()?));
        connection.get(&cache, layout.row(request), &mut row)?;
        let (numbers, _) = row.as_chunks::<8>();
        let mut pieces = Vec::new();
        for number in numbers {
            let place = Region::anonymous(layout.size as usize)?;
            pieces.push((layout.block(u64::from_le_bytes(*number)), place));
        }
        let id = connection.post(GetPieces::new(&cache, pieces))?;
        for (block, piece) in (0..).zip(complete(&mut connection, id)?) {
            let piece = piece.into_region().ok_or("shared")?;
            if piece[..] != layout.content(request, block) {
                return Err(format!("request {request}, block {block}").into());
            }
        }
    }
    Ok(connection.close()?)
}
