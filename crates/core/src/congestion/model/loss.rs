//! What is lost, and when it tells of congestion.

use super::Round;

/// Loss in a round, with a queue, that means congestion: parts per thousand, on top of one and a half
/// times what is lost without a queue. And for how many rounds in a row: one may be a slow moment of an end.
const LOSS_PERMILLE: u64 = 10;
pub(super) const FULL_QUEUE_ROUNDS: u32 = 2;
/// Loss that means congestion without one, and for how many rounds in a row: a queue too short to be
/// felt in the round trip.
const HEAVY_LOSS_PERMILLE: u64 = 125;
const HEAVY_ROUNDS: u32 = 3;

/// What is known of loss.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    /// Loss in rounds without a queue, in 16ths of a part per thousand.
    usual: u64,
    /// Rounds of loss with a queue, and of heavy loss, in a row.
    full_rounds: u32,
    heavy_rounds: u32,
}

impl Losses {
    /// Whether more is lost in this round than is without a queue.
    pub(super) fn is_unusual(&self, round: &Round) -> bool {
        let usual = self.usual / 16;
        round.permille() > usual + usual / 2
    }

    /// Takes in a round; whether it means congestion. `enough` rounds of a full queue do.
    pub(super) fn note_round(&mut self, round: &Round, queued: bool, enough: u32) -> bool {
        let permille = round.permille();
        if !queued {
            // In 16ths, over some sixteen rounds.
            self.usual = self.usual - self.usual / 16 + permille;
        }
        let usual = self.usual / 16;
        let full = queued && permille > LOSS_PERMILLE + usual + usual / 2;
        let count = |rounds: u32, it: bool| if it { rounds + 1 } else { 0 };
        self.full_rounds = count(self.full_rounds, full);
        self.heavy_rounds = count(self.heavy_rounds, permille > HEAVY_LOSS_PERMILLE);
        self.full_rounds >= enough || self.heavy_rounds >= HEAVY_ROUNDS
    }
}
