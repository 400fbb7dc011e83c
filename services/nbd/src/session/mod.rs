//! Implements the NBD protocol for one client, without IO: bytes in, requests and bytes out. It keeps no payload.
//!
//! | module | what it knows |
//! |---|---|
//! | `export` | what a client sees of the disk |
//! | `options` | negotiation: options, and answers to them |
//! | `requests` | requests, and what is wrong with them |
//! | `replies` | answers to requests |
//! | `errno` | errors |
//! | `bytes` | numbers in bytes |

mod bytes;
mod errno;
mod export;
mod options;
mod replies;
mod requests;

pub use errno::Errno;
pub use export::Export;
pub use requests::{Kind, Request};

use options::{Negotiated, Negotiation};
use requests::HEADER;

/// A protocol violation, which ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Offence {
    /// Bytes that begin neither an option nor a request.
    #[error("bytes that are not NBD")]
    Magic,
    /// Flags that this server did not offer.
    #[error("flags that were not offered")]
    Flags,
    /// An export by a name that there is not, by a client that knows no other answer.
    #[error("an export that does not exist")]
    Export,
    /// More data in an option than any has.
    #[error("an option of {0} bytes")]
    OptionLength(u32),
    /// Options without end.
    #[error("too many options")]
    Options,
    /// More payload than a request may have.
    #[error("a payload of {0} bytes")]
    Payload(u32),
    /// No negotiation in time.
    #[error("no negotiation in time")]
    Late,
}

/// An event at a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It asked for something. [`Request::payload`] bytes follow, which are not the session's.
    Request(Request),
    /// It is about to go. What it asked for before is answered.
    Leaving,
}

/// The negotiated terms on which requests depend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Whether replies are structured.
    pub structured: bool,
    /// Whether the client may ask for `base:allocation`.
    pub allocation: bool,
}

enum State {
    Negotiating(Negotiation),
    Serving(Terms),
    /// The client has said that it goes. Its requests are answered.
    Over(Terms),
}

/// A client's connection.
pub struct Session {
    export: Export,
    state: State,
}

impl Session {
    /// Starts a session, and writes the greeting to `out`.
    pub fn new(export: Export, out: &mut Vec<u8>) -> Session {
        Negotiation::greet(out);
        Session {
            export,
            state: State::Negotiating(Negotiation::default()),
        }
    }

    /// Handles complete messages in `input`, up to an event, and appends replies to `out`. Returns the number of bytes
    /// used. Without an event, it needs more bytes.
    ///
    /// # Errors
    /// A protocol violation. The replies in `out` may still be sent.
    pub fn take(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<Event>), Offence> {
        let mut taken = 0;
        loop {
            let rest = &input[taken..];
            match &mut self.state {
                State::Negotiating(negotiation) => {
                    let step = negotiation.take(rest, &self.export, out)?;
                    let Some((bytes, outcome)) = step else {
                        return Ok((taken, None));
                    };
                    taken += bytes;
                    match outcome {
                        None => {}
                        Some(Negotiated::Serve(terms)) => self.state = State::Serving(terms),
                        Some(Negotiated::Leave) => {
                            self.state = State::Over(Terms::default());
                            return Ok((taken, Some(Event::Leaving)));
                        }
                    }
                }
                State::Serving(terms) => {
                    let Some(header) = rest.first_chunk::<HEADER>() else {
                        return Ok((taken, None));
                    };
                    let terms = *terms;
                    let request = Request::parse(header, &self.export, terms)?;
                    taken += HEADER;
                    let event = match request {
                        Some(request) => Event::Request(request),
                        None => {
                            self.state = State::Over(terms);
                            Event::Leaving
                        }
                    };
                    return Ok((taken, Some(event)));
                }
                // Everything that it sends from now on is ignored.
                State::Over(_) => return Ok((input.len(), None)),
            }
        }
    }

    /// Whether the negotiation is over.
    pub fn is_serving(&self) -> bool {
        !matches!(self.state, State::Negotiating(_))
    }

    fn terms(&self) -> Terms {
        match self.state {
            State::Serving(terms) | State::Over(terms) => terms,
            State::Negotiating(_) => Terms::default(),
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
