//! Writes an account as one line of JSON (RFC 8259).

use super::{Account, MoveCause};
use std::fmt::{Debug, Display, Write};
use std::time::Duration;
use zerolane_core::{Counters, DropReason, PathState};

impl Account {
    /// All counters as one line of JSON, without a line feed: an object whose members have the names of the fields here,
    /// in [`PathState`] (`path`) and in [`Counters`] (`protocol`). [`Account::moved`] is the object `moved`, with a
    /// member for each cause, and [`Counters::dropped`] is `dropped` in `protocol`; `bytes_moved` and `dropped_total`
    /// are their sums.
    ///
    /// Numbers are integers. Times are nanoseconds, and their names end in `_ns`. Kinds, causes and states are lowercase
    /// words joined by `_`, for example `"shared_memory"`; reasons are sentences. What is not known or not so is `null`.
    ///
    /// ```
    /// let account = zerolane_lane::Account::default();
    /// let json = account.json();
    /// assert!(json.starts_with(r#"{"lane":"udp","#) && json.contains(r#""bytes_sent":0"#));
    /// ```
    pub fn json(&self) -> String {
        let moved = MoveCause::ALL.iter().fold(Object::new(), |all, &cause| {
            all.with(&snake(cause), self.moved(cause))
        });
        Object::new()
            .with("lane", Word(self.lane))
            .with("bytes_placed", self.bytes_placed)
            .with("bytes_moved", self.bytes_moved())
            .with("moved", moved)
            .with("bytes_sent", self.bytes_sent)
            .with("bytes_sent_zerocopy", self.bytes_sent_zerocopy)
            .with("datagrams_sent", self.datagrams_sent)
            .with("datagrams_received", self.datagrams_received)
            .with("tx_data_syscalls", self.tx_data_syscalls)
            .with("tx_zerocopy_syscalls", self.tx_zerocopy_syscalls)
            .with("tx_control_syscalls", self.tx_control_syscalls)
            .with("rx_data_syscalls", self.rx_data_syscalls)
            .with("rx_control_syscalls", self.rx_control_syscalls)
            .with("rx_empty_polls", self.rx_empty_polls)
            .with("wakeups", self.wakeups)
            .with("naps", self.naps)
            .with("sleeps", self.sleeps)
            .with("dropped_socket_buffer", self.dropped_socket_buffer)
            .with("dropped_truncated", self.dropped_truncated)
            .with("dropped_foreign", self.dropped_foreign)
            .with("dropped_on_send", self.dropped_on_send)
            .with("dropped_revoked", self.dropped_revoked)
            .with("unreliable_unread", self.unreliable_unread)
            .with("paths_refused", self.paths_refused)
            .with("no_path", self.no_path.map(Text))
            .with("receive_buffer", self.receive_buffer as u64)
            .with("bypass", self.bypass)
            .with("no_bypass", self.no_bypass.map(Text))
            .with("no_shared_memory", self.no_shared_memory.map(Text))
            .with("ring_fault", self.ring_fault.map(Text))
            .with("direct_operations", self.direct_operations)
            .with("bytes_direct", self.bytes_direct)
            .with("regions_not_mapped", self.regions_not_mapped)
            .with("gso", self.gso)
            .with("gro", self.gro)
            .with("cipher", self.cipher.map(|it| Text(it.name())))
            .with("zerocopy", Word(self.zerocopy))
            .with("stu", u64::from(self.stu))
            .with("path", path(&self.path))
            .with("protocol", protocol(&self.protocol))
            .end()
    }
}

fn path(path: &PathState) -> Object {
    Object::new()
        .with("life", Word(path.life))
        .with("bytes_sent", path.bytes_sent)
        .with("bytes_lost", path.bytes_lost)
        .with("bytes_received", path.bytes_received)
        .with("rtt_ns", path.rtt)
        .with("rtt_deviation_ns", path.rtt_deviation)
        .with("min_rtt_ns", path.min_rtt)
        .with("reordering_ns", path.reordering)
        .with("granted_ahead", u64::from(path.granted_ahead))
        .with("controller", Text(path.controller))
        .with("congestion_window", path.congestion_window)
        .with("pace", path.pace)
        .with("in_flight", path.in_flight)
        .with("mtu", path.mtu.map(u64::from))
        .with("mtu_probed", path.mtu_probed)
        .with("too_narrow", path.too_narrow)
}

fn protocol(counters: &Counters) -> Object {
    let dropped = DropReason::ALL.iter().fold(Object::new(), |all, &reason| {
        all.with(&snake(reason), counters.dropped(reason))
    });
    Object::new()
        .with("bytes_sent", counters.bytes_sent)
        .with("bytes_resent", counters.bytes_resent)
        .with("bytes_received", counters.bytes_received)
        .with("stus_received", counters.stus_received)
        .with("trains_received", counters.trains_received)
        .with("trains_broken", counters.trains_broken)
        .with("control_sent", counters.control_sent)
        .with("control_received", counters.control_received)
        .with("grants_sent", counters.grants_sent)
        .with("reports_sent", counters.reports_sent)
        .with("reordered", counters.reordered)
        .with("spurious_requests", counters.spurious_requests)
        .with("eager_sent", counters.eager_sent)
        .with("eager_received", counters.eager_received)
        .with("eager_held", counters.eager_held)
        .with("granted_in_advance", counters.granted_in_advance)
        .with("ecn_marked", counters.ecn_marked)
        .with("ecn_capable", counters.ecn_capable)
        .with("unreliable_sent", counters.unreliable_sent)
        .with("unreliable_refused", counters.unreliable_refused)
        .with("unreliable_expired", counters.unreliable_expired)
        .with("unreliable_received", counters.unreliable_received)
        .with("unreliable_incomplete", counters.unreliable_incomplete)
        .with("migrations", counters.migrations)
        .with("paths_lost", counters.paths_lost)
        .with("timeouts", counters.timeouts)
        .with("grants_deferred", counters.grants_deferred)
        .with("records_dropped", counters.records_dropped)
        .with("dropped_total", counters.dropped_total())
        .with("dropped", dropped)
}

/// An object in the making.
struct Object(String);

impl Object {
    fn new() -> Object {
        Object("{".to_owned())
    }

    fn with(mut self, name: &str, value: impl Value) -> Object {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        quote(name, &mut self.0);
        self.0.push(':');
        value.write(&mut self.0);
        self
    }

    fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

trait Value {
    fn write(self, to: &mut String);
}

impl Value for Object {
    fn write(self, to: &mut String) {
        to.push_str(&self.end());
    }
}

impl Value for u64 {
    fn write(self, to: &mut String) {
        to.push_str(&self.to_string());
    }
}

impl Value for bool {
    fn write(self, to: &mut String) {
        to.push_str(&self.to_string());
    }
}

/// Nanoseconds.
impl Value for Duration {
    fn write(self, to: &mut String) {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX).write(to);
    }
}

impl<V: Value> Value for Option<V> {
    fn write(self, to: &mut String) {
        match self {
            Some(value) => value.write(to),
            None => to.push_str("null"),
        }
    }
}

/// A string: what the value displays.
struct Text<T>(T);

impl<T: Display> Value for Text<T> {
    fn write(self, to: &mut String) {
        quote(&self.0.to_string(), to);
    }
}

/// A string: the name of an enum's value.
struct Word<T>(T);

impl<T: Debug> Value for Word<T> {
    fn write(self, to: &mut String) {
        quote(&snake(self.0), to);
    }
}

/// `opened_out_of_place` of `OpenedOutOfPlace`.
fn snake(name: impl Debug) -> String {
    let mut words = String::new();
    for letter in format!("{name:?}").chars() {
        if letter.is_ascii_uppercase() && !words.is_empty() {
            words.push('_');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

fn quote(text: &str, to: &mut String) {
    to.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => to.extend(['\\', letter]),
            control if control < ' ' => {
                // Writing to a string does not fail.
                let _ = write!(to, "\\u{:04x}", u32::from(control));
            }
            letter => to.push(letter),
        }
    }
    to.push('"');
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
