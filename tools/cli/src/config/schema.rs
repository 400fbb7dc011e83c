//! Defines the sections and keys of a configuration file, and checks their values.

use std::fmt;
use std::net::SocketAddr;

use zerolane::security::PublicKey;
use zerolane_files::limits::{DEFAULT_PORT, PATIENCE_SECONDS};

use crate::address::Listen;
use crate::{ports, rate};

/// A section of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    /// `[client]`: `cp`, `sync`, `ls` and their like.
    Client,
    /// `[host.NAME]`: as `[client]`, for the host with this name on the command line.
    Host(String),
    /// `[serve]`.
    Serve,
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Section::Client => f.write_str("client"),
            Section::Host(name) if is_bare(name) => write!(f, "host.{name}"),
            Section::Host(name) => write!(f, "host.{name:?}"),
            Section::Serve => f.write_str("serve"),
        }
    }
}

/// Whether TOML accepts the name without quotes.
fn is_bare(name: &str) -> bool {
    let bare = |it: u8| it.is_ascii_alphanumeric() || it == b'-' || it == b'_';
    !name.is_empty() && name.bytes().all(bare)
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Number(u64),
    Flag(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => write!(f, "{text:?}"),
            Value::Number(number) => write!(f, "{number}"),
            Value::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

/// A key of a section.
pub(super) struct Key {
    pub(super) name: &'static str,
    kind: Kind,
    /// The value without a setting.
    pub(super) default: Option<Default>,
}

type Default = fn() -> String;

enum Kind {
    Text(fn(&str) -> Result<(), String>),
    Number(std::ops::RangeInclusive<u64>),
    Flag,
}

const fn text(name: &'static str, check: fn(&str) -> Result<(), String>) -> Key {
    Key {
        name,
        kind: Kind::Text(check),
        default: None,
    }
}

impl Key {
    const fn or(mut self, default: Default) -> Key {
        self.default = Some(default);
        self
    }

    /// Checks a value; the error says what is expected.
    pub(super) fn check(&self, value: &Value) -> Result<(), String> {
        match (&self.kind, value) {
            (Kind::Text(check), Value::Text(text)) => check(text),
            (Kind::Number(range), Value::Number(number)) if range.contains(number) => Ok(()),
            (Kind::Flag, Value::Flag(_)) => Ok(()),
            (Kind::Text(_), _) => Err("a text in quotes is wanted".into()),
            (Kind::Number(range), _) => Err(format!(
                "a number from {} to {} is wanted",
                range.start(),
                range.end()
            )),
            (Kind::Flag, _) => Err("true or false is wanted".into()),
        }
    }
}

const TIMEOUT: Key = Key {
    name: "timeout",
    kind: Kind::Number(0..=u32::MAX as u64),
    default: Some(|| PATIENCE_SECONDS.to_string()),
};

const LIMIT: Key = text("limit", |it| rate::parse(it).map(drop));

const LANE: Key = Key {
    name: "lane",
    kind: Kind::Text(|it| one_of(it, &["udp", "auto", "shm", "ethernet", "ip118"])),
    default: Some(|| "\"auto\"".into()),
};

const BYPASS: Key = Key {
    name: "bypass",
    kind: Kind::Text(|it| one_of(it, &["auto", "always", "never"])),
    default: Some(|| "\"auto\"".into()),
};

/// Keys of `[client]`, which those of `[host.NAME]` include.
const CLIENT: [Key; 7] = [
    text("rsh", not_empty).or(|| "\"ssh\"".into()),
    text("remote-program", not_empty).or(|| "\"zerolane\"".into()),
    text("remote-listen", listens_at_login),
    TIMEOUT,
    LIMIT,
    LANE,
    BYPASS,
];

/// Additional keys of `[host.NAME]`.
const HOST: [Key; 4] = [
    text("name", not_empty),
    text("user", not_empty),
    Key {
        name: "port",
        kind: Kind::Number(1..=65535),
        default: None,
    },
    text("server-key", is_key),
];

const SERVE: [Key; 10] = [
    text("listen", listens).or(|| format!("{:?}", Listen::loopback(DEFAULT_PORT).to_string())),
    text("stdio-listen", listens_at_login),
    Key {
        name: "read-only",
        kind: Kind::Flag,
        default: Some(|| "false".into()),
    },
    text("allowed", not_empty),
    text("schedule", |it| {
        one_of(it, &["auto", "fair", "fast", "shortest"])
    })
    .or(|| "\"auto\"".into()),
    text("log", |it| one_of(it, &["text", "json"])).or(|| "\"text\"".into()),
    text("metrics", is_address),
    LIMIT,
    LANE,
    BYPASS,
];

impl Section {
    /// The keys that the section may have.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'static Key> + use<> {
        let (first, second): (&[Key], &[Key]) = match self {
            Section::Client => (&CLIENT, &[]),
            Section::Host(_) => (&HOST, &CLIENT),
            Section::Serve => (&SERVE, &[]),
        };
        first.iter().chain(second)
    }
}

fn not_empty(text: &str) -> Result<(), String> {
    match text.trim().is_empty() {
        true => Err("it is empty".into()),
        false => Ok(()),
    }
}

fn listens(text: &str) -> Result<(), String> {
    Listen::parse(text, DEFAULT_PORT).map(drop)
}

fn listens_at_login(text: &str) -> Result<(), String> {
    ports::check(text).map(drop)
}

fn is_key(text: &str) -> Result<(), String> {
    text.parse::<PublicKey>()
        .map(drop)
        .map_err(|why| why.to_string())
}

fn is_address(text: &str) -> Result<(), String> {
    let address = text.parse::<SocketAddr>();
    address
        .map(drop)
        .map_err(|_| "an address and a port are wanted".into())
}

fn one_of(text: &str, known: &[&str]) -> Result<(), String> {
    match known.contains(&text) {
        true => Ok(()),
        false => Err(format!("one of {} is wanted", known.join(", "))),
    }
}
