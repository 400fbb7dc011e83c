//! Collects the places where the sender may be; any host can claim to be one.

use crate::limits::{SENDER_PLACES, SENDER_PLACES_OF_HOST};
use std::net::SocketAddr;

/// The places to try: a bounded number, and fewer of one host.
#[derive(Debug, Default)]
pub(super) struct Places {
    known: Vec<SocketAddr>,
    tried: usize,
}

impl Places {
    pub(super) fn add(&mut self, place: SocketAddr) {
        let of_host = self.known.iter().filter(|it| it.ip() == place.ip());
        let room = !self.is_full() && of_host.count() < SENDER_PLACES_OF_HOST;
        if room && !self.known.contains(&place) {
            self.known.push(place);
        }
    }

    pub(super) fn next(&mut self) -> Option<SocketAddr> {
        let place = self.known.get(self.tried).copied()?;
        self.tried += 1;
        Some(place)
    }

    /// Whether all known places were tried.
    pub(super) fn are_tried(&self) -> bool {
        self.tried == self.known.len()
    }

    /// Whether no more places fit.
    pub(super) fn is_full(&self) -> bool {
        self.known.len() >= SENDER_PLACES
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn Places__a_flood_is_bounded_and_one_host_does_not_take_it_all() {
        let mut places = Places::default();
        for port in 1..=1000 {
            places.add(SocketAddr::from(([10, 0, 0, 1], port)));
            places.add(SocketAddr::from(([10, 0, 0, 1], port)));
        }
        assert_eq!(places.known.len(), SENDER_PLACES_OF_HOST);
        places.add(SocketAddr::from(([10, 0, 0, 2], 7)));
        let tried: Vec<_> = std::iter::from_fn(|| places.next()).collect();
        assert_eq!(tried.last(), Some(&SocketAddr::from(([10, 0, 0, 2], 7))));
        for host in 0..=255 {
            places.add(SocketAddr::from(([10, 0, 1, host], 7)));
        }
        assert!(places.is_full());
        assert_eq!(places.known.len(), SENDER_PLACES);
    }
}
