//! Tests that the model changes modes when rate, queue or congestion require it.
#![allow(non_snake_case)]
use super::*;
use crate::congestion::Lateness;

const MS: Duration = Duration::from_millis(1);

/// The answer that ends round number `round`, of 10 ms.
fn answer(model: &mut Model, round: u32, rtt: Duration, rate: u64) {
    let sample = Sample {
        rtt,
        min_rtt: 10 * MS,
        rate,
        limited: false,
        received: 1000,
        marked: 0,
        under_way: 1 << 40,
        round: true,
        lateness: Lateness::default(),
    };
    use super::super::Congestion as _;
    model.on_progress(Instant::ZERO + 10 * MS * round, &sample);
}

#[test]
fn change_mode__up_goes_on_while_it_brings_more() {
    let mut model = Model::default();
    answer(&mut model, 1, 10 * MS, 1_000_000);
    model.enter(Instant::ZERO + 10 * MS, Mode::Up);
    answer(&mut model, 2, 10 * MS, 1_250_000);
    assert_eq!((model.mode, model.best), (Mode::Up, 1_250_000));
    answer(&mut model, 3, 10 * MS, 1_300_000);
    assert_eq!(model.mode, Mode::Down, "hardly more");
}

#[test]
fn change_mode__competition_ends_with_the_first_answer_without_a_queue() {
    let mut model = Model::default();
    answer(&mut model, 1, 20 * MS, 1_000_000);
    model.enter(Instant::ZERO + 10 * MS, Mode::Compete);
    answer(&mut model, 2, 20 * MS, 1_000_000);
    assert_eq!(model.mode, Mode::Compete);
    answer(&mut model, 3, 11 * MS, 1_000_000);
    assert_eq!(model.mode, Mode::Cruise);
    assert!(!model.delay.is_crowded());
}

/// A queue that stays however little is sent belongs to other flows.
#[test]
fn back_off__leaves_a_quarter_of_what_was_carried_lately() {
    let mut model = Model::default();
    answer(&mut model, 1, 10 * MS, 10_000_000);
    for round in 2..40 {
        answer(&mut model, round, 10 * MS, 100_000);
    }
    model.back_off(Instant::ZERO + 400 * MS, 0);
    assert_eq!(model.ceiling, Some(25_000));
}
