//! Tests that stacks are classed by the right cause.
#![allow(non_snake_case)]
use super::*;
use crate::stack::unfold;

/// Stacks recorded on a machine, each behind its cause; the file says how that was found.
const RECORDED: &str = include_str!("recorded_stacks.txt");

fn cause_of(folded: &str) -> Option<Cause> {
    Rules::new().classify(&unfold(folded))
}

#[test]
fn classify__recorded_stacks() {
    let rules = Rules::new();
    let lines = RECORDED.lines().filter(|it| !it.starts_with('#'));
    let mut wrong = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for line in lines {
        let (cause, stack) = line.split_once(' ').expect("a cause and a stack");
        let found = rules
            .classify(&unfold(stack))
            .map_or("unexplained", Cause::name);
        seen.insert(cause);
        if found != cause {
            wrong.push(format!("{cause}, not {found}: {stack}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for cause in Cause::ALL {
        assert!(seen.contains(cause.name()), "no recorded stack: {cause:?}");
    }
}

#[test]
fn classify__the_first_rule_from_the_leaf_decides() {
    let below = "p;tcp_recvmsg_[k];skb_copy_datagram_iter_[k];memcpy_[k]";
    assert_eq!(cause_of(below), Some(Cause::PayloadCopy));
    let lock = "p;tcp_recvmsg_[k];_raw_spin_lock_[k]";
    assert_eq!(cause_of(lock), Some(Cause::Protocol));
    let part = "p;tcp_recvmsg_locked.constprop.0_[k];[unknown]_[k]";
    assert_eq!(cause_of(part), Some(Cause::Protocol));
}

#[test]
fn classify__what_calls_everything_explains_nothing() {
    let unknown =
        "p;main`main;entry_SYSCALL_64_after_hwframe_[k];do_syscall_64_[k];no_such_function_[k]";
    assert_eq!(cause_of(unknown), None);
    let own = "p;main`main;entry_SYSCALL_64_after_hwframe_[k];do_syscall_64_[k]";
    assert_eq!(cause_of(own), Some(Cause::SystemCall));
    let called_by_known = "p;p`aegis_encrypt;do_syscall_64_[k];no_such_function_[k]";
    assert_eq!(cause_of(called_by_known), None);
    assert_eq!(cause_of("p"), None);
}

#[test]
fn classify__programs_by_symbol_then_by_file() {
    assert_eq!(
        cause_of("p;p`main;p`aegis128l_update"),
        Some(Cause::Encryption)
    );
    assert_eq!(
        cause_of("p;p`main;[libcrypto.so.3]"),
        Some(Cause::Encryption)
    );
    assert_eq!(
        cause_of("p;[libcrypto.so.3];p`callback"),
        Some(Cause::Program)
    );
    assert_eq!(cause_of("p;[anything]"), Some(Cause::Program));
}

#[test]
fn fits__any_number_of_stars() {
    for (pattern, name, fitting) in [
        ("tcp_*", "tcp_ack", true),
        ("tcp_*", "tcp_", true),
        ("tcp_*", "udp_ack", false),
        ("*spin*", "a::spin_loop", true),
        ("*a*b", "xaxb", true),
        ("*a*b", "xaxc", false),
        ("exact", "exact", true),
        ("exact", "exactly", false),
    ] {
        assert_eq!(fits(pattern, name), fitting, "{pattern} {name}");
    }
}

#[test]
fn read__a_wrong_line_is_an_error() {
    for wrong in [
        "speed kernel f",
        "idle nowhere f",
        "idle",
        "idle kernel f\nmemory kernel f",
    ] {
        assert!(Rules::read(wrong).is_err(), "{wrong}");
    }
    let rules = Rules::read("# nothing\n\nidle kernel f # behind\n").unwrap();
    assert_eq!(rules.exact.len(), 1);
}
