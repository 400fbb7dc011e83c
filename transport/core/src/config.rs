//! Defines the settings of one end of a connection, which its user chooses before connecting.

use crate::congestion::Control;
use crate::limits;
use core::time::Duration;
use zerolane_wire::{
    Capabilities, Eager, MAX_PATHS, PrivateData, Profile, Profiles, encapsulation::Encapsulation,
};

/// D_Port of a Request_Connection, unless [`Config::service_port`] differs. There is one service behind a UDP port.
pub const SERVICE_PORT: u16 = 1;

/// Settings of one end of a connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// Profiles offered or accepted. The peer chooses one of these. The classic profile, which has neither congestion
    /// control nor selective repair, is off by default.
    pub profiles: Profiles,
    /// Unanswered announcements held for the peer, 1 to [`limits::MAX_SLOTS`].
    pub slots: u16,
    /// Bytes granted and not yet received, on a short path: as many as the lane's socket buffer holds, so that it
    /// cannot overflow.
    pub window: u32,
    /// Bytes granted and not yet received, at most, on a long path, where the window grows as needed.
    pub max_window: u32,
    /// The congestion controller (extended profile).
    pub control: Control,
    /// Largest payload rate, bytes per second, repeats included and headers excluded. `None`: grants and
    /// [`Config::control`] alone limit it. Does not limit received payload.
    pub max_rate: Option<u64>,
    /// Target length of a Block (extended profile), bytes.
    pub block: u32,
    /// Largest STU payload that this end accepts, bytes.
    pub max_stu: u32,
    /// Most segments in one burst. Blocks are cut to whole bursts.
    pub burst_segments: u32,
    /// Longest Transfer sent or accepted without a grant, bytes, at most [`limits::MAX_EAGER`]; 0: none (extended
    /// profile). Also the longest put that leaves at once as several operations.
    pub eager_limit: u32,
    /// Bytes of eager Transfers that this end holds for its peer while no receive is posted for them.
    pub eager_credit: u32,
    /// Send and accept several small operations in one datagram (extended profile).
    pub frames: bool,
    /// Grant posted receives, including those of messages, before their Transfers are announced, and accept such grants
    /// (extended profile).
    pub advance_grants: bool,
    /// Send and accept datagrams (extended profile).
    pub datagrams: bool,
    /// Most paths of the connection, 1 to [`MAX_PATHS`] (extended profile). The lower count of the two ends applies.
    pub paths: u8,
    /// Ask for payload checksums.
    pub checksum: bool,
    /// log2 of the buffer size offered in the extended profile. STUs never cross its multiples.
    pub buffer_log2: u8,
    /// log2 of the buffer size in the classic profile: pages, as in the thesis.
    pub classic_buffer_log2: u8,
    /// log2 of the Block size in the classic profile.
    pub classic_block_log2: u8,
    /// Wait for missing Data before the whole Block is granted again (classic profile). The thesis's implementation
    /// waited 5 s.
    pub classic_data_timeout: Duration,
    /// Port in an Initiator's Request_Connection, and the port that a Responder answers for: 1, unless the
    /// encapsulation has no ports and services are told apart by this one.
    pub service_port: u16,
    /// The encapsulation of the operations.
    pub encapsulation: Encapsulation,
    /// Longest datagram that the path is assumed to carry at first, header included, bytes.
    pub path_datagram: usize,
    /// Bytes that the lane adds to each datagram as its seal; 0 without protection. They count as part of the datagram.
    pub seal: usize,
    /// Time after which connecting fails.
    pub connect_timeout: Duration,
    /// How long a peer may leave requests unanswered before it counts as dead.
    pub idle_timeout: Duration,
    /// Ask a silent peer for an answer, and declare it dead, also while no request depends on it.
    pub keep_alive: bool,
    /// Data of the program: of an Initiator in its request, of a Responder in its answer to a request that has some.
    pub private_data: Option<PrivateData>,
    /// A Responder answers once its program has decided
    /// ([`Connection::accept`](crate::Connection::accept)). Until then it forgets an Initiator that is silent for the
    /// connect timeout.
    pub asks: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            profiles: Profiles::only(Profile::Extended),
            slots: limits::DEFAULT_SLOTS,
            window: 2 << 20,
            max_window: 128 << 20,
            control: Control::Auto,
            max_rate: None,
            block: 1 << 20,
            max_stu: 65_467,
            burst_segments: 64,
            eager_limit: limits::DEFAULT_EAGER,
            eager_credit: limits::DEFAULT_EAGER_CREDIT,
            frames: true,
            advance_grants: true,
            datagrams: true,
            paths: 1,
            checksum: false,
            buffer_log2: 30,
            classic_buffer_log2: 12,
            classic_block_log2: 16,
            classic_data_timeout: Duration::from_millis(200),
            service_port: SERVICE_PORT,
            encapsulation: Encapsulation::UdpV4,
            path_datagram: 1472,
            seal: 0,
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(15),
            keep_alive: false,
            private_data: None,
            asks: false,
        }
    }
}

impl Config {
    pub(crate) fn capabilities(&self, profiles: Profiles) -> Capabilities {
        let classic = profiles == Profiles::only(Profile::Classic);
        let config = if classic { &self.of_classic() } else { self };
        Capabilities {
            profiles,
            checksum: config.checksum,
            out_of_order: !classic,
            persistent: true,
            slots: config.slots.clamp(1, limits::MAX_SLOTS),
            max_stu: config.max_stu.max(1),
            buffer_log2: config.buffer_log2,
            eager: config.eager(),
            frames: config.frames,
            advance_grants: config.advance_grants,
            advance_messages: config.advance_grants,
            datagrams: config.datagrams,
            paths: config.paths.clamp(1, MAX_PATHS),
        }
    }

    /// The same without what the classic profile lacks.
    pub(crate) fn of_classic(&self) -> Config {
        Config {
            eager_limit: 0,
            frames: false,
            advance_grants: false,
            datagrams: false,
            paths: 1,
            buffer_log2: self.classic_buffer_log2,
            ..self.clone()
        }
    }

    /// The eager limits of this end.
    pub(crate) fn eager(&self) -> Eager {
        match self.eager_limit.min(limits::MAX_EAGER) {
            0 => Eager::NONE,
            limit => Eager {
                limit,
                credit: self.eager_credit,
            },
        }
    }
}

/// Random numbers for one connection, drawn by the caller.
#[derive(Clone, Copy, Debug)]
pub struct Entropy {
    /// This end's key.
    pub key: u32,
    /// This end's port.
    pub port: u16,
    /// First Sync number.
    pub sync: u32,
}
