//! Counts how often a prediction held, and why it failed.

use serde::ser::{Serialize, SerializeMap, Serializer};

/// Why a prediction missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Cause {
    /// It was the first packet of its stream: nothing was known of it.
    First,
    /// A large packet of another flow came in between, at the same host.
    Interleaved,
    /// A small packet came in between: control.
    Control,
    /// Packets of the stream came in another order.
    Reordered,
    /// Something of the stream was missing, or came again.
    Lost,
    /// The length of the payload, or of the headers, was another.
    Size,
}

impl Cause {
    /// All causes.
    pub const ALL: [Cause; 6] = [
        Cause::First,
        Cause::Interleaved,
        Cause::Control,
        Cause::Reordered,
        Cause::Lost,
        Cause::Size,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::First => "first",
            Cause::Interleaved => "interleaved",
            Cause::Control => "control",
            Cause::Reordered => "reordered",
            Cause::Lost => "lost",
            Cause::Size => "size",
        }
    }
}

/// How often a prediction held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Predictions made: pages, packets or trains.
    pub potential: u64,
    /// Those that held.
    pub hits: u64,
    /// Payload of all of them, bytes.
    pub bytes: u64,
    /// Payload of those that held, which lands in place without a further copy.
    pub hit_bytes: u64,
    misses: [u64; Cause::ALL.len()],
}

impl Tally {
    /// Misses for `cause`.
    pub fn misses(&self, cause: Cause) -> u64 {
        self.misses[cause as usize]
    }

    /// Share that held, 0 to 1; `None` if nothing was predicted.
    pub fn rate(&self) -> Option<f64> {
        (self.potential > 0).then(|| self.hits as f64 / self.potential as f64)
    }

    /// One prediction for `bytes`, and why it missed, if it did.
    pub(crate) fn count(&mut self, bytes: u64, missed: Option<Cause>) {
        self.potential += 1;
        self.bytes += bytes;
        match missed {
            Some(cause) => self.misses[cause as usize] += 1,
            None => {
                self.hits += 1;
                self.hit_bytes += bytes;
            }
        }
    }

    /// Adds what another stream had.
    pub(crate) fn add(&mut self, other: &Tally) {
        self.potential += other.potential;
        self.hits += other.hits;
        self.bytes += other.bytes;
        self.hit_bytes += other.hit_bytes;
        for (here, there) in self.misses.iter_mut().zip(other.misses) {
            *here += there;
        }
    }
}

/// The misses by their causes' names.
struct Misses<'a>(&'a Tally);

impl Serialize for Misses<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Cause::ALL.map(|it| (it.name(), self.0.misses(it))))
    }
}

impl Serialize for Tally {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(6))?;
        map.serialize_entry("potential", &self.potential)?;
        map.serialize_entry("hits", &self.hits)?;
        map.serialize_entry("rate", &self.rate())?;
        map.serialize_entry("bytes", &self.bytes)?;
        map.serialize_entry("hit_bytes", &self.hit_bytes)?;
        map.serialize_entry("misses", &Misses(self))?;
        map.end()
    }
}
