//! The messages between the processes: over the connection, and as lines to the process that started them.

use crate::dice::Dice;

/// What is in the control of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// Which initiator this is: the first message.
    Hello,
    /// A payload that says which it is; answered by one.
    Chat,
    /// What the area has to hold, as payload; answered by `Agreed`.
    Check,
    /// It does. The number: Transfers that were sent back.
    Agreed,
    /// The immediate of this number was seen, its put in place.
    Seen,
}

const KINDS: [Kind; 5] = [
    Kind::Hello,
    Kind::Chat,
    Kind::Check,
    Kind::Agreed,
    Kind::Seen,
];

/// Kind and number.
pub fn control(kind: Kind, number: u64, padding: u64) -> Vec<u8> {
    let mut bytes = [(kind as u64).to_le_bytes(), number.to_le_bytes()].concat();
    bytes.resize(16 + padding as usize, 0xc0);
    bytes
}

pub fn read_control(bytes: &[u8]) -> (Kind, u64) {
    let number = |at: usize| {
        let word = bytes.get(at..at + 8).and_then(|it| it.try_into().ok());
        u64::from_le_bytes(word.expect("a word of control"))
    };
    assert!(bytes[16..].iter().all(|&byte| byte == 0xc0), "{bytes:x?}");
    (KINDS[number(0) as usize], number(8))
}

/// Bytes of the region where an initiator's puts with immediates go.
pub const BOARD: u64 = SLOTS * SLOT;
/// Places there: as many may be unanswered.
pub const SLOTS: u64 = 64;
const SLOT: u64 = 64 << 10;

/// Where the put with this immediate goes, its length and what it holds.
pub fn pinned(number: u32) -> (u64, u64, u64) {
    let offset = u64::from(number) % SLOTS * SLOT;
    let len = Dice::new(u64::from(number)).len(SLOT);
    (offset, len, u64::from(number) + 1)
}

/// Words that all initiators add to, and behind them those of each alone.
pub const SHARED_WORDS: u64 = 8;
pub const OWN_WORDS: u64 = 8;

/// Before a line for the parent: the test's harness writes to the same output.
pub const MARK: &str = "@soak ";
