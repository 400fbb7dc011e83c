//! Tests that the receive window follows the path and shrinks after overruns.
#![allow(non_snake_case)]
use super::*;

const MS: Duration = Duration::from_millis(1);
const BASE: u32 = 2 << 20;

/// Receives `rate` bytes a millisecond for `millis`, from `now` on.
fn feed(credit: &mut ReceiveWindow, now: &mut Instant, millis: u32, rate: u32, rtt: Duration) {
    for _ in 0..millis {
        *now = *now + MS;
        credit.arrived(*now, rate, Some(rtt));
    }
}

#[test]
fn window__short_path_keeps_the_base() {
    let (mut credit, mut now) = (ReceiveWindow::new(BASE, 128 << 20), Instant::ZERO);
    // 48 Gb/s with a round trip of 60 us: a third of a megabyte.
    feed(&mut credit, &mut now, 1000, 6_000_000, MS * 60 / 1000);
    assert_eq!(credit.window(), BASE);
}

#[test]
fn window__grows_while_it_is_what_limits_and_fills_a_long_path() {
    let (mut credit, mut now) = (ReceiveWindow::new(BASE, 128 << 20), Instant::ZERO);
    let (rtt, line) = (100 * MS, 125_000);
    for _ in 0..8 {
        let rate = (credit.window() / 100).min(line);
        feed(&mut credit, &mut now, 101, rate, rtt);
    }
    // 1 Gb/s over 100 ms is 12.5 MB.
    assert!(credit.window() > 37_000_000, "{}", credit.window());
    assert!(credit.window() < 42_000_000, "{}", credit.window());
}

#[test]
fn window__ends_at_the_budget() {
    let (mut credit, mut now) = (ReceiveWindow::new(BASE, 10 << 20), Instant::ZERO);
    feed(&mut credit, &mut now, 1000, 1_250_000, 50 * MS);
    assert_eq!(credit.window(), 10 << 20);
    assert_eq!(ReceiveWindow::new(BASE, 0).window(), BASE);
}

#[test]
fn window__shrinks_when_less_comes() {
    let (mut credit, mut now) = (ReceiveWindow::new(BASE, 128 << 20), Instant::ZERO);
    feed(&mut credit, &mut now, 1000, 125_000, 50 * MS);
    assert!(credit.window() > 10_000_000);
    feed(&mut credit, &mut now, 2 * 32 * 51, 1000, 50 * MS);
    assert!(credit.window() < BASE + 200_000, "{}", credit.window());
}

#[test]
fn overrun__grants_no_more_than_arrives_for_a_while() {
    let (mut credit, mut now) = (ReceiveWindow::new(BASE, 128 << 20), Instant::ZERO);
    let line = 125_000;
    let round = 51 * line;
    feed(&mut credit, &mut now, 1000, line, 50 * MS);
    assert!(credit.window() >= BASE + 3 * 49 * line);
    credit.overrun(now);
    // Enough to continue at this rate, not to accelerate.
    let most = BASE + round;
    assert!(
        (BASE + 49 * line..=most).contains(&credit.window()),
        "{}",
        credit.window()
    );
    feed(&mut credit, &mut now, 900, line, 50 * MS);
    assert!(
        (BASE + 49 * line..=most).contains(&credit.window()),
        "{}",
        credit.window()
    );
    feed(&mut credit, &mut now, 200, line, 50 * MS);
    assert!(credit.window() >= BASE + 3 * 49 * line);
}

#[test]
fn overrun__forgets_what_arrived_faster_before() {
    let (mut credit, mut now) = (ReceiveWindow::new(BASE, 128 << 20), Instant::ZERO);
    feed(&mut credit, &mut now, 500, 125_000, 50 * MS);
    feed(&mut credit, &mut now, 102, 12_500, 50 * MS);
    credit.overrun(now);
    assert!(credit.window() <= BASE + 51 * 12_500, "{}", credit.window());
}
