//! Keys for both halves of what sends and receives.

use super::receive::Receiver;
use super::send::Sender;
use crate::seal::{Opener, Sealer};
use zerolane_handshake::Session;

/// Has both halves seal and open with the keys of `session` from here on. False if the cryptography refuses them: nothing is
/// sent or received then.
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
            receiver.protect(opener);
            true
        }
        _ => false,
    }
}
