//! Counts what a server did, and formats the numbers as Prometheus text.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display, Write};

use zerolane::counters::{
    Account, DropReason, GateCounters, GateLimit, ListenerCounters, MoveCause,
};
use zerolane_files::{Queued, Spent, Verb};

/// Numbers by label. There are few labels.
type ByLabel = BTreeMap<String, u64>;

/// All counters. Transport counters cover closed connections only.
#[derive(Debug, Default)]
pub(super) struct Counts {
    requests: ByLabel,
    bytes: ByLabel,
    files: ByLabel,
    pub(super) files_failed: u64,
    refused: ByLabel,
    ended: ByLabel,
    spent: Spent,
    pub(super) queued: Queued,
    pub(super) gate: GateCounters,
    pub(super) listener: ListenerCounters,
    transport: Transport,
    moved: ByLabel,
    dropped: ByLabel,
}

#[derive(Debug, Default)]
struct Transport {
    sent: u64,
    resent: u64,
    received: u64,
    placed: u64,
    given: u64,
    datagrams_sent: u64,
    datagrams_received: u64,
    system_calls: u64,
    timeouts: u64,
}

fn add(numbers: &mut ByLabel, label: impl Into<String>, more: u64) {
    *numbers.entry(label.into()).or_default() += more;
}

/// The label of a variant, such as `opened-apart`.
fn label(variant: impl Debug) -> String {
    let mut label = String::new();
    for (at, letter) in format!("{variant:?}").char_indices() {
        if letter.is_uppercase() && at > 0 {
            label.push('-');
        }
        label.extend(letter.to_lowercase());
    }
    label
}

impl Counts {
    pub(super) fn asked(&mut self, verb: Verb) {
        add(&mut self.requests, verb.word(), 1);
    }

    pub(super) fn advanced(&mut self, verb: Verb, bytes: u64) {
        add(&mut self.bytes, verb.word(), bytes);
    }

    pub(super) fn files(&mut self, verb: Verb, files: u64) {
        add(&mut self.files, verb.word(), files);
    }

    pub(super) fn refused(&mut self, reason: &'static str, clients: u64) {
        add(&mut self.refused, reason, clients);
    }

    pub(super) fn ended(&mut self, how: &'static str) {
        add(&mut self.ended, how, 1);
    }

    /// Adds the time spent by a closed connection.
    pub(super) fn spent(&mut self, more: &Spent) {
        let all = &mut self.spent;
        all.request += more.request;
        all.turn += more.turn;
        all.network += more.network;
        all.files += more.files;
    }

    /// Adds the transport counters of a closed connection.
    pub(super) fn account(&mut self, account: &Account) {
        let total = &mut self.transport;
        total.sent += account.protocol.bytes_sent;
        total.resent += account.protocol.bytes_resent;
        total.received += account.protocol.bytes_received;
        total.placed += account.bytes_placed;
        total.given += account.bytes_given;
        total.datagrams_sent += account.datagrams_sent;
        total.datagrams_received += account.datagrams_received;
        total.system_calls += account.tx_data_syscalls
            + account.tx_control_syscalls
            + account.rx_data_syscalls
            + account.rx_control_syscalls
            + account.rx_empty_polls;
        total.timeouts += account.protocol.timeouts;
        for cause in MoveCause::ALL {
            add(&mut self.moved, label(cause), account.moved(cause));
        }
        for reason in DropReason::ALL {
            add(
                &mut self.dropped,
                label(reason),
                account.protocol.dropped(reason),
            );
        }
        add(
            &mut self.dropped,
            "socket-buffer",
            account.dropped_socket_buffer,
        );
        add(&mut self.dropped, "truncated", account.dropped_truncated);
        add(&mut self.dropped, "on-send", account.dropped_on_send);
    }

    /// Formats all counters; `connections` is the number of open connections that made a request.
    pub(super) fn text(&self, connections: usize) -> String {
        let mut text = Text(String::new());
        text.metric("connections", "gauge", "Connections being served.");
        text.number("connections", connections);
        let queued = "Bytes read from files and not yet confirmed by clients, and arrived and not yet taken to be written.";
        text.metric("queue_bytes", "gauge", queued);
        text.number("queue_bytes{queue=\"network\"}", self.queued.network);
        text.number("queue_bytes{queue=\"files\"}", self.queued.files);
        text.counters("requests", "Requests of clients.", "verb", &self.requests);
        text.counters(
            "connections_ended",
            "Connections that asked for something, by how they ended.",
            "how",
            &self.ended,
        );
        text.metric(
            "connection_seconds_total",
            "counter",
            "Time of connections that are over: until they asked, until the one before them had ended, \
             waiting for the network or the client, and at work on files.",
        );
        let Spent {
            request,
            turn,
            network,
            files,
        } = self.spent;
        for (state, time) in [
            ("request", request),
            ("turn", turn),
            ("network", network),
            ("files", files),
        ] {
            let seconds = format!("{:.9}", time.as_secs_f64());
            text.number(
                &format!("connection_seconds_total{{state=\"{state}\"}}"),
                seconds,
            );
        }
        text.counters(
            "refused",
            "Clients and requests refused.",
            "reason",
            &self.refused,
        );
        text.counters(
            "file_bytes",
            "Bytes of files read or written, those that were there already included.",
            "verb",
            &self.bytes,
        );
        text.counters("files", "Files read or written.", "verb", &self.files);
        text.counter(
            "files_failed",
            "Files that were not copied.",
            self.files_failed,
        );
        self.unauthenticated(&mut text);
        self.transport(&mut text);
        text.0
    }

    fn unauthenticated(&self, text: &mut Text) {
        let gate = &self.gate;
        text.counter(
            "handshakes",
            "Key exchanges begun, repetitions included.",
            gate.hellos,
        );
        text.counter(
            "handshakes_completed",
            "Key exchanges completed, those of keys that are not let in included.",
            gate.admitted,
        );
        text.counter(
            "handshakes_retried",
            "Unauthenticated peers told to return with a cookie.",
            gate.retried,
        );
        let listener = &self.listener;
        let limited: u64 = GateLimit::ALL.iter().map(|&it| gate.limited(it)).sum();
        let turned_away = [
            ("malformed", gate.malformed),
            ("refused-with-a-reason", gate.refused),
            ("too-many-at-once", limited),
            (
                "no-connection-free",
                listener.full + listener.full_of_origin,
            ),
            ("no-descriptor-or-memory", listener.exhausted),
            ("unread", listener.unread),
        ];
        text.counters(
            "strangers_turned_away",
            "Datagrams of unauthenticated peers that led to no connection.",
            "reason",
            &turned_away
                .map(|(reason, count)| (reason.to_owned(), count))
                .into(),
        );
    }

    fn transport(&self, text: &mut Text) {
        let it = &self.transport;
        for (name, help, value) in [
            (
                "payload_sent_bytes",
                "Payload sent, repairs included. This and what follows is of connections that are over.",
                it.sent,
            ),
            ("payload_resent_bytes", "Payload sent again.", it.resent),
            (
                "payload_received_bytes",
                "Payload received for the first time.",
                it.received,
            ),
            (
                "payload_placed_bytes",
                "Payload that came to its place without a copy in user space.",
                it.placed,
            ),
            (
                "payload_given_bytes",
                "Payload that the kernel sent without a copy of its own.",
                it.given,
            ),
            ("datagrams_sent", "Datagrams sent.", it.datagrams_sent),
            (
                "datagrams_received",
                "Datagrams received.",
                it.datagrams_received,
            ),
            (
                "socket_calls",
                "System calls that sent or received.",
                it.system_calls,
            ),
            (
                "timeouts",
                "Times a wait for payload or for an answer ran out.",
                it.timeouts,
            ),
        ] {
            text.counter(name, help, value);
        }
        text.counters(
            "payload_moved_bytes",
            "Payload copied in user space.",
            "cause",
            &self.moved,
        );
        text.counters(
            "datagrams_dropped",
            "Datagrams or operations dropped.",
            "reason",
            &self.dropped,
        );
    }
}

/// Lines of the text format. Labels are constants of this program; clients cannot influence them.
struct Text(String);

impl Text {
    fn line(&mut self, line: impl Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{line}");
    }

    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP zerolane_{name} {help}"));
        self.line(format_args!("# TYPE zerolane_{name} {kind}"));
    }

    fn number(&mut self, name: &str, value: impl Display) {
        self.line(format_args!("zerolane_{name} {value}"));
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        let name = format!("{name}_total");
        self.metric(&name, "counter", help);
        self.number(&name, value);
    }

    fn counters(&mut self, name: &str, help: &str, label: &str, values: &ByLabel) {
        let name = format!("{name}_total");
        self.metric(&name, "counter", help);
        for (which, value) in values {
            self.number(&format!("{name}{{{label}=\"{which}\"}}"), value);
        }
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn label__of_a_variant() {
        assert_eq!(label(MoveCause::OpenedApart), "opened-apart");
        assert_eq!(label(DropReason::Forged), "forged");
    }
}
