//! Reads the environment variables of the provider. A launcher passes them to all ranks of a job.

use std::time::Duration;
use zerolane::options::LaneChoice;
use zerolane::security::PreShared;
use zerolane::{Options, Security};

const SECURITY: &str = "FI_ZEROLANE_SECURITY";
const KEY: &str = "FI_ZEROLANE_KEY";
const LANE: &str = "FI_ZEROLANE_LANE";
const INTERFACE: &str = "FI_ZEROLANE_IFACE";
const TIMEOUT: &str = "FI_ZEROLANE_CONNECT_TIMEOUT";

/// Seconds to wait for the answer to a request for a connection, unless set. A rank answers when its program calls MPI,
/// which may be much later than the request.
const CONNECT: u64 = 120;
/// Messages up to this length leave without a grant: those that ofi_rxm sends at once have 16 KiB and its header.
const EAGER: u32 = 20 << 10;
/// Ranks of one host, or of one job: more than any machine runs.
const CONNECTIONS: usize = 65_536;

#[derive(Clone, Debug)]
pub(crate) struct Settings {
    security: Security,
    lane: LaneChoice,
    connect: Duration,
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
        let security = match variable(SECURITY).as_deref() {
            None | Some("sealed") => {
                let key = variable(KEY).ok_or_else(|| {
                    format!(
                        "no key for the job: set {KEY} to the same 64 hex digits for all ranks \
                         (openssl rand -hex 32), or {SECURITY}=plain for a network that you trust"
                    )
                })?;
                let key = digits(&key)
                    .ok_or_else(|| format!("{KEY} is not a key: it has 64 hex digits"))?;
                Security {
                    pre_shared: Some(PreShared::from(key)),
                    ..Security::default()
                }
            }
            Some("plain") => Security::plain(),
            Some(other) => {
                return Err(format!("{SECURITY} is {other:?}: use sealed or plain"));
            }
        };
        let lane = match variable(LANE).as_deref() {
            None | Some("best") => LaneChoice::Best,
            Some("udp") => LaneChoice::Udp,
            Some(other) => return Err(format!("{LANE} is {other:?}: use best or udp")),
        };
        let seconds = match variable(TIMEOUT) {
            None => CONNECT,
            Some(text) => text.parse().ok().filter(|it| *it > 0).ok_or_else(|| {
                format!("{TIMEOUT} is {text:?}: it is a number of seconds, not 0")
            })?,
        };
        Ok(Settings {
            security,
            lane,
            connect: Duration::from_secs(seconds),
            interface: variable(INTERFACE),
        })
    }

    /// The options of connections and listeners.
    pub(crate) fn options(&self) -> Options {
        Options::default().with(|it| {
            it.security = self.security.clone();
            it.lane.choice = self.lane;
            it.times.connect = self.connect;
            it.flow.eager_limit = EAGER;
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
