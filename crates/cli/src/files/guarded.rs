//! A client of the file service that checks the identity of the server.

use anyhow::Result;
use zerolane::Options;
use zerolane_files::{Client, Error, Host};

use super::with_exit_code;
use crate::security::{Caution, ClientArgs};

/// A client of one host, and its trust in that host.
pub(crate) struct Guarded {
    pub(crate) client: Client,
    caution: Caution,
}

impl Guarded {
    /// A client with the trust that `args` ask for.
    pub(crate) fn new(host: Host, args: ClientArgs) -> Result<Guarded> {
        let profiles = args.profile.into();
        let (caution, security) = Caution::new(host.to_string(), args)?;
        let transport = Options {
            security,
            profiles,
            ..Options::default()
        };
        let client = Client::new(host).with_transport(transport);
        Ok(Guarded { client, caution })
    }

    /// Says which server it met, before anything else is said, and adds to an error what the user can do.
    pub(crate) fn explain<T>(&self, outcome: Result<T, Error>) -> Result<T> {
        self.caution.introduce();
        outcome.map_err(|error| {
            let advise = self.caution.advise(match &error {
                Error::Connect { source, .. } => Some(source),
                _ => None,
            });
            advise(with_exit_code(error))
        })
    }
}
