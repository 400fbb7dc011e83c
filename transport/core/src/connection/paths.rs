//! The paths of a connection: added, asked whether they are there, given up.

use super::Connection;
use crate::links::{PathLife, Verdict};
use crate::recovery::Recovery;
use crate::transmit::{ControlDatagram, Transmit};
use crate::{DropReason, Instant, PathState};
use zerolane_wire::encapsulation::Encapsulation;
use zerolane_wire::{Nop, Operation, Packet};

impl Connection {
    /// Paths that the connection may have at a time, the first included: what both ends take.
    pub fn max_paths(&self) -> usize {
        self.cx.links.most
    }

    /// Highest bits of the numbers of bursts that say their path.
    pub fn path_bits(&self) -> u32 {
        self.cx.links.path_bits()
    }

    /// Whether the peer may add a path, so that something may come for this connection from an address that is none of its
    /// paths'.
    pub fn awaits_paths(&self) -> bool {
        let mut may = (1..self.max_paths()).map(|path| self.path_life(path));
        let open = |life| matches!(life, PathLife::Absent | PathLife::Suspect);
        self.session.is_established() && !self.session.is_initiator() && may.any(open)
    }

    /// What is shown, asked and told from here on is of path `path`: datagrams that came by it and how they were
    /// marked, its datagram size, what leaves by it. The first one, 0, unless this is called.
    pub fn select_path(&mut self, path: usize) {
        self.cx.links.selected = path;
    }

    /// Where path `path` stands.
    pub fn path_life(&self, path: usize) -> PathLife {
        self.cx.links.life(path)
    }

    /// What is known of path `path` at `now`: `None` if there is none.
    pub fn state_of(&self, now: Instant, path: usize) -> Option<PathState> {
        let there = self.path_life(path) != PathLife::Absent;
        there.then(|| self.state_of_path(now, path))
    }

    /// One path more, whose datagrams travel by `encapsulation`, and whose interface carries such of `datagram` bytes, header
    /// included: its index. The peer is asked by it whether it is there, and it carries nothing else before the answer. For the
    /// Initiator; `None` if there may be no more, or the connection is not open.
    pub fn add_path(
        &mut self,
        now: Instant,
        (encapsulation, datagram): (Encapsulation, usize),
    ) -> Option<usize> {
        self.cx.enter(now);
        if !self.session.is_initiator() || !self.session.is_established() {
            return None;
        }
        let path = self.cx.links.free()?;
        self.open_link(path, (encapsulation, datagram), None);
        Some(path)
    }

    /// The path that `datagram` of the peer asks to add, which came from an address that is none of its paths'. For
    /// the Responder.
    pub fn joins(&self, datagram: &[u8]) -> Option<usize> {
        let packet = Packet::parse(datagram).ok()?;
        let Operation::Nop(nop) = packet.operation else {
            return None;
        };
        let ours = self
            .session
            .owns(&self.cx, packet.route.d_port, packet.route.d_key);
        let path = usize::from(nop.path);
        let may = ours && nop.send_state && !self.session.is_initiator();
        // One that stands is not replaced, wherever somebody says that it is.
        let free = matches!(self.path_life(path), PathLife::Absent | PathLife::Suspect);
        let open = self.session.is_established() && path > 0 && path < self.max_paths();
        let new = self.cx.links.is_new(path, nop.sync);
        (may && free && open && new).then_some(path)
    }

    /// The path that [`Connection::joins`] told of is to be. It carries nothing but answers before the peer repeated
    /// `nonce`, which cannot be guessed. What carries its datagrams, and how long they may be, is as in
    /// [`Connection::add_path`].
    pub fn accept_path(
        &mut self,
        now: Instant,
        path: usize,
        (encapsulation, datagram): (Encapsulation, usize),
        nonce: u32,
    ) {
        self.cx.enter(now);
        if path > 0 && path < self.max_paths() {
            self.drop_link(path);
            self.open_link(path, (encapsulation, datagram), Some(nonce));
        }
    }

    /// Path `path`, which is not the first, is used no more: the peer is told, and what it had in flight goes by others.
    /// The lane may close its socket.
    pub fn remove_path(&mut self, now: Instant, path: usize) {
        self.cx.enter(now);
        if path == 0 || self.path_life(path) == PathLife::Absent {
            return;
        }
        self.drop_link(path);
        let leaves = Nop {
            leaves: true,
            path: path as u8,
            sync: self.cx.new_sync(),
            ..Nop::default()
        };
        self.cx.push_control(Operation::Nop(leaves));
        self.settle();
    }

    fn open_link(&mut self, path: usize, size: (Encapsulation, usize), nonce: Option<u32>) {
        self.cx.links.open(self.cx.now, path, size, nonce);
        self.cx.arm_links();
    }

    /// What path `path` had in flight goes by others, and so does control.
    fn drop_link(&mut self, path: usize) {
        self.cx.links.close(path);
        self.sending.on_path_down(path);
        self.choose_control();
        self.cx.recovery_of_mut(path).forget();
        self.cx.arm_links();
    }

    /// Control goes by the shortest path that carries.
    fn choose_control(&mut self) {
        let cx = &mut self.cx;
        let better = match cx.links.is_several() {
            true => cx.links.better_control(|path| cx.recovery_of(path).rtt()),
            false => Some(0),
        };
        if let Some(path) = better.filter(|&it| it != cx.links.control) {
            cx.set_control(path);
        }
    }

    /// Control goes by the next path that carries.
    pub(super) fn turn_control(&mut self) {
        let links = &self.cx.links;
        let control = links.control;
        let behind = links.carrying().find(|&it| it > control);
        if let Some(path) = behind.or_else(|| links.carrying().next())
            && path != control
        {
            self.cx.set_control(path);
        }
    }

    /// Control goes by the path that the peer was heard by last.
    pub(super) fn follow_control(&mut self) {
        let links = &self.cx.links;
        let selected = links.selected;
        if links.is_several() && selected != links.control && links.get(selected).is_some() {
            self.cx.set_control(selected);
        }
    }

    pub(super) fn on_nop(&mut self, it: &Nop) -> Result<(), DropReason> {
        let cx = &mut self.cx;
        let path = usize::from(it.path);
        if it.leaves {
            if path == 0 || cx.links.get(path).is_none() {
                return Err(DropReason::Unexpected);
            }
            cx.links.on_asked(path, it.sync);
            self.drop_link(path);
            return Ok(());
        }
        // It tells of the way it came, and of no other.
        if path != 0 && (path != cx.links.selected || cx.links.get(path).is_none()) {
            return Err(DropReason::Unexpected);
        }
        if it.reply
            && cx.links.is_several()
            && let Some((took, verdict)) = cx.links.on_answer(cx.now, it)
        {
            let (now, selected) = (cx.now, cx.links.selected);
            if let Some(took) = took {
                cx.recovery_of_mut(selected).asked(now, took);
            }
            if let Some(verdict) = verdict {
                self.on_verdict(verdict);
            }
            self.choose_control();
            self.cx.arm_links();
            return Ok(());
        }
        if it.send_state {
            cx.links.on_asked(path, it.sync);
        }
        self.session.on_nop(&mut self.cx, it);
        Ok(())
    }

    /// Looks at the paths that are to be looked at.
    pub(super) fn on_links_timeout(&mut self) {
        let busy = self.is_busy() || self.cx.links.is_answering(self.cx.now);
        for path in 0..self.cx.links.most {
            let cx = &mut self.cx;
            // Of few answers the deviation says little.
            let bound = |it: &Recovery| {
                let rtt = it.rtt()?;
                Some(rtt + (it.deviation() * 4).clamp(rtt / 4, rtt / 2))
            };
            let own = cx.links.get(path).and_then(|it| bound(&it.answers));
            let patience = own.map(|own| own.max(bound(cx.recovery_of(path)).unwrap_or(own)));
            let bounds = (cx.path.confirmed(), cx.config.idle_timeout);
            let syncs = [cx.new_sync(), cx.new_sync()];
            let verdict = cx.links.look(cx.now, path, busy, patience, bounds, syncs);
            if let Some(verdict) = verdict {
                self.on_verdict(verdict);
            }
        }
        self.choose_control();
        self.cx.arm_links();
    }

    fn on_verdict(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Up(path) => self.sending.on_path_up(&self.cx, path),
            Verdict::Down(path) => {
                self.cx.counters.paths_lost += 1;
                self.sending.on_path_down(path);
            }
            Verdict::Gone(path) => self.drop_link(path),
        }
    }

    /// `operation` leaves by the selected path.
    pub(super) fn path_control(&mut self, operation: Operation) -> Transmit {
        self.cx.counters.control_sent += 1;
        let pad_to = match &operation {
            Operation::Nop(nop) if !nop.reply => nop.probe as usize,
            _ => 0,
        };
        let packet = Packet {
            route: self.cx.route,
            operation,
        };
        Transmit::Control(ControlDatagram::new(&packet, pad_to))
    }
}
