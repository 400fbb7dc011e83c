//! From the sender's buffer straight to the receiver's, a lap at a time.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anyhow::{Context, Result};
use bytes::Bytes;
use tokio::time::timeout;

use super::super::cpu::Meter;
use super::super::limits::STALL;
use super::super::mover::Run;
use super::super::pattern::WORD;
use super::super::protocol::Measured;
use super::super::tcp::{DONE, GO};
use super::{Listener, Stream, endpoint, open, runtime};
use zerolane_cli::exit::Exit;

/// Most payload handed over at once, which quinn copies.
const PIECE_BYTES: usize = 256 << 10;

/// Most datagrams' worth of payload taken at once.
const CHUNKS: usize = 64;

/// Receives all laps into `buffer`.
pub(crate) fn receive(listener: Listener, run: &Run<'_>, buffer: &mut [u8]) -> Result<Measured> {
    listener.runtime.block_on(async {
        let mut stream = listener.accept(run.job.token).await?;
        stream.say(GO).await?;
        let (before, meter) = (stream.syscalls(), Meter::start(run.core));
        let mut chunks = Chunks::default();
        for lap in 0..run.laps {
            receive_lap(&mut stream, &mut chunks, run, buffer, lap).await?;
        }
        let (seconds, cpu) = meter.stop();
        let syscalls = stream.syscalls() - before;
        stream.say(DONE).await?;
        stream.send.finish()?;
        // Until the sender has heard it.
        let _ = timeout(STALL, stream.connection.closed()).await;
        Ok(Measured::new(run.bytes, seconds, cpu, syscalls))
    })
}

/// Payload that was received and is not in its place yet.
#[derive(Default)]
struct Chunks {
    here: VecDeque<Bytes>,
}

impl Chunks {
    /// Copies what is here into `place`, or receives if nothing is; how much.
    async fn fill(&mut self, stream: &mut Stream, place: &mut [u8]) -> Result<usize> {
        if self.here.is_empty() {
            let mut fresh: [Bytes; CHUNKS] = std::array::from_fn(|_| Bytes::new());
            let count = stream.recv.read_chunks(&mut fresh).await?;
            let count = count.context("the sender closed the stream in the middle")?;
            self.here.extend(fresh.into_iter().take(count));
        }
        let mut filled = 0;
        while let Some(chunk) = self.here.front_mut() {
            let len = chunk.len().min(place.len() - filled);
            place[filled..filled + len].copy_from_slice(&chunk.split_to(len));
            filled += len;
            if !chunk.is_empty() {
                break;
            }
            self.here.pop_front();
        }
        Ok(filled)
    }
}

async fn receive_lap(
    stream: &mut Stream,
    chunks: &mut Chunks,
    run: &Run<'_>,
    buffer: &mut [u8],
    lap: u64,
) -> Result<()> {
    let (mut filled, mut checked) = (0, 0);
    while filled < buffer.len() {
        filled += chunks.fill(stream, &mut buffer[filled..]).await?;
        let whole = filled / WORD * WORD;
        run.pattern
            .check_stamps(&buffer[checked..whole], checked, lap)
            .context(Exit::Corrupt)?;
        checked = whole;
    }
    Ok(())
}

/// Sends all laps from `buffer`.
pub(crate) fn send(to: SocketAddr, run: &Run<'_>, buffer: &mut [u8]) -> Result<Measured> {
    let runtime = runtime()?;
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let endpoint = endpoint(&runtime, any, None)?;
    runtime.block_on(async {
        let mut stream = open(&endpoint, to, run.job.token).await?;
        stream.await_word(GO).await?;
        let (before, meter) = (stream.syscalls(), Meter::start(run.core));
        for lap in 0..run.laps {
            let mut base = 0;
            for piece in buffer.chunks_mut(PIECE_BYTES) {
                run.pattern.stamp(piece, base, lap);
                stream.send.write_all(piece).await?;
                base += piece.len();
            }
        }
        // What is still under way costs this core too: wait until it is there.
        stream.await_word(DONE).await?;
        let (seconds, cpu) = meter.stop();
        let syscalls = stream.syscalls() - before;
        stream.connection.close(0u32.into(), b"");
        endpoint.wait_idle().await;
        Ok(Measured::new(run.bytes, seconds, cpu, syscalls))
    })
}
