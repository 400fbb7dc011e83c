//! Runs the source of a cast: calls the hosts, leads them, and reports the result of each.

mod calls;
mod leading;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use zerolane::Options as Transport;
use zerolane::security::{Identity, PublicKey, Trust};
use zerolane::worker::Worker;
use zerolane_cast::limits::LONGEST;
use zerolane_cast::plan::{Shape, shape};
use zerolane_cast::{Contact, Node, Options, Profile, Slow};

use crate::contact::{address_bytes, interface_of};
use crate::content::Content;
use crate::drive::{Drive, Membership, random, with_silence};
use crate::error::Error;
use crate::host::Host;
use crate::invitation::in_words;
use crate::limits::WINDOW;
use crate::racks::Racks;
use calls::Calls;
use leading::Leading;

/// A cast to run.
#[derive(Clone, Debug)]
pub struct Cast {
    /// The hosts.
    pub hosts: Vec<Host>,
    /// The racks of the hosts and the source, each behind one uplink. They decide the order of the cast.
    pub racks: Racks,
    /// Stripes of the content, and children of a node in its own stripe: 1 is a chain. `None`: chosen by
    /// [`zerolane_cast::plan::shape`].
    pub arity: Option<u32>,
    /// How long the cast waits for hosts before it begins with those present.
    pub gather: Duration,
    /// How long the source keeps calling a lost host after all others have finished.
    pub linger: Duration,
    /// How to treat slow nodes.
    pub slow: Slow,
    /// The silence after which a node counts as dead.
    pub silence: Duration,
    /// Most bytes a second to each peer.
    pub max_rate: Option<u64>,
}

impl Default for Cast {
    fn default() -> Cast {
        Cast {
            hosts: Vec::new(),
            racks: Racks::default(),
            arity: None,
            gather: Duration::from_secs(10),
            linger: Duration::from_secs(3),
            slow: Slow::default(),
            silence: Duration::from_secs(2),
            max_rate: None,
        }
    }
}

/// The result of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOutcome {
    /// As the user named it.
    pub name: String,
    /// `Ok` if the content is in place there; otherwise the reason.
    pub result: Result<(), String>,
    /// The misbehaviour that others reported, such as a wrong chunk, even if the host has all content.
    pub accused: Option<String>,
    /// Time from the start of the cast until this result.
    pub after: Duration,
    /// By stripe, its predecessor when it had all content, as the user named it; `None` is the source. Empty if it did
    /// not get all.
    pub from: Vec<Option<String>>,
}

/// The model's prediction, from the rate of a first part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// Predicted duration of the cast.
    pub time: Duration,
    /// That part as a share of the missing bytes, 0 to 1; 1 if a host went from nothing to all between two reports.
    pub from: f64,
}

/// How a cast ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// In the order of the hosts.
    pub hosts: Vec<HostOutcome>,
    /// From the start of the cast, with the nodes present, until the last successful host had its content in place.
    pub took: Duration,
    /// The model's prediction. `None`: no host received anything.
    pub predicted: Option<Predicted>,
    /// Stripes of the content, and children of a node in its own stripe: 1 is a chain. 0: the cast ended before it
    /// began.
    pub arity: u32,
    /// Bytes of the content.
    pub bytes: u64,
    /// Bytes of chunks that the source sent.
    pub sent: u64,
    /// The source changed while it was cast.
    pub changed: bool,
    /// Number of racks with hosts or the source.
    pub racks: usize,
}

impl Outcome {
    /// The outcome of a cast that ended with `why` before it called any of `hosts`.
    #[must_use]
    pub fn of_none(hosts: Vec<String>, bytes: u64, why: &Error) -> Outcome {
        let failed = |name| HostOutcome {
            name,
            result: Err(in_words(why)),
            accused: None,
            after: Duration::ZERO,
            from: Vec::new(),
        };
        Outcome {
            hosts: hosts.into_iter().map(failed).collect(),
            took: Duration::ZERO,
            predicted: None,
            arity: 0,
            bytes,
            sent: 0,
            changed: matches!(why, Error::Changed(_)),
            racks: 0,
        }
    }
}

/// Progress of a cast.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    /// Chunks of the content.
    pub chunks: u32,
    /// Present and past members by name, with the number of their chunks.
    pub hosts: Vec<(&'a str, u32)>,
    /// Number of hosts with the content in place.
    pub done: usize,
    /// Number of hosts that failed permanently.
    pub failed: usize,
    /// Messages for the user since the last report.
    pub notes: Vec<String>,
}

/// The keys of nodes that were invited.
#[derive(Debug, Default)]
pub(crate) struct Invited(Mutex<HashSet<PublicKey>>);

impl Invited {
    fn add(&self, key: PublicKey) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key);
    }
}

impl Trust for Invited {
    fn trusts(&self, peer: &PublicKey) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(peer)
    }
}

impl Cast {
    /// Casts `content` until each host has it or has failed. `stop` says whether the user wants to stop; `watch`
    /// receives the progress.
    ///
    /// # Errors
    /// Nothing could be cast, a host's rack is not listed, the source changed, or the user stopped the cast. A failed
    /// host is not an error.
    pub fn run(
        self,
        content: &Content,
        stop: &dyn Fn() -> bool,
        watch: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<Outcome, Error> {
        let (outcome, done) = self.run_told(content, stop, watch);
        done.map(|()| outcome)
    }

    /// Like [`run`](Cast::run), but returns the result of each host even if the cast ends with an error.
    pub fn run_told(
        self,
        content: &Content,
        stop: &dyn Fn() -> bool,
        watch: &mut dyn FnMut(&Progress<'_>),
    ) -> (Outcome, Result<(), Error>) {
        let names: Vec<_> = self.hosts.iter().map(|it| it.name.clone()).collect();
        match self.lead(content, stop, watch) {
            Ok(ended) => ended,
            Err(error) => (Outcome::of_none(names, content.bytes(), &error), Err(error)),
        }
    }

    /// The arity of the planned shape for the hosts with known addresses.
    fn planned_arity(&self, content: &Content) -> u32 {
        let nodes = self.hosts.iter().filter(|it| it.addresses.is_ok()).count();
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        match shape(nodes, content.bytes(), content.chunk_bytes()) {
            Shape::Tree(arity) => arity,
            Shape::Chain | Shape::Star => 1,
        }
    }

    /// How it ended, if hosts were called.
    fn lead(
        mut self,
        content: &Content,
        stop: &dyn Fn() -> bool,
        watch: &mut dyn FnMut(&Progress<'_>),
    ) -> Result<(Outcome, Result<(), Error>), Error> {
        for time in [&mut self.gather, &mut self.linger, &mut self.silence] {
            *time = (*time).min(LONGEST);
        }
        let (own_rack, racks) = self.racks.labels(&self.hosts)?;
        let count = racks
            .iter()
            .chain([&own_rack])
            .collect::<HashSet<_>>()
            .len();
        let arity = self.arity.unwrap_or_else(|| self.planned_arity(content));
        let manifest = content.manifest(content.chunk_bytes(), arity, stop)?;
        if stop() {
            // Before any host is called.
            return Err(Error::Stopped);
        }
        let (header, zeros) = (manifest.header(), manifest.zeros().count());
        let invited = Arc::new(Invited::default());
        let transport = Transport::default().with(|it| it.rate.max = self.max_rate);
        let mut membership = Membership::new(random()?, transport)?;
        let addresses = || self.hosts.iter().flat_map(|it| &it.addresses).flatten();
        let mut interfaces = addresses().map(|it| interface_of(*it));
        membership.interface = interfaces.find(|it| *it != 0).unwrap_or(0);
        let mut worker = Worker::new()?;
        let trust = Arc::clone(&invited) as Arc<dyn Trust>;
        let mut listen = |ip: IpAddr| {
            let options = membership.options(Arc::clone(&trust));
            worker.listen(SocketAddr::new(ip, 0), options)
        };
        let endpoint = match addresses().any(SocketAddr::is_ipv6) {
            // A machine without IPv6 may know such addresses, too.
            true => listen(Ipv6Addr::UNSPECIFIED.into())
                .or_else(|_| listen(Ipv4Addr::UNSPECIFIED.into())),
            false => listen(Ipv4Addr::UNSPECIFIED.into()),
        }?;
        let address = worker.endpoint(endpoint).expect("it listens").local_addr();
        let started = Instant::now();
        let contact = Contact {
            id: membership.id(),
            address: address_bytes(address),
        };
        let options = Options {
            window: WINDOW,
            expected: u32::try_from(self.hosts.len()).unwrap_or(u32::MAX),
            gather: self.gather,
            slow: self.slow,
            ..with_silence(self.silence)
        };
        let profile = Profile {
            contact,
            rack: own_rack,
            rate: 0,
        };
        let node = Node::source(Duration::ZERO, profile, manifest, options);
        let key = membership.identity.public();
        let secret = membership.secret;
        let store = (content.store(), content.name());
        let drive = Drive::new(worker, endpoint, node, membership, store, started)?;
        let mut hosts = std::mem::take(&mut self.hosts);
        // By the same key a host that is called again knows its source. For this cast alone, where the user named none.
        let own = Arc::new(Identity::from_secret(random()?));
        for host in &mut hosts {
            let identity = &mut host.security.identity;
            identity.get_or_insert_with(|| Arc::clone(&own));
        }
        let calls = Calls::new(
            hosts.into_iter().zip(racks),
            content,
            invited,
            calls::Group {
                secret,
                key,
                port: address.port(),
            },
        );
        let mut leading = Leading {
            cast: self,
            drive,
            calls,
            finished: None,
            settled: None,
            started: None,
            had: HashMap::new(),
            predicted: None,
            chunks: header.chunks(),
            zeros,
            racks: count,
            arity,
        };
        let done = leading.run(content, stop, watch);
        if let Err(error) = &done {
            leading
                .calls
                .abort(&mut leading.drive.worker, &in_words(error));
        }
        let settled = leading.drive.settle(None);
        let done = done.and(settled);
        let outcome = leading.outcome(content, done.as_ref().err());
        Ok((outcome, done))
    }
}
