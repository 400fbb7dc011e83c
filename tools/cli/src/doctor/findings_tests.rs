//! Tests that findings judge values correctly, and name what fixes them.
#![allow(non_snake_case)]
use super::*;
use std::path::PathBuf;

const MIB: usize = 1 << 20;

#[test]
fn receive_buffer__by_what_was_granted() {
    let wanted = 8 * MIB;
    let enough = receive_buffer(2 * wanted, wanted, Some(wanted));
    assert_eq!((enough.state, enough.fix), (State::Ok, None));
    let roots = receive_buffer(2 * wanted, wanted, Some(212_992));
    assert!(
        roots.state == State::Ok && roots.found.contains("208 KiB for processes"),
        "{roots}"
    );
    let little = receive_buffer(425_984, wanted, Some(212_992));
    assert_eq!(little.state, State::Slow);
    assert_eq!(little.found, "208 KiB of 8192 KiB");
    assert!(
        little
            .fix
            .unwrap()
            .starts_with("sysctl -w net.core.rmem_max=8388608")
    );
}

#[test]
fn offload_and_cipher__slow_without() {
    assert_eq!(offload("GSO", true, "4.18").state, State::Ok);
    let without = offload("GRO", false, "5.0");
    assert!(without.state == State::Slow && without.fix.unwrap().contains("5.0"));
    assert_eq!(cipher(Some(Cipher::Aegis128X2)).state, State::Ok);
    assert_eq!(cipher(Some(Cipher::ChaCha20Poly1305)).state, State::Slow);
}

#[test]
fn clock__behind_the_program() {
    let now = SystemTime::now();
    let hours = |n: u64| Duration::from_secs(n * 3600);
    assert_eq!(clock(now, None).state, State::Ok);
    assert_eq!(clock(now, Some(now - hours(1))).state, State::Ok);
    assert_eq!(
        clock(now, Some(now + hours(20))).state,
        State::Ok,
        "a time zone away"
    );
    assert_eq!(clock(now, Some(now + hours(30))).state, State::Wrong);
    for (source, state) in [
        ("tsc", State::Ok),
        ("kvm-clock", State::Ok),
        ("arch_sys_counter", State::Ok),
        ("hpet", State::Slow),
        ("acpi_pm", State::Slow),
    ] {
        assert_eq!(clock_source(source).state, state, "{source}");
    }
}

#[test]
fn key_file__says_the_command_that_mends_it() {
    let path = PathBuf::from("/home/me/keys");
    let of = |found| key_file("own key", &path, found);
    assert_eq!(
        of(Ok(Some("zl:a".into()))).to_string(),
        "ok     own key: zl:a, in /home/me/keys"
    );
    assert_eq!(of(Ok(None)).state, State::Ok);
    let exposed = of(Err(keys::Error::Exposed {
        path: path.clone(),
        what: "read",
    }));
    assert_eq!(exposed.state, State::Wrong);
    assert!(exposed.fix.unwrap().starts_with("chmod 600 /home/me/keys"));
    let broken = of(Err(keys::Error::Syntax {
        line: 3,
        problem: "not a key",
    }));
    assert_eq!(broken.fix.unwrap(), "${EDITOR:-vi} +3 /home/me/keys");
}

#[test]
fn mtu__at_least_what_zerolane_needs() {
    let (v4, v6) = ([192, 0, 2, 1].into(), "2001:db8::1".parse().expect("one"));
    for (host, bytes, state) in [
        (v6, 1279, State::Wrong),
        (v6, 1280, State::Ok),
        (v4, 575, State::Wrong),
        (v4, 576, State::Ok),
        (v4, 9000, State::Ok),
    ] {
        assert_eq!(mtu(host, bytes, None).state, state, "{bytes}");
    }
}

#[test]
fn mtu__that_a_connection_found_to_be_less_is_told() {
    let host = [192, 0, 2, 1].into();
    assert_eq!(mtu(host, 1500, Some(Probed::Passes(1500))).state, State::Ok);
    let narrow = mtu(host, 1500, Some(Probed::Passes(1100)));
    assert!(narrow.state == State::Slow && narrow.found.contains("1100"));
    let too_narrow = mtu(host, 1500, Some(Probed::TooNarrow));
    assert!(too_narrow.state == State::Wrong && too_narrow.found.contains("576"));
    // Linux learned that much from a router.
    let reported = mtu(host, 552, Some(Probed::TooNarrow));
    assert!(reported.fix.unwrap().contains("tunnel"));
    let host = "2001:db8::1".parse().expect("one");
    let too_narrow = mtu(host, 1500, Some(Probed::TooNarrow));
    assert!(too_narrow.fix.unwrap().contains("1280"));
}

#[test]
fn answer__tells_refused_from_silent() {
    use zerolane::failure::Reason;
    assert_eq!(answer("h:1", Ok(())).state, State::Ok);
    let refused = zerolane::Error::Closed(CloseReason::ExchangeRefused(Reason::Denied));
    assert_eq!(answer("h:1", Err(&refused)).state, State::Ok, "it answered");
    let silent = zerolane::Error::ConnectTimeout(Duration::from_secs(5));
    let silent = answer("h:1", Err(&silent));
    assert!(silent.state == State::Wrong && silent.found.contains("firewall"));
    let unreachable = zerolane::Error::Closed(CloseReason::Unreachable);
    let unreachable = answer("h:1", Err(&unreachable));
    assert!(unreachable.state == State::Wrong && unreachable.fix.unwrap().contains("serve"));
}
