//! Tests the JSON of an account.
#![allow(non_snake_case)]
use super::*;
use crate::account::LaneKind;
use crate::unavailable::NoBypass;

/// The names in the derived Debug form, which has every field.
fn fields(of: impl Debug) -> Vec<String> {
    let shown = format!("{of:#?}");
    let names = shown
        .lines()
        .filter_map(|line| line.trim().split_once(": "));
    names.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn json__has_every_field_once_and_is_one_line() {
    let account = Account::default();
    let json = account.json();
    assert!(!json.contains('\n'));
    let of_protocol = fields(account.protocol);
    assert!(of_protocol.len() > 20, "{of_protocol:?}");
    for name in fields(account).iter().chain(&of_protocol) {
        // The array of drops by reason.
        let name = match name.as_str() {
            "drops" => "dropped",
            name => name,
        };
        let (plain, timed) = (format!("\"{name}\":"), format!("\"{name}_ns\":"));
        assert!(json.contains(&plain) || json.contains(&timed), "{name}");
    }
}

#[test]
fn json__what_is_known_and_what_is_not() {
    let mut account = Account {
        lane: LaneKind::SharedMemory,
        no_bypass: Some(NoBypass::Full),
        ..Account::default()
    };
    account.path.rtt = Some(Duration::from_micros(13));
    account.path.mtu = Some(9000);
    account.count_moved(MoveCause::OpenedOutOfPlace, 7);
    let json = account.json();
    for part in [
        r#"{"lane":"shared_memory","bytes_placed":0,"bytes_moved":7,"#,
        r#""opened_out_of_place":7,"#,
        r#""rtt_ns":13000,"#,
        r#""min_rtt_ns":null,"#,
        r#""mtu":9000,"mtu_probed":false,"too_narrow":false}"#,
        r#""life":"absent","#,
        r#""cipher":null,"#,
        r#""dropped":{"malformed":0,"wrong_key":0,"#,
    ] {
        assert!(json.contains(part), "{part} in {json}");
    }
    assert!(json.contains(&format!("\"no_bypass\":\"{}\"", NoBypass::Full)));
}

#[test]
fn quote__escapes_what_json_does_not_allow() {
    let mut to = String::new();
    quote("a\"b\\c\nd\u{7}é", &mut to);
    assert_eq!(to, r#""a\"b\\c\u000ad\u0007é""#);
}
