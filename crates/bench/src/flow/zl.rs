//! The two ends of a Zerolane flow.

use std::net::{IpAddr, SocketAddr};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use zerolane::counters::{Account, DropReason};
use zerolane::options::{Profile, Profiles};
use zerolane::{Connection, Endpoint, Options, Region};

use super::super::limits::{FLOW_CONNECT, FLOW_GRACE, FLOW_IDLE};
use super::super::mover::buffer;
use super::super::pattern::Pattern;
use super::super::protocol::Protection;
use super::super::zl::pieces::Pieces;
use super::at_once;
use super::job::{Arrived, FlowJob, Sent};
use super::progress::Progress;
use zerolane_cli::exit::Exit;

/// What the receiver says when the time begins.
pub(super) const GO: u8 = b'g';

/// Pieces of a buffer, each a Transfer of its own. So many that looking one
/// through, in which time nobody answers the sender, takes less than a round
/// trip, and that enough are under way on a long path meanwhile.
const PIECES: usize = 64;

/// The defaults, with more patience: a bad link is what is measured.
fn options(profile: Profile, protection: Protection) -> Options {
    Options {
        profiles: Profiles::only(profile),
        idle_timeout: FLOW_IDLE,
        connect_timeout: FLOW_CONNECT,
        security: protection.security(),
        ..Options::default()
    }
}

pub(super) fn listen(address: IpAddr, profile: Profile, job: &FlowJob) -> Result<Endpoint> {
    Ok(Endpoint::bind(
        (address, 0),
        options(profile, job.security),
    )?)
}

/// The next connection that knows the token.
fn accept(endpoint: &mut Endpoint, token: u64) -> Result<Connection> {
    let deadline = Instant::now() + FLOW_CONNECT;
    while Instant::now() < deadline {
        let accepted = endpoint.accept(Some(FLOW_CONNECT))?;
        let mut connection = accepted.context("no sender connected")?;
        let mut told = [0; 8];
        if connection.recv_into(&mut told).is_ok() && told == token.to_le_bytes() {
            return Ok(connection);
        }
    }
    bail!("no sender with the right token connected")
}

/// Receives all flows of the job, each in a thread of its own.
pub(super) fn receive(mut endpoint: Endpoint, job: &FlowJob) -> Result<Vec<Arrived>> {
    let connections = (0..job.flows)
        .map(|_| accept(&mut endpoint, job.token))
        .collect::<Result<Vec<Connection>>>()?;
    at_once(connections, job, receive_flow)
}

fn receive_flow(mut connection: Connection, job: &FlowJob, ready: &Barrier) -> Result<Arrived> {
    let pattern = Pattern::new(job.seed, job.buffer);
    let mut pieces = Pieces::cut(&mut buffer(job.buffer)?, PIECES)?;
    let mut laps = [0; PIECES];
    post_receives(&mut connection, &mut pieces)?;
    ready.wait();
    connection.send(&[GO])?;
    let before = connection.account();
    let mut progress = Progress::start(job.sample());
    let mut checked_bytes = 0;
    while let Some(left) = job.time().checked_sub(progress.elapsed()) {
        let completion = connection.wait(Some(left.min(progress.until_next())))?;
        progress.reached(received(&connection.account(), &before));
        let Some(completion) = completion else {
            continue;
        };
        let index = pieces.take_back(completion)?;
        if let Some(region) = pieces.get(index) {
            pattern
                .check(region, pieces.base(index), laps[index])
                .context(Exit::Corrupt)?;
            checked_bytes += region.len() as u64;
        }
        laps[index] += 1;
        post_receives(&mut connection, &mut pieces)?;
    }
    let after = connection.account();
    let arrived = Arrived {
        bytes: received(&after, &before),
        seconds: progress.elapsed().as_secs_f64(),
        samples: progress.samples(),
        repeated_bytes: repeated(&after) - repeated(&before),
        checked_bytes,
    };
    // The sender learns by this that the time is over; it may be busy sending.
    let _ = connection.close();
    Ok(arrived)
}

fn post_receives(connection: &mut Connection, pieces: &mut Pieces) -> Result<()> {
    while let Some((piece, _, region)) = pieces.take_turn(u64::MAX) {
        pieces.posted(connection.post_recv(region)?, piece);
    }
    Ok(())
}

fn received(now: &Account, before: &Account) -> u64 {
    now.protocol.bytes_received - before.protocol.bytes_received
}

/// Payload that was there already, or whose Block was: the account counts STUs.
fn repeated(account: &Account) -> u64 {
    let count = |reason| account.protocol.dropped(reason);
    let stus = count(DropReason::Duplicate) + count(DropReason::NoGrant);
    stus * u64::from(account.stu)
}

/// Sends until the receiver ends the connection. Whether that was right, the
/// receiver says.
pub(super) fn send(to: SocketAddr, profile: Profile, job: &FlowJob) -> Result<Sent> {
    let pattern = Pattern::new(job.seed, job.buffer);
    let mut memory = buffer(job.buffer)?;
    pattern.fill(&mut memory);
    let mut pieces = Pieces::cut(&mut memory, PIECES)?;
    let mut connection = Connection::connect(to, &options(profile, job.security))
        .with_context(|| format!("cannot connect to the receiver at {to}"))?;
    connection.send(&job.token.to_le_bytes())?;
    let mut heard = [0];
    connection.recv_into(&mut heard)?;
    let before = connection.account();
    let deadline = Instant::now() + job.time() + FLOW_GRACE;
    while let Some(left) = deadline.checked_duration_since(Instant::now()) {
        if !go_on(&mut connection, &mut pieces, &pattern, left) {
            break;
        }
    }
    let resent = |account: &Account| account.protocol.bytes_resent;
    Ok(Sent {
        resent_bytes: resent(&connection.account()) - resent(&before),
        reported_repeats_bytes: 0,
    })
}

/// Posts what there is and waits for one piece; whether the flow goes on.
fn go_on(
    connection: &mut Connection,
    pieces: &mut Pieces,
    pattern: &Pattern,
    left: Duration,
) -> bool {
    while let Some((piece, lap, mut region)) = pieces.take_turn(u64::MAX) {
        pattern.stamp(&mut region, pieces.base(piece), lap);
        match post(connection, region) {
            Some(id) => pieces.posted(id, piece),
            None => return false,
        }
    }
    match connection.wait(Some(left)) {
        Ok(Some(completion)) => pieces.take_back(completion).is_ok(),
        Ok(None) => true,
        Err(_) => false,
    }
}

fn post(connection: &mut Connection, region: Region) -> Option<zerolane::TransferId> {
    connection.post_send(region).ok()
}
