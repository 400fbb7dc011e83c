//! Defines the messages between the soak's processes, over connections and as lines to their parent.

use crate::dice::Dice;

/// The content of a message's control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// The number of the initiator: the first message.
    Hello,
    /// A payload that contains its name; answered by one.
    Chat,
    /// The expected content of the area, as payload; answered by `Agreed`.
    Check,
    /// The area matches. The number: Transfers that were sent back.
    Agreed,
    /// The immediate with this number was received, with its put in place.
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

/// Size of the region for an initiator's puts with immediates, bytes.
pub const BOARD: u64 = SLOTS * SLOT;
/// Places there: as many may be unanswered.
pub const SLOTS: u64 = 64;
const SLOT: u64 = 64 << 10;

/// The place of the put with this immediate, its length and its content.
pub fn pinned(number: u32) -> (u64, u64, u64) {
    let offset = u64::from(number) % SLOTS * SLOT;
    let len = Dice::new(u64::from(number)).len(SLOT);
    (offset, len, u64::from(number) + 1)
}

/// Words that all initiators add to, followed by those of each alone.
pub const SHARED_WORDS: u64 = 8;
pub const OWN_WORDS: u64 = 8;

/// Marks a line for the parent, because the test harness writes to the same output.
pub const MARK: &str = "@soak ";
