//! Tests that a cast enters each rack once.

use std::time::Duration;

use zerolane_cast::Slow;

use super::group::{Group, content, host, run};
use crate::{Cast, Racks};

/// With eight hosts chance enters the other rack once, after the source's, in one case of 70.
#[test]
fn racks__of_a_list_are_entered_once_by_a_chain() {
    let group = Group::new();
    let bytes = content(7, 4_000_000);
    let source = group.file("source", &bytes);
    // Nothing but the racks orders them, also where one waits for the processor.
    let silence = Duration::from_secs(60);
    let places = (0..8).map(|it| group.to(it)).collect();
    let hosts = group.start_with(|it| it.with_silence(silence), places, |_, _| {});
    // By turns, as they are called.
    let rack_of = |index: usize| ["left", "right"][index % 2];
    let names: Vec<String> = hosts.addresses.iter().map(|it| host(*it).name).collect();
    let lines = names.iter().enumerate();
    let lines = lines.map(|(index, name)| format!("{name} {}\n", rack_of(index)));
    let list = lines.collect::<String>() + "- left\n";
    let cast = Cast {
        racks: Racks::listed(&list).unwrap(),
        slow: Slow::Wait,
        silence,
        gather: Duration::from_secs(60),
        ..hosts.calls()
    };
    let outcome = run(&group, cast, &source, |_| {}).unwrap();
    hosts.join().into_iter().for_each(|it| drop(it.unwrap()));
    for index in 0..8 {
        assert!(
            std::fs::read(group.target(index)).unwrap() == bytes,
            "host {index}"
        );
    }
    assert_eq!(outcome.racks, 2);
    let rack_of_name = |name: &String| {
        let index = names.iter().position(|it| it == name);
        rack_of(index.expect("it was called"))
    };
    let mut crossings = 0;
    for (index, it) in outcome.hosts.iter().enumerate() {
        assert_eq!(it.from.len(), 1, "{outcome:?}");
        let above = it.from[0].as_ref().map_or("left", rack_of_name);
        crossings += usize::from(above != rack_of(index));
    }
    assert_eq!(crossings, 1, "{outcome:?}");
}

#[test]
fn racks__a_host_that_the_list_does_not_name_is_said_and_nothing_is_cast() {
    let group = Group::new();
    let source = group.file("source", &content(8, 1000));
    let cast = Cast {
        hosts: vec![host("127.0.0.1:9".parse().unwrap())],
        racks: Racks::listed("n1 left").unwrap(),
        ..Cast::default()
    };
    let error = run(&group, cast, &source, |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "racks: no line names 127.0.0.1:9");
}
