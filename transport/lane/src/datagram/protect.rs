//! Gives the keys of a session to the sender and the receiver.

use super::receive::Receiver;
use super::send::Sender;
use crate::seal::{Opener, Sealer};
use zerolane_handshake::Session;

/// Makes both halves seal and open with the keys of `session` from now on. False if the cryptography refuses them: then
/// nothing is sent or received.
pub(crate) fn protect(sender: &mut Sender, receiver: &mut Receiver, session: Session) -> bool {
    let Session {
        send,
        receive,
        cipher,
        ..
    } = session;
    let sealer = Sealer::new(cipher, send);
    let opener = Opener::new(cipher, receive);
    match (sealer, opener) {
        (Some(sealer), Some(opener)) => {
            sender.protect(sealer);
            receiver.unsealer.protect(opener);
            true
        }
        _ => false,
    }
}
