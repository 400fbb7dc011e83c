//! Reads the environment variables of the provider. A launcher passes them to all ranks of a job.

use std::time::Duration;
use zerolane::options::LaneChoice;
use zerolane::security::PreShared;
use zerolane::{Options, Security};

const SECURITY: &str = "FI_ZEROLANE_SECURITY";
const KEY: &str = "FI_ZEROLANE_KEY";
const LANE: &str = "FI_ZEROLANE_LANE";
const INTERFACE: &str = "FI_ZEROLANE_IFACE";

/// A rank answers a request for a connection when its program calls MPI, which may be much later than the request.
const CONNECT: Duration = Duration::from_secs(120);
/// Ranks of one host, or of one job: more than any machine runs.
const CONNECTIONS: usize = 65_536;

/// Bytes of a digest that tells jobs apart.
pub(crate) const TAG: usize = 7;

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    security: Security,
    lane: LaneChoice,
    /// Identifies the key of the job, also where nothing is encrypted: in shared memory.
    pub(crate) tag: [u8; TAG],
    /// The only interface to offer.
    pub(crate) interface: Option<String>,
}

impl Settings {
    /// # Errors
    /// What is wrong, and what to do.
    pub(crate) fn from_environment() -> Result<Settings, String> {
        Settings::from(|name| std::env::var(name).ok().filter(|it| !it.is_empty()))
    }

    fn from(variable: impl Fn(&str) -> Option<String>) -> Result<Settings, String> {
        let (security, tag) = match variable(SECURITY).as_deref() {
            None | Some("sealed") => {
                let key = variable(KEY).ok_or_else(|| {
                    format!(
                        "no key for the job: set {KEY} to the same 64 hex digits for all ranks \
                         (openssl rand -hex 32), or {SECURITY}=plain for a network that you trust"
                    )
                })?;
                let key = digits(&key)
                    .ok_or_else(|| format!("{KEY} is not a key: it has 64 hex digits"))?;
                let digest = blake3::derive_key("zerolane libfabric job tag v1", &key);
                let mut tag = [0; TAG];
                tag.copy_from_slice(&digest[..TAG]);
                let security = Security {
                    pre_shared: Some(PreShared::from(key)),
                    ..Security::default()
                };
                (security, tag)
            }
            Some("plain") => (Security::plain(), [0; TAG]),
            Some(other) => {
                return Err(format!("{SECURITY} is {other:?}: use sealed or plain"));
            }
        };
        let lane = match variable(LANE).as_deref() {
            None | Some("best") => LaneChoice::Best,
            Some("udp") => LaneChoice::Udp,
            Some(other) => return Err(format!("{LANE} is {other:?}: use best or udp")),
        };
        Ok(Settings {
            security,
            lane,
            tag,
            interface: variable(INTERFACE),
        })
    }

    /// The options of connections and listeners.
    pub(crate) fn options(&self) -> Options {
        Options::default().with(|it| {
            it.security = self.security.clone();
            it.lane.choice = self.lane;
            it.times.connect = CONNECT;
            it.listen.asks = true;
            it.listen.max_connections = CONNECTIONS;
            it.listen.max_connections_of_origin = CONNECTIONS;
        })
    }
}

/// 32 bytes from 64 hex digits.
fn digits(text: &str) -> Option<[u8; 32]> {
    let text = text.trim().as_bytes();
    let mut key = [0; 32];
    if text.len() != 2 * key.len() {
        return None;
    }
    for (byte, pair) in key.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = [pair[0], pair[1]].map(|it| char::from(it).to_digit(16));
        *byte = (high? * 16 + low?) as u8;
    }
    Some(key)
}
