//! Adds, probes and removes the paths of a connection.

use super::Connection;
use crate::counters::{DropReason, PathState};
use crate::event::CloseReason;
use crate::links::{PathLife, Verdict};
use crate::recovery::Recovery;
use crate::time::Instant;
use crate::transmit::{ControlDatagram, Transmit};
use zerolane_wire::encapsulation::Encapsulation;
use zerolane_wire::{Nop, Operation, Packet};

impl Connection {
    /// Most paths of the connection at a time, the first included: the lower of both ends' limits.
    pub fn max_paths(&self) -> usize {
        self.cx.links.most
    }

    /// Highest bits of burst numbers that identify their path.
    pub fn path_bits(&self) -> u32 {
        self.cx.links.path_bits()
    }

    /// Whether the peer may add a path, so that datagrams of this connection may come from an unknown address.
    pub fn awaits_paths(&self) -> bool {
        let mut may = (1..self.max_paths()).map(|path| self.path_life(path));
        let open = |life| matches!(life, PathLife::Absent | PathLife::Suspect);
        self.session.is_established() && !self.session.is_initiator() && may.any(open)
    }

    /// Selects the path of the following calls: the path by which datagrams came, their marks, their size limit, the
    /// path to transmit by. Path 0, the first, unless this is called.
    pub fn select_path(&mut self, path: usize) {
        self.cx.links.selected = path;
    }

    /// State of path `path`.
    pub fn path_life(&self, path: usize) -> PathLife {
        self.cx.links.life(path)
    }

    /// The state of path `path` at `now`; `None` if it does not exist.
    pub fn state_of(&self, now: Instant, path: usize) -> Option<PathState> {
        let there = self.path_life(path) != PathLife::Absent;
        there.then(|| self.state_of_path(now, path))
    }

    /// Adds a path whose datagrams travel by `encapsulation`, and whose interface carries `datagram` bytes, header
    /// included. Returns its index. It carries nothing but questions until the peer answers one. For the Initiator.
    /// `None` if there may be no more paths, or the connection is not open.
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

    /// The path that the peer's `datagram`, from an unknown address, asks to add. For the Responder.
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
        // A live path is never replaced, whatever its claimed address.
        let free = matches!(self.path_life(path), PathLife::Absent | PathLife::Suspect);
        let open = self.session.is_established() && path > 0 && path < self.max_paths();
        let new = self.cx.links.is_new(path, nop.sync);
        (may && free && open && new).then_some(path)
    }

    /// Opens the path that [`Connection::joins`] returned. It carries nothing but answers until the peer repeats
    /// `nonce`, which must be unpredictable. Encapsulation and length are as in [`Connection::add_path`].
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

    /// Stops using path `path`, which is not the first. Tells the peer, and retransmits its payload in flight on the
    /// other paths. The lane may close its socket.
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

    /// Moves the payload in flight on path `path`, and control, to other paths.
    fn drop_link(&mut self, path: usize) {
        self.cx.links.close(path);
        self.sending.on_path_down(path);
        self.choose_control();
        self.cx.recovery_of_mut(path).forget();
        self.cx.arm_links();
    }

    /// Moves control to the shortest carrying path.
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

    /// Moves control to the next carrying path.
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

    /// Moves control to the path on which the peer was last heard.
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
        // An answer tells about the path it came by alone.
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

    /// Checks the paths that are due.
    pub(super) fn on_links_timeout(&mut self) {
        let busy = self.watches_peer() || self.cx.links.is_answering(self.cx.now);
        for path in 0..self.cx.links.most {
            let cx = &mut self.cx;
            // After few answers the deviation is unreliable.
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

    /// The reason to close because the first path does not carry the least size.
    pub(super) fn too_narrow(&self) -> CloseReason {
        let mtu = self.cx.path.least_mtu();
        CloseReason::PathTooNarrow { mtu }
    }

    /// Sends `operation` by the selected path.
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
