//! Decides who may cast to a waiting host, and which key the host uses.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use zerolane::Security;
use zerolane::keys::Access;
use zerolane::security::{Code, Identity, PublicKey, Trust};

use crate::console;
use crate::security::{self, Admission};

/// Options of a host that waits for a cast.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Security")]
pub(super) struct AdmissionArgs {
    /// File with this end's key [default: identity beside the user's other keys, made if missing]
    #[arg(long, value_name = "FILE", conflicts_with = "code")]
    identity: Option<PathBuf>,
    /// Use a new key for this cast only, and do not store it
    #[arg(long, conflicts_with_all = ["identity", "code"])]
    ephemeral_identity: bool,
    /// Let the holder of this key cast; may be repeated. At the source, `zerolane id` prints its key
    #[arg(long, value_name = "KEY", conflicts_with_all = ["allowed", "anyone", "code"])]
    allow_key: Vec<PublicKey>,
    /// Keys that may cast [default: allowed_keys beside the user's other keys]. This end's own key always may
    #[arg(long, value_name = "FILE", conflicts_with_all = ["anyone", "code"])]
    allowed: Option<PathBuf>,
    /// Let anyone cast
    #[arg(long, conflicts_with = "code")]
    anyone: bool,
    /// Let in one source that has this one-time code, instead of keys. Without CODE, make a code and print it. All
    /// hosts of a cast need the same code
    #[arg(long, value_name = "CODE", num_args = 0..=1)]
    code: Option<Option<Code>>,
}

impl AdmissionArgs {
    /// The security of this host, and the line that tells the user who may cast.
    pub(super) fn admission(self) -> Result<(Security, String)> {
        if let Some(code) = self.code {
            let code = match code {
                Some(code) => code,
                None => Code::from_random(
                    zerolane::security::random().context("no random numbers for a code")?,
                ),
            };
            let words = format!("Who may cast: one source, once, with --code {code}.");
            return Ok((Admission::by_code(code).security, words));
        }
        let identity = match self.ephemeral_identity {
            true => {
                let secret = zerolane::security::random().context("no random numbers for a key")?;
                Some(Arc::new(Identity::from_secret(secret)))
            }
            false => security::own(self.identity)?,
        };
        let own = identity.as_ref().map(|identity| identity.public());
        let (trust, words): (Arc<dyn Trust>, String) = if !self.allow_key.is_empty() {
            let others = console::counted(self.allow_key.len(), "other");
            let keys: HashSet<PublicKey> = self.allow_key.into_iter().chain(own).collect();
            (
                Arc::new(keys),
                format!("Who may cast: its own key and {others}."),
            )
        } else if self.anyone {
            (
                Arc::new(zerolane::security::Anyone),
                "WARNING: any source that reaches this address can cast.".into(),
            )
        } else {
            match security::listed(self.allowed, own)? {
                (Access::Listed(list), words) => (list, words),
                (Access::Anyone, words) => (Arc::new(zerolane::security::Anyone), words),
            }
        };
        let security = Security {
            identity,
            trust,
            ..Security::default()
        };
        Ok((security, words))
    }
}
