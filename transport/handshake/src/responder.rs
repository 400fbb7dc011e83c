//! Computes the Responder's answers to the messages that the gate lets through.

use crate::code;
use crate::initiator::OFFER_LEN;
use crate::noise::{self, Role};
use crate::{
    Cipher, Ciphers, Credentials, HandshakeDatagram, PreShared, PublicKey, Session, VERSION,
};
use snow::HandshakeState;
use zerolane_wire::handshake::{HandshakeMessage, MAX_HANDSHAKE, Proof, Step};
use zerolane_wire::{Operation, Packet, PrivateData, Reason};

/// A client whose address and key are proven.
#[derive(Debug)]
pub struct Admitted {
    /// The keys of the connection.
    pub session: Session,
    /// Its Request_Connection.
    pub request: Packet,
    /// The private data of that.
    pub private_data: Option<PrivateData>,
    /// Whether the owner of its key is trusted. If not, refuse it under the session's keys.
    pub trusted: bool,
    /// Its last message, to recognize a repetition.
    pub finish: Box<[u8]>,
}

/// Result of a Hello.
pub(crate) struct Answered {
    pub(crate) state: HandshakeState,
    cipher: Cipher,
    pub(crate) datagram: HandshakeDatagram,
}

/// The Responder's part of an exchange. Deterministic, so it can be recomputed.
///
/// # Errors
/// The refusal, or `None` if the Hello deserves no answer.
pub(crate) fn respond(
    credentials: &Credentials,
    frame: &HandshakeMessage<'_>,
    hello: &[u8],
    ephemeral: &[u8; 32],
    key: u32,
) -> Result<Answered, Option<Reason>> {
    let started = noise::begin(Role::Responder, credentials, frame, *ephemeral);
    let mut state = started.map_err(|_| None)?;
    let mut payload = [0; MAX_HANDSHAKE];
    let len = state.read_message(hello, &mut payload).map_err(|_| None)?;
    let (offer, share) = payload[..len]
        .split_first_chunk::<OFFER_LEN>()
        .ok_or(None)?;
    let &[oldest, newest, ciphers, ..] = offer;
    if oldest > VERSION || newest < VERSION {
        return Err(Some(Reason::VersionMismatch));
    }
    let cipher = credentials.ciphers.common(Ciphers(ciphers));
    let cipher = cipher.ok_or(Some(Reason::OtherProtection))?;
    let mut choice = vec![VERSION, cipher as u8, 0, 0];
    if let Some(PreShared::Code(code)) = &credentials.pre_shared {
        let (agreement, own) = code::begin(Role::Responder, code, ephemeral);
        let key = agreement.finish(share).ok_or(None)?;
        noise::set_key(&mut state, &key).map_err(|_| None)?;
        choice.extend(own);
    } else if !share.is_empty() {
        return Err(None);
    }
    let mut body = [0; MAX_HANDSHAKE];
    let len = state.write_message(&choice, &mut body).map_err(|_| None)?;
    let datagram = back(frame, Step::Answer, Reason::Normal, key, &body[..len]);
    Ok(Answered {
        state,
        cipher,
        datagram,
    })
}

pub(crate) fn admit(
    done: &mut Answered,
    request: &[u8],
    credentials: &Credentials,
    finish: &[u8],
) -> Option<Admitted> {
    let private_data = PrivateData::of(request);
    let request = Packet::parse(request).ok()?;
    if !matches!(request.operation, Operation::RequestConnection(_)) {
        return None;
    }
    let state = &mut done.state;
    let peer = PublicKey(state.get_remote_static()?.try_into().ok()?);
    let [receive, send] = noise::split(state);
    Some(Admitted {
        session: Session {
            send,
            receive,
            cipher: done.cipher,
            peer,
        },
        request,
        private_data,
        trusted: credentials.trust.trusts(&peer),
        finish: finish.into(),
    })
}

/// A message in answer to `message`.
pub(crate) fn back(
    message: &HandshakeMessage<'_>,
    step: Step,
    reason: Reason,
    s_key: u32,
    body: &[u8],
) -> HandshakeDatagram {
    HandshakeDatagram::new(&HandshakeMessage {
        step,
        proof: Proof::None,
        reason,
        d_port: message.s_port,
        s_port: message.d_port,
        d_key: message.s_key,
        s_key,
        sync: message.sync,
        body,
    })
}

/// The refusal of a Hello by an end without protection. `None` if it is no Hello.
pub fn refuse_hello(datagram: &[u8], reason: Reason) -> Option<HandshakeDatagram> {
    let message = HandshakeMessage::parse(datagram).ok()?;
    (message.step == Step::Hello).then(|| back(&message, Step::Refusal, reason, 0, &[]))
}
