//! Copies from standard input to a file on the server, and from such a file to standard output.

use super::{Client, close};
use crate::digest::Digester;
use crate::error::{Cause, Error, Refusal};
use crate::message::{CopyOptions, Landing, Meta, Request, Totals};
use crate::observe::Observer;
use crate::persist::heals;
use crate::position::Position;
use crate::pump::{self, CONTROL, DATA};
use crate::reached::Reached;
use crate::receive::StreamReceiver;
use crate::send::{FileSender, Source};
use crate::share::Share;
use rustix::fd::AsFd;

impl Client {
    /// Copies `input`, up to its end, to the file `destination` of the host. The file gets its name only when
    /// everything has arrived. A killed writer of a pipe looks the same as one that has finished.
    ///
    /// # Errors
    /// As for [`Client::put`]. [`Error::InputGone`] when the connection breaks: the data already read is lost, and
    /// cannot be read again.
    pub fn put_stream(
        &self,
        input: impl AsFd,
        destination: &[u8],
        options: &CopyOptions,
        observer: &dyn Observer,
    ) -> Result<Totals, Error> {
        let source = Source::Input(input.as_fd());
        let meta = source.meta().unwrap_or_default();
        let meta = Meta {
            mode: self.modes.applied(meta.mode, false),
            ..meta
        };
        let offer = Digester::offer()?;
        let request = Request::Put {
            destination: destination.to_vec(),
            sources: 1,
            contents: false,
            landing: Landing::AsCp,
            share: Share::Whole,
            options: CopyOptions {
                resume: false,
                count_first: false,
                ..*options
            },
            digester: offer.clone(),
        };
        let connection = self.connect_once()?;
        let (mut connection, accepted) = self.request(&request, connection)?;
        if accepted.landing == Landing::Into {
            close(connection);
            return Err(Error::Refused(Refusal::Path {
                path: destination.to_vec(),
                cause: Cause::IsADirectory,
            }));
        }
        let digester = offer.settle(accepted.algorithm)?;
        let mut reached = Reached::default();
        let copied = pump::run(&mut connection, DATA, CONTROL, &self.stop, |port| {
            let sender = FileSender::new(port, observer, *options, digester, &mut reached);
            sender.send_stream(NAME, meta, &source, Position::default())
        });
        self.end(connection, &copied);
        copied.map_err(|error| match heals(&error) {
            true => Error::InputGone(Box::new(error)),
            false => error,
        })
    }

    /// Copies one file of the host to `out`, such as standard output: part by part, each as soon as it was received and
    /// verified. After a failure, `out` has the beginning of the file. The only option that applies is
    /// [`CopyOptions::allow_changing`].
    ///
    /// # Errors
    /// As for [`Client::get`], and [`Error::Output`].
    pub fn get_stream(
        &self,
        source: &[u8],
        out: impl AsFd,
        options: &CopyOptions,
        observer: &dyn Observer,
    ) -> Result<Totals, Error> {
        let out = out.as_fd();
        let offer = Digester::offer()?;
        self.copying(observer).run(|copying| {
            let request = Request::Read {
                source: source.to_vec(),
                digester: offer.clone(),
                from: copying.reached.position,
                allow_changing: options.allow_changing,
            };
            let (mut connection, accepted) = self.ask(&request, copying, options)?;
            let digester = offer.settle(accepted.algorithm)?;
            let reached = &mut copying.reached;
            let copied = pump::run(&mut connection, CONTROL, DATA, &self.stop, |port| {
                let receiver = StreamReceiver {
                    port,
                    observer,
                    digester,
                    out,
                    reached,
                    path: source,
                };
                receiver.receive()
            });
            self.end(connection, &copied);
            copied
        })
    }
}

/// The name in the protocol; the file gets the requested name.
const NAME: &[u8] = b"-";
