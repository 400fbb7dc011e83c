//! Answers what peers ask for: connecting and listening on their behalf, as far as the rules allow.

use super::{
    Forward, Forwarder, Listen, Listener, MAX_LEASES, Notice, Owner, Request, Target, Use, in_words,
};
use crate::message::{ResetCode, StreamId};
use rustix::net::sockopt;
use std::io;
use std::net::TcpStream;
use zerolane::worker::ConnectionId;

impl Forwarder {
    /// The peer opened a stream.
    pub(super) fn on_opened(&mut self, id: ConnectionId, stream: StreamId) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let key = peer.key;
        match Request::parse(peer.session.engine.purpose(stream)) {
            Some(Request::Connect(target)) => match self.rules.may_connect(key, &target) {
                true => self.dial(id, stream, target),
                false => {
                    let words = format!(
                        "this key may not connect to {target}: its line in the other end's list of keys needs connect={target}"
                    );
                    self.refuse(id, stream, ResetCode::Denied, &words);
                }
            },
            Some(Request::Listen(target)) => match self.rules.may_listen(key, &target) {
                true => self.lease(id, stream, target),
                false => {
                    let words = format!(
                        "this key may not listen on {target}: its line in the other end's list of keys needs listen={target}"
                    );
                    self.refuse(id, stream, ResetCode::Denied, &words);
                }
            },
            Some(Request::From(asked)) => {
                let asked = peer.uses.get(&StreamId(asked));
                let forwards = self.uplink.as_ref().map(|it| &it.forwards);
                let forward = match asked {
                    Some(&Use::Asked(index)) => forwards.and_then(|it| it.get(index)),
                    _ => None,
                };
                match forward {
                    Some(Forward::Back { target, .. }) => {
                        let target = target.clone();
                        self.dial(id, stream, target);
                    }
                    _ => self.refuse(
                        id,
                        stream,
                        ResetCode::Denied,
                        "nobody asked to listen for this",
                    ),
                }
            }
            None => {
                let words = "the other end does not know this request: install the same version at both ends";
                self.refuse(id, stream, ResetCode::Unreachable, words);
            }
        }
    }

    fn dial(&mut self, id: ConnectionId, stream: StreamId, target: Target) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.uses.insert(stream, Use::Dials);
            self.dials.dial((id, stream), target);
        }
    }

    fn refuse(&mut self, id: ConnectionId, stream: StreamId, code: ResetCode, words: &str) {
        let Some(peer) = self.peers.get_mut(&id) else {
            return;
        };
        let asked = String::from_utf8_lossy(peer.session.engine.purpose(stream));
        let name = &peer.name;
        let notice = format!("{name}: {}: refused", asked.escape_debug());
        (self.notify)(Notice::Refused(notice));
        peer.uses.remove(&stream);
        peer.session.engine.reset(stream, code, words);
        peer.session.engine.release(stream);
        self.changed.insert(id);
    }

    /// Listens for a peer, as long as its stream is open.
    fn lease(&mut self, id: ConnectionId, stream: StreamId, target: Target) {
        let leases = |owner: &Owner| matches!(owner, Owner::Peer(it, _) if *it == id);
        let count = self
            .listeners
            .values()
            .filter(|(_, owner)| leases(owner))
            .count();
        if count >= MAX_LEASES {
            let words = format!("{MAX_LEASES} listeners are open for this connection already");
            return self.refuse(id, stream, ResetCode::TooMany, &words);
        }
        let bound = Listener::bind(&Listen::Tcp(target));
        let watched = bound.and_then(|it| self.watch_listener(it, Owner::Peer(id, stream)));
        match watched {
            Ok(number) => {
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.uses.insert(stream, Use::Lease(number));
                    peer.session.engine.accept(stream);
                    self.changed.insert(id);
                }
            }
            Err(error) => self.refuse(id, stream, ResetCode::Unreachable, &in_words(&error)),
        }
    }

    /// Takes the connections to targets that are made, or have failed.
    pub(super) fn take_dialed(&mut self) {
        while let Some(((id, stream), made)) = self.dials.next() {
            let Some(peer) = self.peers.get_mut(&id) else {
                continue;
            };
            // The stream may have been reset meanwhile.
            if peer.uses.get(&stream) != Some(&Use::Dials) {
                continue;
            }
            match made.and_then(|it| nonblocking(&it).map(|()| it)) {
                Ok(socket) => {
                    peer.session.engine.accept(stream);
                    self.join(socket.into(), id, stream);
                }
                Err(error) => {
                    let asked = peer.session.engine.purpose(stream);
                    let target = match Request::parse(asked) {
                        Some(Request::Connect(target)) => target.to_string(),
                        _ => "the target".to_owned(),
                    };
                    let words = format!("cannot connect to {target}: {error}");
                    self.refuse(id, stream, ResetCode::Unreachable, &words);
                }
            }
        }
    }
}

fn nonblocking(socket: &TcpStream) -> io::Result<()> {
    let _ = sockopt::set_tcp_nodelay(socket, true);
    socket.set_nonblocking(true)
}
