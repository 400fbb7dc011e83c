//! Writes and reads the addresses by which nodes know each other.
//!
//! A link-local address means nothing without an interface, and an interface number means nothing on another host. Messages
//! therefore carry no interface. Each host uses the one by which it joined the cast, because nodes with link-local addresses
//! share one link.

use std::net::{SocketAddr, SocketAddrV6};

use zerolane_cast::Contact;

/// An address as a contact has it.
pub(crate) fn address_bytes(address: SocketAddr) -> Vec<u8> {
    with_interface(address, 0).to_string().into_bytes()
}

/// Where a contact is reached, by this interface if its address is link-local.
pub(crate) fn address_of(contact: &Contact, interface: u32) -> Option<SocketAddr> {
    let address = str::from_utf8(&contact.address).ok()?.parse().ok()?;
    Some(with_interface(address, interface))
}

/// The interface of a link-local address, else 0.
pub(crate) fn interface_of(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(it) if it.ip().is_unicast_link_local() => it.scope_id(),
        _ => 0,
    }
}

/// `address` of this interface, if it is link-local. Others have none.
fn with_interface(address: SocketAddr, interface: u32) -> SocketAddr {
    let SocketAddr::V6(it) = address else {
        return address;
    };
    let interface = match it.ip().is_unicast_link_local() {
        true => interface,
        false => 0,
    };
    SocketAddrV6::new(*it.ip(), it.port(), 0, interface).into()
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use zerolane_cast::NodeId;

    fn contact(address: &[u8]) -> Contact {
        Contact {
            id: NodeId::of_key(&[1; 32]),
            address: address.to_vec(),
        }
    }

    fn parsed(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn address__of_a_link_has_the_interface_of_the_host_that_reads_it() {
        for (own, told, read) in [
            ("[fe80::1%7]:9", "[fe80::1]:9", "[fe80::1%3]:9"),
            ("[fe80::1]:9", "[fe80::1]:9", "[fe80::1%3]:9"),
            ("[2001:db8::1]:9", "[2001:db8::1]:9", "[2001:db8::1]:9"),
            ("192.0.2.1:9", "192.0.2.1:9", "192.0.2.1:9"),
        ] {
            let bytes = address_bytes(parsed(own));
            assert_eq!(bytes, told.as_bytes());
            assert_eq!(address_of(&contact(&bytes), 3), Some(parsed(read)));
        }
        assert_eq!(interface_of(parsed("[fe80::1%7]:9")), 7);
        assert_eq!(interface_of(parsed("[2001:db8::1%7]:9")), 0);
    }

    /// What a peer tells is not believed, and may be nothing.
    #[test]
    fn address__that_a_peer_tells_with_an_interface_has_this_hosts() {
        for (told, read) in [
            ("[fe80::1%7]:9", "[fe80::1%3]:9"),
            ("[2001:db8::1%7]:9", "[2001:db8::1]:9"),
        ] {
            let read = Some(parsed(read));
            assert_eq!(address_of(&contact(told.as_bytes()), 3), read);
        }
        for none in [&b""[..], b"host:9", b"[fe80::1%eth0]:9", b"\xff"] {
            assert_eq!(address_of(&contact(none), 3), None);
        }
    }
}
