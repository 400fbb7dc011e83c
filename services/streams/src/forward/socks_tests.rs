//! Tests the negotiation of SOCKS5: addresses, refusals, and bytes that follow the request.
#![allow(non_snake_case)]

use super::*;

/// The end of a negotiation whose bytes come in pieces of `piece`, and its answers.
fn negotiate(bytes: &[u8], piece: usize) -> (Step, Vec<u8>, Vec<u8>) {
    let (mut it, mut out) = (Negotiation::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        let step = it.take(piece, &mut out);
        if step != Step::More {
            return (step, out, it.rest().to_vec());
        }
    }
    (Step::More, out, Vec::new())
}

#[test]
fn Negotiation__of_names_and_addresses() {
    let named = [&[5, 2, 2, 0, 5, 1, 0, 3, 11][..], b"example.org", &[0, 80]].concat();
    let of_ip = [5, 1, 0, 5, 1, 0, 1, 192, 0, 2, 7, 1, 187].to_vec();
    let of_ip6 = [&[5, 1, 0, 5, 1, 0, 4][..], &[0; 15], &[1, 0, 22]].concat();
    for (bytes, host, port) in [
        (named, "example.org", 80),
        (of_ip, "192.0.2.7", 443),
        (of_ip6, "::1", 22),
    ] {
        for piece in 1..=bytes.len() {
            let (step, out, rest) = negotiate(&bytes, piece);
            assert_eq!(step, Step::Connect(Target::new(host, port).unwrap()));
            assert_eq!((&out[..], rest.len()), (&[5, 0][..], 0));
        }
    }
}

#[test]
fn Negotiation__refuses_in_the_words_of_the_protocol() {
    for (bytes, answers) in [
        // Not SOCKS5: version 4, and HTTP.
        (&[4, 1, 0, 80][..], &[][..]),
        (b"GET / HTTP/1.1\r\n", &[]),
        // Only a password is offered.
        (&[5, 1, 2], &[5, 0xff]),
        // BIND; an unknown kind of address; a name without letters.
        (
            &[5, 1, 0, 5, 2, 0, 1],
            &[5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0],
        ),
        (
            &[5, 1, 0, 5, 1, 0, 9],
            &[5, 0, 5, 8, 0, 1, 0, 0, 0, 0, 0, 0],
        ),
        (
            &[5, 1, 0, 5, 1, 0, 3, 0, 0, 80],
            &[5, 0, 5, 8, 0, 1, 0, 0, 0, 0, 0, 0],
        ),
        (
            &[5, 1, 0, 4, 1, 0, 1],
            &[5, 0, 5, 1, 0, 1, 0, 0, 0, 0, 0, 0],
        ),
    ] {
        let (step, out, _) = negotiate(bytes, 1);
        assert_eq!((step, &out[..]), (Step::Close, answers), "{bytes:?}");
    }
}

#[test]
fn Negotiation__keeps_what_follows_the_request() {
    let bytes = [&[5, 1, 0, 5, 1, 0, 1, 1, 2, 3, 4, 0, 9][..], b"early"].concat();
    let (_, _, rest) = negotiate(&bytes, bytes.len());
    assert_eq!(rest, b"early");
}
