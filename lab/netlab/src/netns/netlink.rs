//! Sends netlink requests to the kernel of one namespace, one at a time, and waits for each answer.

use super::Namespace;
use super::error::{Error, Result};
use netlink_packet_core::{
    ErrorMessage, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_REQUEST, NetlinkDeserializable,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable, NlasIterator, parse_string,
};
use netlink_sys::{Socket, SocketAddr};
use std::io;

/// Most datagrams of one answer: no request here has more than a few.
const MAX_ANSWER_DATAGRAMS: usize = 64;

/// Bytes of the header of the request that a refusal repeats.
const NLMSG_HEADER_LEN: usize = 16;
/// Attribute of a refusal: what the kernel says of it (`NLMSGERR_ATTR_MSG`).
const REFUSAL_TEXT: u16 = 1;

/// A connection to the kernel of one namespace.
#[derive(Debug)]
pub(super) struct Netlink {
    socket: Socket,
    /// The namespace, for messages.
    name: String,
}

impl Netlink {
    /// Connects to the kernel of `namespace`: a socket stays in the namespace in which it was made.
    pub(super) fn open(namespace: &Namespace, protocol: isize) -> Result<Netlink> {
        let socket = namespace
            .enter_thread(|| connect(protocol))?
            .map_err(|error| Error::io("open a netlink socket", error))?;
        Ok(Netlink {
            socket,
            name: namespace.name().to_owned(),
        })
    }

    /// Sends a request and returns what the kernel answered before it confirmed. `asked` says in words what the request is
    /// for, and is what an error repeats.
    pub(super) fn ask<M>(&self, asked: &str, message: M, flags: u16) -> Result<Vec<M>>
    where
        M: NetlinkSerializable + NetlinkDeserializable,
        NetlinkPayload<M>: From<M>,
    {
        self.request(message, flags)
            .map_err(|error| Error::io(format!("{asked} in {}", self.name), error))
    }

    fn request<M>(&self, message: M, flags: u16) -> io::Result<Vec<M>>
    where
        M: NetlinkSerializable + NetlinkDeserializable,
        NetlinkPayload<M>: From<M>,
    {
        let mut request =
            NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        for _ in 0..MAX_ANSWER_DATAGRAMS {
            let (datagram, _) = self.socket.recv_from_full()?;
            if take(&datagram, &mut answers)? {
                return Ok(answers);
            }
        }
        Err(io::Error::other("the answer has no end"))
    }
}

fn connect(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    // Kernels before 4.12 refuse without words.
    let _ = socket
        .set_ext_ack(true)
        .and_then(|()| socket.set_cap_ack(true));
    Ok(socket)
}

/// Adds the messages of a datagram to `answers`; whether the answer ends with them.
fn take<M: NetlinkDeserializable>(datagram: &[u8], answers: &mut Vec<M>) -> io::Result<bool> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let message = NetlinkMessage::<M>::deserialize(rest).map_err(io::Error::other)?;
        match message.payload {
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) if error.code.is_none() => return Ok(true),
            NetlinkPayload::Error(error) => return Err(refusal(message.header.flags, &error)),
            NetlinkPayload::InnerMessage(answer) => answers.push(answer),
            _ => {}
        }
        // Messages begin at multiples of 4 bytes.
        let len = (message.header.length as usize).next_multiple_of(4);
        rest = rest.get(len.max(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The error that the kernel gives, with its words where it has some.
fn refusal(flags: u16, error: &ErrorMessage) -> io::Error {
    let code = error.to_io();
    let has_words = NLM_F_CAPPED | NLM_F_ACK_TLVS;
    if flags & has_words != has_words {
        return code;
    }
    let attributes = error.header.get(NLMSG_HEADER_LEN..).unwrap_or_default();
    let mut texts = NlasIterator::new(attributes)
        .flatten()
        .filter(|it| it.kind() == REFUSAL_TEXT);
    match texts.next().and_then(|it| parse_string(it.value()).ok()) {
        Some(text) => io::Error::new(code.kind(), format!("{text} ({code})")),
        None => code,
    }
}
