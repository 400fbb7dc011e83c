//! Finds the sender, and receives what it offers.

use super::discovery::Search;
use super::links::links;
use super::places::Places;
use super::{Offer, PATIENCE, TransferCode, draw, trusting};
use crate::client::Client;
use crate::error::Error;
use crate::limits::{QUESTION_MILLISECONDS, SEARCH_SECONDS, SENDER_ANSWER_MILLISECONDS};
use crate::location::Host;
use crate::message::{CopyOptions, Reply, Request, Totals};
use crate::modes::Modes;
use crate::observe::Observer;
use crate::opening::{hear, say};
use crate::receive::Offered;
use crate::stop::Stop;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerolane::failure::{CloseReason, Reason};
use zerolane::security::Identity;
use zerolane::{Options, Security};

/// Where to look for a sender.
#[derive(Clone, Debug)]
pub enum SearchScope {
    /// On the networks of the interfaces with these names; of all that are up, if none is named.
    Interfaces(Vec<String>),
    /// At this host.
    Host(Host),
}

/// A sender that was found, and its offer.
#[derive(Debug)]
pub struct FoundSender {
    pub(super) offer: Offer,
    pub(super) client: Client,
}

impl FoundSender {
    /// Finds the sender with this code.
    ///
    /// # Errors
    /// [`Error::NoSender`]: there is no answer. [`Error::Connect`]: the peer that answered does not know the code, or
    /// disconnected.
    pub fn find(
        code: &TransferCode,
        scope: &SearchScope,
        transport: &Options,
        stop: &Stop,
    ) -> Result<FoundSender, Error> {
        let mut transport = transport.clone();
        transport.security = Security {
            identity: Some(Arc::new(Identity::from_secret(draw()?))),
            ..Security::default()
        };
        let interfaces = match scope {
            SearchScope::Host(host) => return greet(host, code, &transport, stop),
            SearchScope::Interfaces(interfaces) => interfaces,
        };
        let none = |why: io::Error| Error::NoSender(Some(why));
        let [nonce, _]: [[u8; 16]; 2] = halves(draw()?);
        let search = links(interfaces).and_then(|it| Search::new(&it, code.channel(), nonce));
        let search = search.map_err(none)?;
        let quick = transport
            .with(|it| it.times.connect = Duration::from_millis(SENDER_ANSWER_MILLISECONDS));
        let mut places = Places::default();
        let until = Instant::now() + Duration::from_secs(SEARCH_SECONDS);
        let mut asked: Option<Instant> = None;
        let mut why = Error::NoSender(None);
        while Instant::now() < until {
            stop.check()?;
            let due = Duration::from_millis(QUESTION_MILLISECONDS);
            if asked.is_none_or(|at| at.elapsed() >= due) {
                search.ask().map_err(none)?;
                asked = Some(Instant::now());
            }
            search.hear(|place| places.add(place));
            // One place at a time; answers are read in between.
            let Some(place) = places.next() else {
                continue;
            };
            let host = Host::from(place);
            match greet(&host, code, &quick, stop) {
                Err(Error::Stopped) => return Err(Error::Stopped),
                // Another place may be the right one. A wrong code is a better error than no answer.
                Err(error) if !is_denied(&why) => why = error,
                Err(_) => {}
                found => return found,
            }
            if places.is_full() && places.are_tried() {
                break;
            }
        }
        Err(why)
    }

    /// The offer.
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Changes the permissions of received files by `modes`.
    pub fn with_modes(mut self, modes: Modes) -> FoundSender {
        self.client = self.client.with_modes(modes);
        self
    }

    /// Receives everything into a directory, which is made if necessary. A name that exists is refused, unless
    /// `overwrite`; so is a name that was not offered. When the connection breaks, the copy continues over a new one,
    /// for up to `patience` without progress.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub fn receive(
        &self,
        directory: &Path,
        options: &CopyOptions,
        overwrite: bool,
        patience: Duration,
        observer: &dyn Observer,
    ) -> Result<Totals, Error> {
        let client = self.client.clone().with_patience(patience);
        let offered = Offered::new(self.offer.names(), self.offer.more, overwrite);
        client.get_offered(directory, options, offered, observer)
    }

    /// Declines the offer.
    ///
    /// # Errors
    /// The sender disconnected.
    pub fn decline(&self) -> Result<(), Error> {
        self.client.decline()
    }
}

/// Proves the code to the peer at `host`, and gets its offer.
fn greet(
    host: &Host,
    code: &TransferCode,
    transport: &Options,
    stop: &Stop,
) -> Result<FoundSender, Error> {
    let mut by_code = transport.clone();
    by_code.security.pre_shared = Some(code.secret().clone().into());
    let client = Client::new(host.clone()).with_stop(stop.clone());
    let mut connection = client.clone().with_transport(by_code).connect_once()?;
    say(&mut connection, &Request::AskOffer, stop, PATIENCE)?;
    let offer = match hear(&mut connection, stop, PATIENCE)? {
        Reply::Offer {
            files,
            bytes,
            entries,
            more,
        } => Offer {
            files,
            bytes,
            entries,
            more,
        },
        _ => return Err(Error::Protocol("offers nothing")),
    };
    if !offer.says_what_it_can() {
        return Err(Error::Protocol("offers more than it says"));
    }
    let key = connection.peer_key().ok_or(Error::Internal)?;
    let _ = connection.close();
    let usual = transport
        .clone()
        .with(|it| it.times.connect = Options::default().times.connect);
    Ok(FoundSender {
        offer,
        client: client.with_transport(trusting(usual, key)),
    })
}

fn halves(bytes: [u8; 32]) -> [[u8; 16]; 2] {
    let (halves, _) = bytes.as_chunks();
    [halves[0], halves[1]]
}

fn is_denied(error: &Error) -> bool {
    let Error::Connect {
        source: zerolane::Error::Closed(CloseReason::ExchangeRefused(reason)),
        ..
    } = error
    else {
        return false;
    };
    *reason == Reason::Denied
}
