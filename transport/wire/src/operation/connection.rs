//! Defines the operations that begin and end a virtual connection, and the capabilities that the ends exchange.

use super::{OPTIONS_LEN, Options, Reason, be32, out_of_range};
use crate::header::{Field, Flags, Header, ParseError, Problem};

/// Newest protocol version this library speaks.
pub const VERSION: u8 = 1;
/// Oldest protocol version this library speaks.
pub const VERSION_MIN: u8 = 1;
/// Begins the options of every Request_Connection, to distinguish a peer from other senders.
pub(super) const MAGIC: [u8; 8] = *b"Zerolane";

/// How the two ends behave: see `docs/reference/protocol.md`, "Two profiles".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// As the thesis describes: power-of-two STUs, one grant at a time, whole-Block repair.
    Classic,
    /// Any STU size, several Blocks granted ahead, selective repair.
    Extended,
}

/// A set of profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Profiles {
    /// Speaks the classic profile.
    pub classic: bool,
    /// Speaks the extended profile.
    pub extended: bool,
}

impl Profiles {
    /// Both profiles.
    pub const BOTH: Profiles = Profiles {
        classic: true,
        extended: true,
    };
    /// Only `profile`.
    pub const fn only(profile: Profile) -> Profiles {
        Profiles {
            classic: matches!(profile, Profile::Classic),
            extended: matches!(profile, Profile::Extended),
        }
    }
    /// The better profile both sets hold, if any: extended before classic.
    pub const fn common(self, other: Profiles) -> Option<Profile> {
        if self.extended && other.extended {
            Some(Profile::Extended)
        } else if self.classic && other.classic {
            Some(Profile::Classic)
        } else {
            None
        }
    }
}

/// Longest eager Transfer that an end may accept, bytes.
pub const MAX_EAGER: u32 = 64 << 10;

/// The limits of an end for Transfers that it has not granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Eager {
    /// Longest such Transfer, bytes, at most [`MAX_EAGER`]; 0: none.
    pub limit: u32,
    /// Bytes of such Transfers that may be unresolved at a time.
    pub credit: u32,
}

impl Eager {
    /// Accepts none.
    pub const NONE: Eager = Eager {
        limit: 0,
        credit: 0,
    };

    fn emit(self, options: &mut Options) {
        if self.limit > 0 {
            options[8..12].copy_from_slice(&self.limit.to_be_bytes());
            options[12..16].copy_from_slice(&self.credit.to_be_bytes());
        }
    }

    fn parse(header: &Header, options: &Options) -> Result<Eager, ParseError> {
        if !header.flags.contains(Flags::CAP_EAGER) {
            return Ok(Eager::NONE);
        }
        let (limit, credit) = (be32(options, 8), be32(options, 12));
        if limit == 0 || limit > MAX_EAGER {
            return Err(out_of_range(Field::Options, u64::from(limit)));
        }
        Ok(Eager { limit, credit })
    }
}

/// The capabilities of an end, exchanged at connection set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Capabilities {
    /// Profiles spoken (exactly one in an accepting Connection_Answer).
    pub profiles: Profiles,
    /// Asks for payload checksums on Data.
    pub checksum: bool,
    /// Accepts Blocks in any order.
    pub out_of_order: bool,
    /// Offers persistent memory regions.
    pub persistent: bool,
    /// Unanswered requests that this end can hold, 1 to 65535.
    pub slots: u16,
    /// Largest STU payload that this end accepts, bytes, at least 1.
    pub max_stu: u32,
    /// log2 of this end's buffer size in bytes, at most 32. STUs never cross a buffer boundary.
    pub buffer_log2: u8,
    /// The limits for Transfers that it has not granted.
    pub eager: Eager,
    /// Accepts several numbered operations in one datagram.
    pub frames: bool,
    /// Accepts grants of Transfers that it has not yet announced (*ours*).
    pub advance_grants: bool,
    /// Accepts such grants for the payload of messages, too (*ours*).
    pub advance_messages: bool,
    /// Accepts datagrams (*ours*).
    pub datagrams: bool,
    /// Most paths, 1 to [`MAX_PATHS`] (*ours*).
    pub paths: u8,
}

impl Capabilities {
    pub(super) fn emit(&self, header: &mut Header, options: &mut Options) {
        self.eager.emit(options);
        // An end that does not know paths sends zero, which means one path.
        options[PATHS] = self.paths.saturating_sub(1);
        header.flags = header
            .flags
            .with_if(Flags::CAP_CLASSIC, self.profiles.classic)
            .with_if(Flags::CAP_EXTENDED, self.profiles.extended)
            .with_if(Flags::CAP_CHECKSUM, self.checksum)
            .with_if(Flags::CAP_OUT_OF_ORDER, self.out_of_order)
            .with_if(Flags::CAP_PERSISTENT, self.persistent)
            .with_if(Flags::CAP_EAGER, self.eager.limit > 0)
            .with_if(Flags::CAP_FRAMES, self.frames)
            .with_if(Flags::CAP_ADVANCE, self.advance_grants)
            .with_if(Flags::CAP_ADVANCE_MESSAGES, self.advance_messages)
            .with_if(Flags::CAP_DATAGRAMS, self.datagrams);
        header.b_id = self.slots;
        header.bufx = self.max_stu;
        header.offset = u32::from(self.buffer_log2);
    }

    pub(super) fn parse(header: &Header, options: &Options) -> Result<Capabilities, ParseError> {
        if header.b_id == 0 {
            return Err(out_of_range(Field::BId, 0));
        }
        if header.bufx == 0 {
            return Err(out_of_range(Field::Bufx, 0));
        }
        if header.offset > u32::from(MAX_BUFFER_LOG2) {
            return Err(out_of_range(Field::Offset, u64::from(header.offset)));
        }
        let flags = header.flags;
        Ok(Capabilities {
            profiles: Profiles {
                classic: flags.contains(Flags::CAP_CLASSIC),
                extended: flags.contains(Flags::CAP_EXTENDED),
            },
            checksum: flags.contains(Flags::CAP_CHECKSUM),
            out_of_order: flags.contains(Flags::CAP_OUT_OF_ORDER),
            persistent: flags.contains(Flags::CAP_PERSISTENT),
            slots: header.b_id,
            max_stu: header.bufx,
            buffer_log2: header.offset as u8,
            eager: Eager::parse(header, options)?,
            frames: flags.contains(Flags::CAP_FRAMES),
            advance_grants: flags.contains(Flags::CAP_ADVANCE),
            advance_messages: flags.contains(Flags::CAP_ADVANCE_MESSAGES),
            datagrams: flags.contains(Flags::CAP_DATAGRAMS),
            paths: match options[PATHS] {
                more if more < MAX_PATHS => more + 1,
                more => return Err(out_of_range(Field::Options, more.into())),
            },
        })
    }
}

/// Most paths of a connection.
pub const MAX_PATHS: u8 = 8;
/// The byte of the options that holds the number of paths beyond the first.
const PATHS: usize = 16;

/// Largest `buffer_log2`: Offset has 32 bits.
pub(super) const MAX_BUFFER_LOG2: u8 = 32;

/// Opens a virtual connection. Answered by [`ConnectionAnswer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestConnection {
    /// Oldest version the Initiator speaks.
    pub version_min: u8,
    /// Newest version the Initiator speaks, at least `version_min`.
    pub version_max: u8,
    /// The Initiator's capabilities.
    pub capabilities: Capabilities,
    /// The Initiator's key: D_Key of everything sent to it.
    pub s_key: u32,
    /// Echoed in the answer.
    pub sync: u32,
}

impl RequestConnection {
    pub(super) fn emit(&self, mut header: Header) -> (Header, Option<Options>) {
        let mut options = [0; OPTIONS_LEN];
        self.capabilities.emit(&mut header, &mut options);
        header.param = u16::from(self.version_min) << 8 | u16::from(self.version_max);
        header.s_id = self.s_key;
        header.sync = self.sync;
        options[..MAGIC.len()].copy_from_slice(&MAGIC);
        (header, Some(options))
    }

    pub(super) fn parse(
        header: &Header,
        options: &Options,
    ) -> Result<RequestConnection, ParseError> {
        if options[..MAGIC.len()] != MAGIC {
            return Err(ParseError::new(Field::Options, Problem::Mismatch));
        }
        let [version_min, version_max] = header.param.to_be_bytes();
        if version_min > version_max {
            return Err(out_of_range(Field::Param, u64::from(header.param)));
        }
        Ok(RequestConnection {
            version_min,
            version_max,
            capabilities: Capabilities::parse(header, options)?,
            s_key: header.s_id,
            sync: header.sync,
        })
    }
}

/// Whether a connection was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConnectionVerdict {
    /// Accepted, in this version, with the Responder's capabilities and key.
    Accept {
        /// The version both ends use.
        version: u8,
        /// The Responder's capabilities, with exactly one profile: the chosen one.
        capabilities: Capabilities,
        /// The Responder's key.
        s_key: u32,
    },
    /// Rejected. The options hold the Responder's versions.
    Reject {
        /// Why.
        reason: Reason,
        /// Oldest version the Responder speaks.
        version_min: u8,
        /// Newest version the Responder speaks.
        version_max: u8,
    },
}

/// Answers [`RequestConnection`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionAnswer {
    /// Accepted or not.
    pub verdict: ConnectionVerdict,
    /// Sync of the request.
    pub sync: u32,
}

impl ConnectionAnswer {
    pub(super) fn emit(&self, mut header: Header) -> (Header, Option<Options>) {
        header.sync = self.sync;
        let mut options = [0; OPTIONS_LEN];
        match &self.verdict {
            ConnectionVerdict::Accept {
                version,
                capabilities,
                s_key,
            } => {
                capabilities.emit(&mut header, &mut options);
                header.param = u16::from(*version);
                header.s_id = *s_key;
            }
            ConnectionVerdict::Reject {
                reason,
                version_min,
                version_max,
            } => {
                header.flags = Flags::REJECT;
                header.param = *reason as u16;
                options[..2].copy_from_slice(&[*version_min, *version_max]);
            }
        }
        (header, Some(options))
    }

    pub(super) fn parse(
        header: &Header,
        options: &Options,
    ) -> Result<ConnectionAnswer, ParseError> {
        let verdict = if header.flags.contains(Flags::REJECT) {
            ConnectionVerdict::Reject {
                reason: Reason::parse(header.param)?,
                version_min: options[0],
                version_max: options[1],
            }
        } else {
            let [0, version] = header.param.to_be_bytes() else {
                return Err(out_of_range(Field::Param, u64::from(header.param)));
            };
            let capabilities = Capabilities::parse(header, options)?;
            if capabilities.profiles.classic == capabilities.profiles.extended {
                return Err(out_of_range(Field::Flags, u64::from(header.flags.bits())));
            }
            ConnectionVerdict::Accept {
                version,
                capabilities,
                s_key: header.s_id,
            }
        };
        Ok(ConnectionAnswer {
            verdict,
            sync: header.sync,
        })
    }
}

/// First step of the disconnect handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestDisconnect {
    /// Why.
    pub reason: Reason,
    /// What the sender of this received from its peer, in case the reports were lost.
    pub delivered: Option<Delivered>,
}

impl RequestDisconnect {
    pub(super) fn emit(&self, header: Header) -> (Header, Option<Options>) {
        let header = Header {
            param: self.reason as u16,
            ..header
        };
        match self.delivered {
            None => (header, None),
            Some(it) => (
                Header {
                    sync: it.executed,
                    b_num: it.first,
                    ..header
                },
                Some(it.whole),
            ),
        }
    }

    pub(super) fn parse(
        header: &Header,
        options: Option<&Options>,
    ) -> Result<RequestDisconnect, ParseError> {
        let delivered = options.map(|&whole| Delivered {
            executed: header.sync,
            first: header.b_num,
            whole,
        });
        Ok(RequestDisconnect {
            reason: Reason::parse(header.param)?,
            delivered,
        })
    }
}

/// Summary of what an end received from the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Delivered {
    /// All numbered operations below this were executed.
    pub executed: u32,
    /// Number of the first announcement in `whole`.
    pub first: u32,
    whole: [u8; OPTIONS_LEN],
}

impl Delivered {
    /// Number of announcements covered.
    pub const ANNOUNCEMENTS: u32 = 8 * OPTIONS_LEN as u32;

    /// None of the announcements from `first` on arrived.
    pub const fn new(executed: u32, first: u32) -> Delivered {
        Delivered {
            executed,
            first,
            whole: [0; OPTIONS_LEN],
        }
    }

    /// Marks the Transfer of announcement `sequence` as complete. No effect outside the [`Delivered::ANNOUNCEMENTS`]
    /// from `first` on.
    pub fn add(&mut self, sequence: u32) {
        let index = sequence.wrapping_sub(self.first);
        if let Some(byte) = self.whole.get_mut(index as usize / 8) {
            *byte |= 1 << (index % 8);
        }
    }

    /// Whether the Transfer of announcement `sequence` is complete.
    pub fn contains(&self, sequence: u32) -> bool {
        let index = sequence.wrapping_sub(self.first);
        let byte = self.whole.get(index as usize / 8);
        byte.is_some_and(|byte| byte & 1 << (index % 8) != 0)
    }
}

/// Second and third step of the disconnect handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Disconnect {
    /// Why.
    pub reason: Reason,
}
