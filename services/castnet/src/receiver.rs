//! Receives a cast on one host: waits for a source, then takes part.

mod taking;
mod waiting;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use zerolane::lanes::ToAddresses;
use zerolane::security::{PreShared, PublicKey};
use zerolane::worker::{EndpointId, Worker};
use zerolane::{Endpoint, Options as Transport, Security};
use zerolane_cast::limits::LONGEST;

use crate::drive::Drive;
use crate::error::Error;
use crate::invitation::{Word, in_words};
use crate::target::Destination;
use taking::{Taking, Times};
use waiting::Waiting;

/// A host that waits for a cast.
#[derive(Debug)]
pub struct Receiver {
    worker: Worker,
    endpoint: EndpointId,
    address: SocketAddr,
    key: Option<PublicKey>,
    /// It lets one source in, once.
    by_code: bool,
    destination: Destination,
    /// How long the host continues without progress.
    patience: Duration,
    /// The silence after which a peer is taken for dead.
    silence: Duration,
    max_rate: Option<u64>,
    spills: bool,
    /// The process that started it is gone.
    starter_gone: Arc<AtomicBool>,
}

/// The result of a received cast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The path of the content, if it has one.
    pub path: Option<PathBuf>,
    /// Bytes of the content.
    pub bytes: u64,
    /// Time from the invitation until the content was in place.
    pub took: Duration,
    /// Bytes reused from an earlier attempt.
    pub resumed: u64,
    /// Bytes of received chunks.
    pub received: u64,
    /// Bytes of forwarded chunks.
    pub sent: u64,
    /// Number of earlier offers that were refused because their content could not be put at the destination.
    pub refused: u64,
}

/// Progress of a host.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Chunks that are written.
    pub chunks: u32,
    /// Chunks of the content; 0 while unknown.
    pub of: u32,
    /// Messages for the user since the last report.
    pub notes: Vec<String>,
}

impl Receiver {
    /// Listens on `on` for a source that `security` trusts.
    ///
    /// # Errors
    /// The address is in use, or the destination cannot be written.
    pub fn bind(
        on: impl ToAddresses,
        security: Security,
        destination: Destination,
    ) -> Result<Receiver, Error> {
        destination.check()?;
        let by_code = matches!(security.pre_shared, Some(PreShared::Code(_)));
        let endpoint = Endpoint::bind(
            on,
            Transport::default().with(|it| {
                it.security = security;
                // A worker accepts.
                it.listen.backlog = 0;
            }),
        )?;
        let (address, key) = (endpoint.local_addr(), endpoint.public_key());
        let mut worker = Worker::new()?;
        let endpoint = worker.listen_on(endpoint)?;
        Ok(Receiver {
            worker,
            endpoint,
            address,
            key,
            by_code,
            destination,
            patience: Duration::from_secs(30),
            silence: Duration::from_secs(2),
            max_rate: None,
            spills: true,
            starter_gone: Arc::default(),
        })
    }

    /// Gives up after `patience` without progress; 30 s by default.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Receiver {
        Receiver {
            patience: patience.min(LONGEST),
            ..self
        }
    }

    /// Treats a peer as dead after `silence`; 2 s by default.
    #[must_use]
    pub fn with_silence(self, silence: Duration) -> Receiver {
        Receiver {
            silence: silence.min(LONGEST),
            ..self
        }
    }

    /// Sends at most `max_rate` bytes/s to each peer.
    #[must_use]
    pub fn with_max_rate(self, max_rate: Option<u64>) -> Receiver {
        Receiver { max_rate, ..self }
    }

    /// Whether a written chunk may leave memory before all hosts behind this one have it. With spilling, the default,
    /// this host reads such a chunk from the target again, and no slow host holds it up. Without, the chunk stays in
    /// the window: this host receives no faster than the hosts behind it, and rarely reads its disk. A chain then runs
    /// at the pace of its slowest host, which is not detected as slow.
    #[must_use]
    pub fn with_spill(self, spills: bool) -> Receiver {
        Receiver { spills, ..self }
    }

    /// Stops waiting for a source once `starter_gone` is set, for example when the process that started this host has
    /// ended. A running cast goes on.
    #[must_use]
    pub fn until_gone(self, starter_gone: Arc<AtomicBool>) -> Receiver {
        Receiver {
            starter_gone,
            ..self
        }
    }

    /// The address on which it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The public key by which sources recognise this host.
    #[must_use]
    pub fn public_key(&self) -> Option<PublicKey> {
        self.key
    }

    /// Waits for a source, and takes part in one cast. If the destination cannot hold an offer, the host refuses it and
    /// keeps waiting, unless its security is a one-time code, which is then spent. `stop` says whether the user wants
    /// to stop; `watch` receives the progress.
    ///
    /// # Errors
    /// The content did not arrive, or could not be put in place. Received bytes stay for another attempt.
    pub fn run(
        self,
        stop: &dyn Fn() -> bool,
        watch: &mut dyn FnMut(&Progress),
    ) -> Result<Received, Error> {
        self.run_as(stop, watch, &mut |_| {})
    }

    /// The same, with a change of what drives it.
    pub(crate) fn run_as(
        self,
        stop: &dyn Fn() -> bool,
        watch: &mut dyn FnMut(&Progress),
        change: &mut dyn FnMut(&mut Drive),
    ) -> Result<Received, Error> {
        let transport = Transport::default().with(|it| it.rate.max = self.max_rate);
        let (endpoint, by_code) = (self.endpoint, self.by_code);
        let mut waiting =
            Waiting::new(self.worker, endpoint, &self.destination, transport, by_code);
        let invited = waiting.wait(stop, &self.starter_gone, watch)?;
        let refused = waiting.refused.count;
        let times = Times {
            silence: self.silence,
            patience: self.patience,
        };
        let worker = waiting.into_worker();
        let mut taking = Taking::begin(worker, self.endpoint, invited, times, self.spills)?;
        change(&mut taking.drive);
        // What the same Ctrl-C ended beside this, say the command that reads, is not why.
        let why = |error| if stop() { Error::Stopped } else { error };
        let done = taking.run(stop, watch).map_err(why);
        if let Err(error) = &done {
            taking.say(Word::Ended(Err(in_words(error))));
        }
        taking.part()?;
        taking.give_up();
        done.map(|it| Received { refused, ..it })
    }
}
