//! Defines a rule's test case, and the table of all of them.

use super::peer::{Peer, Role};
use super::victim::Ask;
use super::{
    advance, announce, bare, data, eager, finish, form, frames, grant, memory, owner, paths,
    protection, trains,
};
use zerolane::counters::DropReason;
use zerolane_handshake::Cipher;
use zerolane_wire::{Profile, RequestConnection};

/// A rule of docs/reference/protocol.md, and a peer that breaks it.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    /// As in rules.md.
    pub(super) name: &'static str,
    pub(super) script: fn(&mut Peer),
    /// Packets that the victim must drop and count, at least.
    pub(super) drops: &'static [(DropReason, u64)],
    /// Like `drops`, if the connection is sealed.
    pub(super) sealed_drops: &'static [(DropReason, u64)],
    /// The terms of the connection.
    pub(super) terms: Terms,
    /// The victim's request to the peer's memory.
    pub(super) ask: Option<Ask>,
    /// The end that can break the rule; both, unless given.
    pub(super) only: Option<Role>,
    /// The fate of the connection.
    pub(super) outcome: Outcome,
}

/// What the hostile peer offers, or chooses, when the connection is set up.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) profile: Profile,
    pub(super) checksum: bool,
    pub(super) advance: bool,
    pub(super) cipher: Cipher,
    /// Packets of the Responder before its answer.
    pub(super) before_answer: fn(&mut Peer, &RequestConnection),
}

/// The fate of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It continues, and the peer is answered.
    GoesOn,
    /// The peer has ended it, or its fate is unknown.
    Ended,
    /// The victim gives up the silent peer.
    GivenUp,
}

/// A rule that both ends can break, on an ordinary connection, which continues.
pub(super) const fn rule(name: &'static str, script: fn(&mut Peer)) -> Rule {
    Rule {
        name,
        script,
        drops: &[],
        sealed_drops: &[],
        terms: Terms {
            profile: Profile::Extended,
            checksum: false,
            advance: false,
            // Every end has it.
            cipher: Cipher::ChaCha20Poly1305,
            before_answer: |_, _| {},
        },
        ask: None,
        only: None,
        outcome: Outcome::GoesOn,
    }
}

impl Rule {
    pub(super) const fn drops(mut self, drops: &'static [(DropReason, u64)]) -> Rule {
        self.drops = drops;
        self
    }

    pub(super) const fn sealed_drops(mut self, drops: &'static [(DropReason, u64)]) -> Rule {
        self.sealed_drops = drops;
        self
    }

    pub(super) const fn classic(mut self) -> Rule {
        self.terms.profile = Profile::Classic;
        self
    }

    /// The connection allows grants in advance.
    pub(super) const fn advance(mut self) -> Rule {
        self.terms.advance = true;
        self
    }

    pub(super) const fn with_checksums(mut self) -> Rule {
        self.terms.checksum = true;
        self
    }

    /// With the cipher for which there are trains.
    pub(super) const fn with_trains(mut self) -> Rule {
        self.terms.cipher = Cipher::Aegis128X2;
        self
    }

    pub(super) const fn before_answer(mut self, say: fn(&mut Peer, &RequestConnection)) -> Rule {
        self.terms.before_answer = say;
        self.only(Role::Responder)
    }

    pub(super) const fn asking(mut self, ask: Ask) -> Rule {
        self.ask = Some(ask);
        self
    }

    pub(super) const fn only(mut self, role: Role) -> Rule {
        self.only = Some(role);
        self
    }

    pub(super) const fn outcome(mut self, outcome: Outcome) -> Rule {
        self.outcome = outcome;
        self
    }
}

/// All rules, in the order of rules.md.
pub(super) fn all() -> impl Iterator<Item = &'static Rule> {
    let parts = [
        form::RULES,
        protection::RULES,
        announce::RULES,
        data::RULES,
        grant::RULES,
        memory::RULES,
        owner::RULES,
        finish::RULES,
        eager::RULES,
        frames::RULES,
        bare::RULES,
        trains::RULES,
        advance::RULES,
        paths::RULES,
    ];
    parts.into_iter().flatten()
}
