//! Tests that two honest ends agree on keys, cipher and identities, or refuse.

use super::*;
use zerolane_wire::{MAX_CONTROL, MAX_PRIVATE_DATA, PrivateData};

#[test]
fn run__both_ends_hold_the_same_secrets() {
    let (mut a, mut b) = (initiator(credentials(1)), gate(credentials(2)));
    let (session, admitted) = run(&mut a, &mut b);
    assert_eq!(session.send, admitted.session.receive);
    assert_eq!(session.receive, admitted.session.send);
    assert_ne!(session.send, session.receive, "one for each direction");
    assert_eq!(session.peer, identity(2).public());
    assert_eq!(admitted.session.peer, identity(1).public());
    assert_eq!(session.cipher, Cipher::Aegis128X2);
    assert_eq!(admitted.session.cipher, Cipher::Aegis128X2);
    assert!(admitted.trusted);
    let (bytes, len) = admitted.request.emit();
    assert_eq!(bytes[..len], request());
    assert_eq!(b.pending(), 0);
}

#[test]
fn run__private_data_travels_sealed_and_is_as_long_as_it_says() {
    let data = PrivateData::new(&[0xa5; MAX_PRIVATE_DATA]).expect("short enough");
    let mut whole = [0; MAX_CONTROL];
    whole[..request().len()].copy_from_slice(&request());
    data.attach(&mut whole);
    let cut = &whole[..MAX_CONTROL - 1];
    for (carried, is_good) in [(&whole[..], true), (cut, false)] {
        let (mut a, mut b) = (initiator(credentials(1)), gate(credentials(2)));
        let answer = sent(knock(&mut b, &a));
        assert!(matches!(a.take(answer.bytes(), carried), Taken::Done(_)));
        let clear = a.message().bytes().windows(8).any(|it| it == [0xa5; 8]);
        assert!(!clear, "anyone can read it");
        match knock(&mut b, &a) {
            Reply::Admit(admitted) if is_good => {
                assert_eq!(admitted.private_data, Some(data));
            }
            Reply::Nothing if !is_good => assert_eq!(b.counters().malformed, 1),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn run__another_ephemeral_key_gives_other_secrets() {
    let mut b = gate(credentials(2));
    let (first, _) = run(&mut initiator(credentials(1)), &mut b);
    let again = Initiator::new(credentials(1), [78; 32], (1, 9), 0xabcd, 42);
    let (second, _) = run(&mut again.unwrap(), &mut b);
    assert_ne!(first.send, second.send);
}

#[test]
fn run__the_cipher_is_one_that_both_have() {
    for (a_has, b_has) in [(true, false), (false, true), (false, false)] {
        let with = |n, aes| Credentials {
            ciphers: Ciphers::of_machine(aes),
            ..credentials(n)
        };
        let (mut a, mut b) = (initiator(with(1, a_has)), gate(with(2, b_has)));
        let (session, admitted) = run(&mut a, &mut b);
        assert_eq!(session.cipher, Cipher::ChaCha20Poly1305);
        assert_eq!(admitted.session.cipher, Cipher::ChaCha20Poly1305);
    }
}

#[test]
fn run__the_cipher_that_an_end_insists_on() {
    for cipher in Cipher::ALL.into_iter().filter(|cipher| cipher.hides()) {
        let insisting = Credentials {
            ciphers: Ciphers::only(cipher),
            ..credentials(1)
        };
        let (mut a, mut b) = (initiator(insisting), gate(credentials(2)));
        let (session, admitted) = run(&mut a, &mut b);
        assert_eq!(session.cipher, cipher);
        assert_eq!(admitted.session.cipher, cipher);
    }
}

#[test]
fn run__other_protection_is_refused_with_a_reason() {
    let authenticated = |n| Credentials {
        ciphers: Ciphers::only(Cipher::Aegis128X2Mac),
        ..credentials(n)
    };
    for (a_has, b_has) in [
        (credentials(1), authenticated(2)),
        (authenticated(1), credentials(2)),
    ] {
        let answer = sent(knock(&mut gate(b_has), &initiator(a_has)));
        let refused = HandshakeMessage::parse(answer.bytes()).unwrap();
        assert_eq!(refused.step, Step::Refusal);
        assert_eq!(refused.reason, Reason::OtherProtection);
    }
    let (mut a, mut b) = (initiator(authenticated(1)), gate(authenticated(2)));
    let (session, admitted) = run(&mut a, &mut b);
    assert_eq!(session.cipher, Cipher::Aegis128X2Mac);
    assert_eq!(session.send, admitted.session.receive);
}

fn with_pre_shared(n: u8, key: u8) -> Credentials {
    Credentials {
        pre_shared: Some([key; 32].into()),
        ..credentials(n)
    }
}

#[test]
fn run__a_pre_shared_key_that_both_have() {
    let (mut a, mut b) = (
        initiator(with_pre_shared(1, 5)),
        gate(with_pre_shared(2, 5)),
    );
    let (session, admitted) = run(&mut a, &mut b);
    assert_eq!(session.send, admitted.session.receive);
}

#[test]
fn run__different_pre_shared_keys_are_not_admitted() {
    let (mut a, mut b) = (
        initiator(with_pre_shared(1, 5)),
        gate(with_pre_shared(2, 6)),
    );
    let answer = sent(knock(&mut b, &a));
    let taken = a.take(answer.bytes(), &request());
    assert!(matches!(taken, Taken::Done(_)), "it cannot know yet");
    assert!(matches!(knock(&mut b, &a), Reply::Nothing));
    assert_eq!(b.counters().admitted, 0);
}

#[test]
fn hello__a_pre_shared_key_on_one_side_only_is_refused_in_words() {
    let sides = [
        (with_pre_shared(1, 5), credentials(2)),
        (credentials(1), with_pre_shared(2, 5)),
    ];
    for (a, b) in sides {
        let (mut a, mut b) = (initiator(a), gate(b));
        let refusal = sent(knock(&mut b, &a));
        let taken = a.take(refusal.bytes(), &request());
        assert!(matches!(
            taken,
            Taken::Refused(zerolane_wire::Reason::Denied)
        ));
        assert_eq!(b.pending(), 0);
    }
}

#[test]
fn answer__of_a_peer_not_trusted_ends_it_before_our_key_is_shown() {
    let a = Credentials {
        trust: Arc::new(Only(identity(3).public())),
        ..credentials(1)
    };
    let (mut a, mut b) = (initiator(a), gate(credentials(2)));
    let answer = sent(knock(&mut b, &a));
    let Taken::Untrusted(key) = a.take(answer.bytes(), &request()) else {
        panic!("went on");
    };
    assert_eq!(key, identity(2).public());
    assert_eq!(step(&a.message()), Step::Hello, "no Finish to send");
}

#[test]
fn finish__of_a_peer_not_trusted_is_told_apart() {
    let b = Credentials {
        trust: Arc::new(Only(identity(3).public())),
        ..credentials(2)
    };
    let (_, admitted) = run(&mut initiator(credentials(1)), &mut gate(b));
    assert!(!admitted.trusted);
}

#[test]
fn identity__text_and_back() {
    let key = identity(7).public();
    let text = key.to_string();
    assert_eq!(text.len(), 46);
    assert_eq!(text.parse(), Ok(key));
    for broken in ["", "zl:", &text[..45], &format!("{text}A"), &text[3..]] {
        assert_eq!(broken.parse::<PublicKey>(), Err(KeyError), "{broken}");
    }
    assert!(
        !format!("{:?}", identity(7)).contains("07, 07"),
        "a secret shown"
    );
}
