//! Implements the contenders: ways to do a job between two processes.
//!
//! | module | what it holds |
//! |---|---|
//! | `contract` | the contract of all contenders, and what they share |
//! | `tcp`, `unix`, `tls`, `quic` | connections that carry bytes in order |
//! | `socket` | the common part of TCP and UNIX sockets |
//! | `stream` | buffers and files over those |
//! | `source_sink` | the content between a source and a sink |
//! | `udp` | raw UDP |
//! | `messages`, `rounds` | single operations over sockets |
//! | `zerolane` | Zerolane |
//! | `program` | third-party programs |
//! | `congestion`, `kernel` | TCP's congestion control; the kernel's TCP counters |
//! | `gave_up` | whether a contender gave up, or something else failed |
//! | `certificate` | settings of TLS |

mod certificate;
pub(crate) mod congestion;
pub(crate) mod contract;
mod gave_up;
mod kernel;
mod messages;
pub(crate) mod program;
mod quic;
mod rounds;
mod socket;
pub(crate) mod source_sink;
mod stream;
mod tcp;
mod tls;
mod udp;
mod unix;
pub(crate) mod zerolane;

use ::zerolane::options::Profile;

use self::contract::Contender;
pub(crate) use self::gave_up::has_given_up;
use self::program::Program;
use self::quic::Quic;
use self::tcp::Tcp;
use self::tcp::lent::Lent;
use self::tls::Tls;
use self::udp::Udp;
use self::unix::Unix;
use self::zerolane::Zerolane;
use crate::job::name::Name;
use crate::job::settings::Protection;

/// Who is who.
static CONTENDERS: [(Name, &dyn Contender); 15] = [
    (Name::Udp, &Udp),
    (Name::Tcp, &Tcp { congestion: None }),
    (Name::Unix, &Unix),
    (Name::TcpSplice, &Lent::Splice),
    (Name::TcpSendfile, &Lent::Sendfile),
    (Name::Tls, &Tls),
    (Name::Quinn, &Quic),
    (Name::Zerolane, &Zerolane::DEFAULT),
    (
        Name::ZerolanePlain,
        &Zerolane {
            protection: Some(Protection::Plain),
            ..Zerolane::DEFAULT
        },
    ),
    (Name::Ucx, &Program::Ucx),
    (Name::Libfabric, &Program::Libfabric),
    (
        Name::Classic,
        &Zerolane {
            profile: Some(Profile::Classic),
            ..Zerolane::DEFAULT
        },
    ),
    (
        Name::Extended,
        &Zerolane {
            profile: Some(Profile::Extended),
            ..Zerolane::DEFAULT
        },
    ),
    (
        Name::Cubic,
        &Tcp {
            congestion: Some("cubic"),
        },
    ),
    (
        Name::Bbr,
        &Tcp {
            congestion: Some("bbr"),
        },
    ),
];

/// The contender of this name.
pub(crate) fn of(name: Name) -> &'static dyn Contender {
    let mut all = CONTENDERS.iter();
    all.find(|(it, _)| *it == name)
        .expect("every name is in the table")
        .1
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests;
