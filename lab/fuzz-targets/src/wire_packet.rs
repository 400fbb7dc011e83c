//! Fuzzes datagrams: no panic; an accepted datagram has the same meaning when sent again.

use zerolane_wire::checksum::Sum;
use zerolane_wire::discovery::Discovery;
use zerolane_wire::{HEADER_LEN, Header, MAX_CONTROL, OPTIONS_LEN, Packet, PrivateData};

/// See the first lines of this file.
pub fn run(datagram: &[u8]) {
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
        // Private data is as long as it says, and is attached again as it was.
        let data = PrivateData::of(datagram);
        assert_eq!(
            data.is_some(),
            datagram.len() == MAX_CONTROL && len == HEADER_LEN + OPTIONS_LEN
        );
        if let Some(data) = data {
            let mut whole = [0; MAX_CONTROL];
            whole[..len].copy_from_slice(again);
            assert_eq!(data.attach(&mut whole), datagram.len());
            assert!(Packet::parse(&whole).is_ok());
            assert_eq!(PrivateData::of(&whole), Some(data));
        }
    }
}
