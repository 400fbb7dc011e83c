//! Fuzzes datagrams: no panic; an accepted datagram has the same meaning when sent again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use zerolane_wire::checksum::Sum;
use zerolane_wire::discovery::Discovery;
use zerolane_wire::{HEADER_LEN, Header, Packet};

fuzz_target!(|datagram: &[u8]| {
    if let Ok(header) = Header::parse(datagram) {
        assert_eq!(header.emit()[..], datagram[..HEADER_LEN]);
        let rest = Sum::of(&datagram[HEADER_LEN..]);
        assert_eq!(header.sealed(rest).verify(rest), Ok(()));
    }
    if let Ok(said) = Discovery::parse(datagram) {
        assert_eq!(said.emit()[..], *datagram);
    }
    if let Ok(packet) = Packet::parse(datagram) {
        let (bytes, len) = packet.emit();
        let again = &bytes[..len];
        assert_eq!(Packet::parse(again), Ok(packet));
        // Emitting again clears fields that are ignored and makes nothing up.
        assert!(
            again
                .iter()
                .zip(datagram)
                .all(|(sent, got)| sent & !got == 0)
        );
        assert!(len <= datagram.len());
    }
});
