//! Implements `zerolane show`, which prints interfaces as `wg show` does, and `zerolane down`.

use std::io;

use anyhow::{Context, Result, anyhow};
use bytesize::ByteSize;
use zerolane_tunnel::status::{PeerStatus, Status};

use super::control::{self, Question};
use super::{DownArgs, ShowArgs, file_and_name};
use crate::console;

/// Ends a tunnel, and waits until its interface is gone.
pub(crate) fn down(args: DownArgs) -> Result<()> {
    let (_, name) = file_and_name(&args.config)?;
    ask(&name, Question::Down).map(drop)
}

/// Prints the tunnels of this network namespace.
pub(crate) fn show(args: ShowArgs) -> Result<()> {
    let names = match &args.config {
        Some(config) => vec![file_and_name(config)?.1],
        None => control::names()?,
    };
    // One that does not answer hides no other.
    let failed: Vec<String> = names
        .iter()
        .filter_map(|name| show_one(name, args.json).err())
        .map(|error| format!("{error:#}"))
        .collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(anyhow!(failed.join("\n"))),
    }
}

fn show_one(name: &str, json: bool) -> Result<()> {
    let answer = ask(name, Question::Show)?;
    if json {
        return console::say(answer.trim_end());
    }
    let status: Status = serde_json::from_str(&answer)
        .with_context(|| format!("{name} runs another version of zerolane"))?;
    console::say(text(&status))
}

fn ask(name: &str, question: Question) -> Result<String> {
    control::ask(name, question).map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            anyhow!("{name} is not up: zerolane up {name}")
        }
        io::ErrorKind::PermissionDenied => {
            anyhow!("{name} belongs to another user: ask as that user or as root")
        }
        _ => anyhow!("{name}: {error}"),
    })
}

fn text(it: &Status) -> String {
    let port = it.port.map_or("none".to_owned(), |port| port.to_string());
    let mut lines = vec![
        format!("interface: {}", it.interface),
        format!("  public key: {}", it.public_key),
        format!("  listening port: {port}"),
        format!("  offload: {}", it.offload),
    ];
    if let Some(callers) = &it.callers {
        lines.push(format!(
            "  handshakes: {} begun, {} sent a cookie, {} completed; {} datagrams refused, {} unread",
            callers.begun, callers.cookies, callers.completed, callers.refused, callers.unread
        ));
    }
    for peer in &it.peers {
        lines.push(String::new());
        lines.extend(of_peer(peer));
    }
    lines.join("\n")
}

fn of_peer(it: &PeerStatus) -> Vec<String> {
    let counters = &it.counters;
    let size = |bytes: u64| ByteSize::b(bytes).display().iec();
    let dropped = counters.dropped_full + counters.dropped_codel;
    let refused = counters.dropped_source + counters.dropped_malformed;
    let mut lines = vec![format!("peer: {}", it.public_key)];
    if let Some(endpoint) = &it.endpoint {
        lines.push(format!("  endpoint: {endpoint}"));
    }
    lines.push(format!("  allowed ips: {}", it.allowed.join(", ")));
    match it.connected_s {
        Some(seconds) => lines.push(format!("  connected: {seconds} s ago")),
        None => lines.push("  not connected".to_owned()),
    }
    if let Some(cipher) = &it.cipher {
        lines.push(format!("  cipher: {cipher}"));
    }
    if let Some(rtt) = it.rtt_us {
        let rtt = rtt as f64 / 1000.0;
        let lost = it.lost_ppm as f64 / 10_000.0;
        lines.push(format!("  round trip: {rtt:.2} ms, {lost:.2} % lost"));
    }
    lines.push(format!(
        "  transfer: {} received, {} sent",
        size(counters.received_bytes),
        size(counters.sent_bytes)
    ));
    if dropped + refused > 0 {
        lines.push(format!("  dropped: {dropped} to it, {refused} of it"));
    }
    lines
}
