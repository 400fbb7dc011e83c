//! A host: it waits for a source, and takes part.

mod taking;
mod waiting;

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

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
    /// How long it goes on without anything new.
    patience: Duration,
    /// The silence after which a peer is taken for dead.
    silence: Duration,
    max_rate: Option<u64>,
    spills: bool,
    /// The process that started it is gone.
    starter_gone: Arc<AtomicBool>,
}

/// What was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Where it is, if it has a path.
    pub path: Option<PathBuf>,
    /// Bytes of the content.
    pub bytes: u64,
    /// From the invitation until all was in its place.
    pub took: Duration,
    /// Bytes that an earlier try had left.
    pub resumed: u64,
    /// Bytes of chunks that came, and that were sent on.
    pub received: u64,
    /// The same.
    pub sent: u64,
    /// Offers that were refused before: their content could not be put there.
    pub refused: u64,
}

/// How far a host is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Chunks that it has, written.
    pub chunks: u32,
    /// Chunks of the content; 0 as long as that is not known.
    pub of: u32,
    /// What was noticed since the last time.
    pub notes: Vec<String>,
}

impl Receiver {
    /// Listens on `on` for a source that `security` trusts.
    ///
    /// # Errors
    /// The address is in use, or the destination cannot be received into.
    pub fn bind(
        on: impl ToSocketAddrs,
        security: Security,
        destination: Destination,
    ) -> Result<Receiver, Error> {
        destination.check()?;
        let by_code = matches!(security.pre_shared, Some(PreShared::Code(_)));
        let endpoint = Endpoint::bind(
            on,
            Transport {
                security,
                ..Transport::default()
            },
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

    /// Gives up after so long without anything new: 30 s unless set.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Receiver {
        Receiver {
            patience: patience.min(LONGEST),
            ..self
        }
    }

    /// Takes a peer for dead after so long: 2 s unless set.
    #[must_use]
    pub fn with_silence(self, silence: Duration) -> Receiver {
        Receiver {
            silence: silence.min(LONGEST),
            ..self
        }
    }

    /// Sends each peer at most so many bytes a second.
    #[must_use]
    pub fn with_max_rate(self, max_rate: Option<u64>) -> Receiver {
        Receiver { max_rate, ..self }
    }

    /// What becomes of a chunk that is written, but that a host behind this one has not got yet, say because of its slow disk or
    /// link. It spills, unless set: it leaves memory, and is read from the target again, so this host is held up by none. Without,
    /// it stays in memory, of which there is a window: this host receives no faster than those behind it, and hardly reads its disk.
    /// Then a chain goes at the pace of its slowest host, which is not found to be slow.
    #[must_use]
    pub fn with_spill(self, spills: bool) -> Receiver {
        Receiver { spills, ..self }
    }

    /// Waits for a source no longer once this is set, say because the process that started it to be called is gone. A cast that it takes
    /// part in goes on.
    #[must_use]
    pub fn until_gone(self, starter_gone: Arc<AtomicBool>) -> Receiver {
        Receiver {
            starter_gone,
            ..self
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The key by which sources know it.
    #[must_use]
    pub fn public_key(&self) -> Option<PublicKey> {
        self.key
    }

    /// Waits for a source, and takes part in one cast. An offer that cannot be put there is refused, and it waits on, unless its
    /// security is a one-time code: that is spent then. `stop` is asked whether the user wants to stop, `watch` told how
    /// far it is.
    ///
    /// # Errors
    /// The content did not come, or could not be put in its place. What came stays for another try.
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
        let transport = Transport {
            max_rate: self.max_rate,
            ..Transport::default()
        };
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
