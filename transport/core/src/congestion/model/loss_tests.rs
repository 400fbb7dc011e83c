//! Tests that loss is classified as congestion or as the path's own.
#![allow(non_snake_case)]
use super::*;

const S: Duration = Duration::from_secs(1);

fn at(seconds: u32) -> Instant {
    Instant::ZERO + S * seconds
}

/// A round with this loss, parts per thousand.
fn round(permille: u64) -> Round {
    Round {
        received: (1000 - permille) * 1000,
        lost: permille * 1000,
        samples: 1,
        ..Round::default()
    }
}

#[test]
fn note_round__loss_with_a_queue_is_congestion() {
    let note =
        |losses: &mut Losses, queued, stage| losses.note_round(at(1), &round(50), queued, stage);
    let losses = &mut Losses::default();
    assert_eq!(
        note(losses, true, Stage::Steady),
        Finding::Usual,
        "one is a slow moment"
    );
    assert_eq!(note(losses, true, Stage::Steady), Finding::Full);
    assert_eq!(
        note(&mut Losses::default(), true, Stage::Doubling),
        Finding::Full
    );
    let losses = &mut Losses::default();
    for _ in 0..10 {
        assert_eq!(
            note(losses, false, Stage::Steady),
            Finding::Usual,
            "no queue"
        );
    }
}

/// State after a trial that ended at second 1 with the loss as the path's own.
fn cleared(permille: u64) -> Losses {
    let mut losses = Losses::default();
    for number in 1..30 {
        let found = losses.note_round(at(1), &round(permille), false, Stage::Steady);
        match found {
            Finding::Own => return losses,
            Finding::Trial => assert_eq!(number, HEAVY_ROUNDS),
            _ => assert_eq!(losses.is_trying(), number > HEAVY_ROUNDS),
        }
    }
    panic!("the trial does not end");
}

#[test]
fn note_round__own_loss_is_tried_again_after_its_time() {
    let mut losses = cleared(200);
    assert_eq!(losses.own(), 200);
    for second in 2..11 {
        let found = losses.note_round(at(second), &round(200), false, Stage::Steady);
        assert_eq!(found, Finding::Usual, "second {second}");
    }
    let found = losses.note_round(at(11), &round(200), false, Stage::Steady);
    assert_eq!(found, Finding::Trial);
    assert_eq!(
        (losses.own(), losses.is_trying()),
        (0, true),
        "nothing is made good for meanwhile"
    );
}

#[test]
fn note_round__own_loss_is_tried_again_when_a_queue_shows() {
    let mut losses = cleared(200);
    // The loss is as usual: no congestion.
    for _ in 0..16 {
        losses.note_round(at(2), &round(200), false, Stage::Steady);
    }
    assert_eq!(
        losses.note_round(at(2), &round(200), true, Stage::Steady),
        Finding::Usual
    );
    assert_eq!(
        losses.note_round(at(2), &round(200), true, Stage::Steady),
        Finding::Trial
    );
}
