//! Says on the standard error why the provider is not offered, at the levels of `FI_LOG_LEVEL`.
//!
//! libfabric's own log is a symbol of a library that may be loaded locally, so the provider does without.

use std::fmt::Arguments;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Warn,
    Info,
}

/// Whether the user asked for messages of `level`.
fn wants(level: Level) -> bool {
    let asked = std::env::var("FI_LOG_LEVEL").unwrap_or_default();
    match asked.to_ascii_lowercase().as_str() {
        "warn" | "trace" => level == Level::Warn,
        "info" | "debug" => true,
        _ => false,
    }
}

pub(crate) fn say(level: Level, what: Arguments<'_>) {
    if wants(level) {
        let name = match level {
            Level::Warn => "warn",
            Level::Info => "info",
        };
        eprintln!("libfabric:{}:zerolane:<{name}> {what}", std::process::id());
    }
}

/// Also without `FI_LOG_LEVEL`, if the user named this provider: then nothing else says why there is none.
pub(crate) fn refuse(what: Arguments<'_>) {
    let named = std::env::var("FI_PROVIDER").unwrap_or_default();
    match named.split([',', ';']).any(|it| it == "zerolane") {
        true => eprintln!("zerolane: {what}"),
        false => say(Level::Warn, what),
    }
}
