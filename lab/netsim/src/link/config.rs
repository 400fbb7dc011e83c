//! Configures a link: what it does to packets, as plain data.

use std::time::Duration;

/// Behaviour of one direction of a link. The default is a perfect link: no
/// delay, no loss, unlimited rate.
///
/// A probability outside 0 to 1 counts as the nearest of the two, and NaN as 0.
///
/// ```
/// use netsim::link::{LinkConfig, Loss};
/// use std::time::Duration;
///
/// let dsl = LinkConfig {
///     delay: Duration::from_millis(20),
///     loss: Loss::Random(0.01),
///     rate_bits_per_s: Some(16_000_000),
///     ..LinkConfig::default()
/// };
/// assert_eq!(dsl.queue_packets, LinkConfig::default().queue_packets);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkConfig {
    /// Propagation delay: from the end of serialisation to delivery.
    pub delay: Duration,
    /// Upper end of an extra delay drawn uniformly from 0 to `jitter` for each
    /// packet. Jitter alone never reorders: a packet that drew less than the
    /// one before it waits for it, as in a FIFO.
    pub jitter: Duration,
    /// Which packets vanish on the wire. A lost packet still takes its time at
    /// the bottleneck.
    pub loss: Loss,
    /// Which packets are held back so that later ones overtake them.
    pub reorder: Reorder,
    /// Probability that a packet enters the link twice. The copy is a packet of
    /// its own: it takes its own place in the queue and may itself be lost.
    pub duplicate: f64,
    /// Serialisation rate of the bottleneck in bits per second; `None` is
    /// infinitely fast. Zero counts as 1 bit per second.
    pub rate_bits_per_s: Option<u64>,
    /// How many packets may wait for the bottleneck, the one being serialised
    /// not counted. One more is dropped (tail drop). Without a rate nothing
    /// ever waits.
    pub queue_packets: usize,
    /// How many bytes may wait for the bottleneck, counted likewise; a packet
    /// that would make more is dropped. `None` leaves the limit to
    /// [`queue_packets`](Self::queue_packets); otherwise both hold.
    pub queue_bytes: Option<usize>,
    /// A packet that finds this many waiting is marked *congestion
    /// experienced* if it goes on ([`Arrival::marked`](super::Arrival::marked));
    /// the user of the link applies the mark. `None` marks nothing.
    pub mark_packets: Option<usize>,
    /// Biggest packet in bytes that passes. Bigger ones vanish silently,
    /// as behind a router whose ICMP messages are filtered.
    pub mtu: Option<usize>,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: Loss::None,
            reorder: Reorder::default(),
            duplicate: 0.0,
            rate_bits_per_s: None,
            queue_packets: DEFAULT_QUEUE_PACKETS,
            queue_bytes: None,
            mark_packets: None,
            mtu: None,
        }
    }
}

/// Linux' default transmit queue length for Ethernet.
const DEFAULT_QUEUE_PACKETS: usize = 1000;

/// Which packets vanish on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// Every packet arrives.
    #[default]
    None,
    /// Each packet is lost with this probability, independent of the others.
    Random(f64),
    /// Bursts: a Markov chain with a good and a bad state. It starts in the
    /// good state, and moves after each packet. The mean stay in the bad state
    /// is `1 / p_bad_to_good` packets.
    GilbertElliott {
        /// Probability of moving from good to bad after a packet.
        p_good_to_bad: f64,
        /// Probability of moving from bad to good after a packet.
        p_bad_to_good: f64,
        /// Probability that a packet is lost in the good state.
        loss_good: f64,
        /// Probability that a packet is lost in the bad state.
        loss_bad: f64,
    },
}

impl Loss {
    /// Losses that come in bursts of `mean_length` packets on average, all of
    /// a burst lost and nothing between bursts, so that `mean_loss` of all
    /// packets are lost (0 to below 1). A length below 1 counts as 1.
    #[must_use]
    pub fn bursts(mean_loss: f64, mean_length: f64) -> Self {
        let p_bad_to_good = 1.0 / mean_length.max(1.0);
        Self::GilbertElliott {
            p_good_to_bad: p_bad_to_good * mean_loss / (1.0 - mean_loss),
            p_bad_to_good,
            loss_good: 0.0,
            loss_bad: 1.0,
        }
    }
}

/// Which packets are held back, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reorder {
    /// Probability that a packet is held back.
    pub probability: f64,
    /// How much later than otherwise a packet that is held back arrives. Only
    /// packets sent within this time can overtake it.
    pub by: Duration,
}
