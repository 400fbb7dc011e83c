//! The two ends of a TCP flow.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use socket2::{Domain, Socket, Type};

use super::super::congestion;
use super::super::limits::{FLOW_CONNECT, FLOW_GRACE};
use super::super::pattern::{Pattern, WORD};
use super::at_once;
use super::job::{Arrived, FlowJob, Sent};
use super::kernel::Counts;
use super::progress::Progress;
use super::zl::GO;
use zerolane_cli::exit::Exit;

/// Bytes handed to one send and asked of one receive, at most.
const CHUNK_BYTES: usize = 256 << 10;

fn socket(domain: Domain, name: &str) -> Result<Socket> {
    let socket = Socket::new(domain, Type::STREAM, None)?;
    congestion::set(&socket, name)?;
    Ok(socket)
}

pub(super) fn listen(address: IpAddr, congestion: &str) -> Result<TcpListener> {
    let address = SocketAddr::new(address, 0);
    let socket = socket(Domain::for_address(address), congestion)?;
    socket.bind(&address.into())?;
    socket.listen(super::super::limits::FLOWS_MAX as i32)?;
    Ok(socket.into())
}

/// The next connection that knows the token.
fn accept(listener: &TcpListener, token: u64) -> Result<TcpStream> {
    let deadline = Instant::now() + FLOW_CONNECT;
    socket2::SockRef::from(listener).set_read_timeout(Some(FLOW_CONNECT))?;
    while Instant::now() < deadline {
        let (mut stream, _) = listener.accept().context("no sender connected")?;
        stream.set_read_timeout(Some(FLOW_CONNECT))?;
        let mut told = [0; 8];
        if stream.read_exact(&mut told).is_ok() && told == token.to_le_bytes() {
            return Ok(stream);
        }
    }
    bail!("no sender with the right token connected")
}

/// Receives all flows of the job, each in a thread of its own.
pub(super) fn receive(listener: &TcpListener, job: &FlowJob) -> Result<Vec<Arrived>> {
    let streams = (0..job.flows)
        .map(|_| accept(listener, job.token))
        .collect::<Result<Vec<TcpStream>>>()?;
    at_once(streams, job, receive_flow)
}

fn receive_flow(mut stream: TcpStream, job: &FlowJob, ready: &Barrier) -> Result<Arrived> {
    let pattern = Pattern::new(job.seed, job.buffer);
    let mut buffer = vec![0; job.buffer];
    ready.wait();
    stream.write_all(&[GO])?;
    let mut progress = Progress::start(job.sample());
    let (mut total, mut lap) = (0u64, 0u64);
    // Within the lap: bytes there, and bytes checked.
    let (mut filled, mut checked) = (0, 0);
    while let Some(left) = left(&progress, job) {
        stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
        let end = buffer.len().min(filled + CHUNK_BYTES);
        let got = match stream.read(&mut buffer[filled..end]) {
            Ok(0) => bail!("the sender closed the connection"),
            Ok(got) => got,
            Err(error) if waits(&error) => 0,
            Err(error) => return Err(error.into()),
        };
        filled += got;
        total += got as u64;
        progress.reached(total);
        let whole = filled / WORD * WORD;
        pattern
            .check(&buffer[checked..whole], checked, lap)
            .context(Exit::Corrupt)?;
        checked = whole;
        if filled == buffer.len() {
            (filled, checked, lap) = (0, 0, lap + 1);
        }
    }
    Ok(Arrived {
        bytes: total,
        seconds: progress.elapsed().as_secs_f64(),
        samples: progress.samples(),
        repeated_bytes: 0,
        checked_bytes: lap * job.buffer as u64 + checked as u64,
    })
}

fn left(progress: &Progress, job: &FlowJob) -> Option<Duration> {
    job.time()
        .checked_sub(progress.elapsed())
        .filter(|left| !left.is_zero())
        .map(|left| left.min(progress.until_next()))
}

fn waits(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// Sends until the receiver ends the connection. Whether that was right, the
/// receiver says.
pub(super) fn send(to: SocketAddr, congestion: &str, job: &FlowJob) -> Result<Sent> {
    let pattern = Pattern::new(job.seed, job.buffer);
    let mut buffer = vec![0; job.buffer];
    pattern.fill(&mut buffer);
    let socket = socket(Domain::for_address(to), congestion)?;
    socket
        .connect_timeout(&to.into(), FLOW_CONNECT)
        .with_context(|| format!("cannot connect to the receiver at {to}"))?;
    let mut stream = TcpStream::from(socket);
    let before = Counts::now();
    stream.write_all(&job.token.to_le_bytes())?;
    stream.set_read_timeout(Some(FLOW_CONNECT))?;
    let mut heard = [0];
    stream
        .read_exact(&mut heard)
        .context("the receiver does not start")?;
    let patience = job.time() + FLOW_GRACE;
    let deadline = Instant::now() + patience;
    stream.set_write_timeout(Some(patience))?;
    for lap in 0.. {
        for (index, piece) in buffer.chunks_mut(CHUNK_BYTES).enumerate() {
            pattern.stamp(piece, index * CHUNK_BYTES, lap);
            if Instant::now() >= deadline || stream.write_all(piece).is_err() {
                return Ok(Counts::now().since(before));
            }
        }
    }
    bail!("the laps ran out")
}
