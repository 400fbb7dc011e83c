//! Counts what a server did, in metrics for Prometheus.

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::encoding::prometheus_text::encode;
use prometheus_client::metrics::{counter::Counter, family::Family, gauge::Gauge};
use prometheus_client::registry::Registry;
use zerolane::counters::{
    Account, DropReason, GateCounters, GateLimit, ListenerCounters, MoveCause,
};
use zerolane_files::{Queued, Spent, Verb};

/// A label's name and value. Both are constants of this program; clients cannot influence them.
type Label = [(&'static str, Cow<'static, str>); 1];
type ByLabel = Family<Label, Counter>;

/// The metric of a family with this value of its label.
fn of<M: Default>(
    family: &Family<Label, M>,
    label: &'static str,
    value: impl Into<Cow<'static, str>>,
) -> impl Deref<Target = M> {
    family.get_or_create(&[(label, value.into())])
}

/// The value of a label for a variant, such as `opened-out-of-place`.
fn words(variant: impl Debug) -> String {
    let mut words = String::new();
    for (at, letter) in format!("{variant:?}").char_indices() {
        if letter.is_uppercase() && at > 0 {
            words.push('-');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

/// Sets a counter that something else counts.
fn set(counter: &Counter, value: u64) {
    counter.inner().store(value, Ordering::Relaxed);
}

/// Declares the metrics in the order in which they are published: the name of each without its suffix `_total`, what it
/// is, and its help without the full stop.
macro_rules! metrics {
    ($($name:ident: $kind:ty = $help:expr;)*) => {
        /// All metrics. Those of the transport cover closed connections only.
        #[derive(Debug)]
        pub(super) struct Counts {
            registry: Registry,
            $($name: $kind,)*
        }

        impl Counts {
            fn register() -> Counts {
                let mut registry = Registry::with_prefix("zerolane");
                $(
                    let $name = <$kind>::default();
                    registry.register(stringify!($name), $help, $name.clone());
                )*
                Counts { registry, $($name),* }
            }
        }
    };
}

metrics! {
    connections: Gauge<u64, AtomicU64> = "Connections being served";
    queue_bytes: Family<Label, Gauge<u64, AtomicU64>> =
        "Bytes read from files and not yet confirmed by clients, and arrived and not yet taken to be written";
    requests: ByLabel = "Requests of clients";
    connections_ended: ByLabel = "Connections that asked for something, by how they ended";
    connection_seconds: Family<Label, Counter<f64, AtomicU64>> =
        "Time of connections that are over: until they asked, until the one before them had ended, \
         waiting for the network or the client, and at work on files";
    refused: ByLabel = "Clients and requests refused";
    file_bytes: ByLabel = "Bytes of files read or written, those that were there already included";
    files: ByLabel = "Files read or written";
    files_failed: Counter = "Files that were not copied";
    handshakes: Counter = "Key exchanges begun, repetitions included";
    handshakes_completed: Counter = "Key exchanges completed, those of keys that are not let in included";
    handshakes_retried: Counter = "Unauthenticated peers told to return with a cookie";
    unauthenticated_refused: ByLabel = "Datagrams of unauthenticated peers that led to no connection";
    payload_sent_bytes: Counter =
        "Payload sent, repairs included. This and what follows is of connections that are over";
    payload_resent_bytes: Counter = "Payload sent again";
    payload_received_bytes: Counter = "Payload received for the first time";
    payload_placed_bytes: Counter = "Payload that came to its place without a copy in user space";
    payload_sent_zerocopy_bytes: Counter = "Payload that the kernel sent without a copy of its own";
    datagrams_sent: Counter = "Datagrams sent";
    datagrams_received: Counter = "Datagrams received";
    socket_calls: Counter = "System calls that sent or received";
    timeouts: Counter = "Times a wait for payload or for an answer ran out";
    payload_moved_bytes: ByLabel = "Payload copied in user space";
    datagrams_dropped: ByLabel = "Datagrams or operations dropped";
}

impl Default for Counts {
    fn default() -> Counts {
        let counts = Counts::register();
        // These show all their labels from the start.
        counts.queued(Queued::default());
        counts.spent(&Spent::default());
        counts.unauthenticated(&GateCounters::default(), &ListenerCounters::default());
        counts
    }
}

impl Counts {
    /// Formats all metrics; `connections` is the number of open connections that made a request.
    pub(super) fn text(&self, connections: usize) -> String {
        self.connections.set(connections as u64);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    pub(super) fn queued(&self, queued: Queued) {
        of(&self.queue_bytes, "queue", "network").set(queued.network);
        of(&self.queue_bytes, "queue", "files").set(queued.files);
    }

    pub(super) fn requested(&self, verb: Verb) {
        of(&self.requests, "verb", verb.word()).inc();
    }

    pub(super) fn advanced(&self, verb: Verb, bytes: u64) {
        of(&self.file_bytes, "verb", verb.word()).inc_by(bytes);
    }

    pub(super) fn files(&self, verb: Verb, files: u64) {
        of(&self.files, "verb", verb.word()).inc_by(files);
    }

    pub(super) fn failed(&self) {
        self.files_failed.inc();
    }

    pub(super) fn refused(&self, reason: &'static str, clients: u64) {
        of(&self.refused, "reason", reason).inc_by(clients);
    }

    pub(super) fn ended(&self, how: &'static str) {
        of(&self.connections_ended, "how", how).inc();
    }

    /// Adds the time spent by a closed connection.
    pub(super) fn spent(&self, more: &Spent) {
        for (state, time) in [
            ("request", more.request),
            ("turn", more.turn),
            ("network", more.network),
            ("files", more.files),
        ] {
            of(&self.connection_seconds, "state", state).inc_by(time.as_secs_f64());
        }
    }

    /// Takes over what unauthenticated peers have caused so far.
    pub(super) fn unauthenticated(&self, gate: &GateCounters, listener: &ListenerCounters) {
        set(&self.handshakes, gate.hellos);
        set(&self.handshakes_completed, gate.admitted);
        set(&self.handshakes_retried, gate.retried);
        let limited: u64 = GateLimit::ALL.iter().map(|&it| gate.limited(it)).sum();
        let not_free = listener.full + listener.full_of_origin;
        for (reason, count) in [
            ("malformed", gate.malformed),
            ("refused-with-a-reason", gate.refused),
            ("too-many-at-once", limited),
            ("no-connection-free", not_free),
            ("no-descriptor-or-memory", listener.exhausted),
            ("unread", listener.unread),
        ] {
            set(&of(&self.unauthenticated_refused, "reason", reason), count);
        }
    }

    /// Adds the transport counters of a closed connection.
    pub(super) fn account(&self, account: &Account) {
        let protocol = &account.protocol;
        self.payload_sent_bytes.inc_by(protocol.bytes_sent);
        self.payload_resent_bytes.inc_by(protocol.bytes_resent);
        self.payload_received_bytes.inc_by(protocol.bytes_received);
        self.payload_placed_bytes.inc_by(account.bytes_placed);
        self.payload_sent_zerocopy_bytes
            .inc_by(account.bytes_sent_zerocopy);
        self.datagrams_sent.inc_by(account.datagrams_sent);
        self.datagrams_received.inc_by(account.datagrams_received);
        self.socket_calls.inc_by(
            account.tx_data_syscalls
                + account.tx_control_syscalls
                + account.rx_data_syscalls
                + account.rx_control_syscalls
                + account.rx_empty_polls,
        );
        self.timeouts.inc_by(protocol.timeouts);
        for cause in MoveCause::ALL {
            of(&self.payload_moved_bytes, "cause", words(cause)).inc_by(account.moved(cause));
        }
        let dropped = |reason, count| of(&self.datagrams_dropped, "reason", reason).inc_by(count);
        for reason in DropReason::ALL {
            dropped(words(reason), protocol.dropped(reason));
        }
        dropped("socket-buffer".into(), account.dropped_socket_buffer);
        dropped("truncated".into(), account.dropped_truncated);
        dropped("on-send".into(), account.dropped_on_send);
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn words__of_a_variant() {
        assert_eq!(words(MoveCause::OpenedOutOfPlace), "opened-out-of-place");
        assert_eq!(words(DropReason::Forged), "forged");
    }
    #[test]
    fn Counts__text_has_the_names_helps_types_and_labels() {
        let counts = Counts::default();
        counts.refused("path", 2);
        let text = counts.text(3);
        for lines in [
            "# HELP zerolane_connections Connections being served.\n\
             # TYPE zerolane_connections gauge\n\
             zerolane_connections 3\n",
            "zerolane_queue_bytes{queue=\"files\"} 0\n",
            "zerolane_connection_seconds_total{state=\"turn\"} 0",
            "# HELP zerolane_refused_total Clients and requests refused.\n\
             # TYPE zerolane_refused_total counter\n\
             zerolane_refused_total{reason=\"path\"} 2\n",
            "zerolane_unauthenticated_refused_total{reason=\"malformed\"} 0\n",
            "zerolane_payload_sent_bytes_total 0\n",
        ] {
            assert!(text.contains(lines), "{lines} is not in {text}");
        }
    }
}
