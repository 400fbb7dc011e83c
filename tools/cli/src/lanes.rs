//! Implements `zerolane lanes`: predicts which lane a connection to a host would use, and says why not another.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use zerolane::Options;
use zerolane::lanes::{
    Neighbour, Reach, is_ethernet, max_ethernet_datagram, max_ip118_datagram, neighbours,
    probe_shared_memory, resolve_host,
};
use zerolane::options::{DeviceOptions, EthernetAddress, EthernetDevice, LaneChoice};
use zerolane_files::limits::DEFAULT_PORT;

use crate::address::{address_shown, parse_host};
use crate::console;
use crate::exit::Exit;
use crate::lane::LaneName;

/// Arguments of `zerolane lanes`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
It sends nothing over the network, unless it looks for a name on an Ethernet segment. It finds shared memory by a socket \
in a directory of this user, and does not test UDP: `zerolane doctor HOST` says whether HOST answers. For ip118 it says \
whether this process has the right, and how long a packet may be; whether HOST and the network pass IP protocol 118 \
shows only when you try. For an address ether:IFACE/MAC[:PORT] it says whether this process may use raw Ethernet and \
AF_XDP at that interface; for that it attaches the AF_XDP program for a moment.")]
pub struct Args {
    /// The address of `serve`, or of `mem export` with its port; also ether:IFACE/MAC[:PORT]
    #[arg(value_name = "HOST[:PORT]", value_parser = parse_there, required_unless_present = "discover")]
    host: Option<(String, u16)>,
    /// List the hosts that listen for raw Ethernet on the segment of this interface, and their names. Names prove
    /// nothing; keys do
    #[arg(long, value_name = "IFACE", conflicts_with = "host")]
    discover: Option<String>,
    /// Print one JSON object a line, for each address of HOST, instead of text
    #[arg(long)]
    json: bool,
}

fn parse_there(text: &str) -> Result<(String, u16), String> {
    parse_host(text, DEFAULT_PORT)
}

/// Prints the lanes for each address.
pub(crate) fn run(args: Args) -> Result<()> {
    if let Some(interface) = &args.discover {
        return discover(interface, args.json);
    }
    let (name, port) = args.host.as_ref().context(Exit::Usage)?;
    let lane = match is_ethernet(name) {
        true => LaneChoice::Ethernet,
        false => LaneChoice::Best,
    };
    let addresses = resolve_host(name, *port, lane)
        .with_context(|| format!("cannot find the address of {name:?}"))
        .context(Exit::Unreachable)?;
    for address in addresses {
        match lane {
            LaneChoice::Ethernet => say(&Ethernet::at(address), args.json)?,
            _ => say(&Found::at(address), args.json)?,
        }
    }
    Ok(())
}

/// Prints the hosts that answer on the segment of `interface`.
fn discover(interface: &str, json: bool) -> Result<()> {
    let found = neighbours(interface, None).context(Exit::Unreachable)?;
    if found.is_empty() {
        let words = format!("nothing that listens on the segment of {interface} answers");
        return Err(anyhow!(words).context(Exit::Unreachable));
    }
    for Neighbour { name, address } in found {
        let address = address.to_string();
        say(&Answer { name, address }, json)?;
    }
    Ok(())
}

/// A host that answered.
#[derive(Debug, Serialize)]
struct Answer {
    name: String,
    address: String,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}", self.name, self.address)
    }
}

fn say(found: &(impl Serialize + fmt::Display), json: bool) -> Result<()> {
    match json {
        true => console::say(serde_json::to_string(found)?),
        false => console::say(found),
    }
}

/// The lanes to a raw Ethernet address, which no other lane reaches.
#[derive(Debug, Serialize)]
struct Ethernet {
    address: String,
    /// The lane that a connection uses, if any is possible.
    used: Option<LaneName>,
    ethernet: Raw,
}

/// Whether a lane of raw or packet sockets is possible: if not, why; if so, the longest packet or frame, bytes.
#[derive(Debug, Default, Serialize)]
struct Raw {
    possible: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    datagram: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    af_xdp: Option<AfXdp>,
}

/// Whether frames can bypass the kernel's network stack: if not, why; if so, how.
#[derive(Debug, Serialize)]
struct AfXdp {
    possible: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
}

/// How frames reach the memory shared with the kernel.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Mode {
    /// The driver writes them there.
    ZeroCopy,
    /// The kernel copies them there.
    Copy,
}

impl AfXdp {
    /// Opens and closes the device at the interface of `address`.
    fn at(address: SocketAddr) -> AfXdp {
        let options = DeviceOptions {
            max_connections: 1,
            ..DeviceOptions::default()
        };
        let opened = EthernetAddress::of(address)
            .and_then(|it| EthernetDevice::open(it.interface(), options));
        let mode = opened.as_ref().ok().map(|it| match it.is_zero_copy() {
            true => Mode::ZeroCopy,
            false => Mode::Copy,
        });
        AfXdp {
            possible: opened.is_ok(),
            why_not: opened.err().map(|why| why.to_string()),
            mode,
        }
    }
}

impl fmt::Display for AfXdp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.why_not, self.mode) {
            (Some(why), _) => write!(f, "  af_xdp: no: {why}"),
            (None, Some(Mode::ZeroCopy)) => {
                write!(
                    f,
                    "  af_xdp: taken by --bypass auto and always: the driver has a zero-copy mode"
                )
            }
            (None, _) => write!(
                f,
                "  af_xdp: taken by --bypass always: the kernel copies each frame once more"
            ),
        }
    }
}

impl Raw {
    fn of(looked: io::Result<usize>) -> Raw {
        match looked {
            Ok(datagram) => Raw {
                possible: true,
                datagram: Some(datagram),
                ..Raw::default()
            },
            Err(why) => Raw {
                why_not: Some(why.to_string()),
                ..Raw::default()
            },
        }
    }
}

impl Ethernet {
    fn at(address: SocketAddr) -> Ethernet {
        let mut ethernet = Raw::of(max_ethernet_datagram(address));
        ethernet.af_xdp = ethernet.possible.then(|| AfXdp::at(address));
        Ethernet {
            address: address_shown(address, LaneChoice::Ethernet),
            used: ethernet.possible.then_some(LaneName::Ethernet),
            ethernet,
        }
    }
}

impl fmt::Display for Ethernet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.address)?;
        match (&self.ethernet.why_not, self.ethernet.datagram) {
            (Some(why), _) => write!(f, "  ethernet: no: {why}"),
            (None, datagram) => write!(
                f,
                "  ethernet: taken, in frames of up to {} bytes",
                datagram.unwrap_or(0)
            ),
        }?;
        match &self.ethernet.af_xdp {
            Some(af_xdp) => write!(f, "\n{af_xdp}"),
            None => Ok(()),
        }
    }
}

/// The lanes to an IP address.
#[derive(Debug, Serialize)]
struct Found {
    address: SocketAddr,
    /// The lane of `--lane auto`.
    used: LaneName,
    shm: SharedMemory,
    /// The lane of `--lane ip118`.
    ip118: Raw,
}

/// Whether shared memory is possible: if not, why; if so, which process may read the other's memory, `null` if the
/// listener did not say.
#[derive(Debug, Default, Serialize)]
struct SharedMemory {
    possible: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<String>,
    /// Incoming data is read directly from the peer's memory.
    reads: Option<bool>,
    /// The peer reads outgoing data directly from this process's memory.
    is_read: Option<bool>,
}

impl Found {
    fn at(address: SocketAddr) -> Found {
        let shm = match probe_shared_memory(address, &Options::default()) {
            Ok(Reach { reads, is_read }) => SharedMemory {
                possible: true,
                why_not: None,
                reads,
                is_read,
            },
            Err(why) => SharedMemory {
                why_not: Some(why.to_string()),
                ..SharedMemory::default()
            },
        };
        Found {
            address,
            used: match shm.possible {
                true => LaneName::Shm,
                false => LaneName::Udp,
            },
            shm,
            ip118: Raw::of(max_ip118_datagram(address)),
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.address)?;
        if let Some(why) = &self.shm.why_not {
            writeln!(f, "  shm: no: {why}")?;
            writeln!(
                f,
                "  udp: taken by --lane auto, which is the default, and udp"
            )?;
            return self.say_ip118(f);
        }
        writeln!(
            f,
            "  shm: taken by --lane auto, which is the default, and shm"
        )?;
        let ways = [("from", self.shm.reads), ("to", self.shm.is_read)];
        for (way, read) in ways {
            let words = match read {
                Some(true) => "by one copy, of the kernel's".to_owned(),
                Some(false) => format!("through the ring, by two copies more: {}", refused()),
                None => "not known: the listener says nothing (busy, or stopped)".to_owned(),
            };
            writeln!(f, "       payload {way} there: {words}")?;
        }
        writeln!(f, "  udp: taken by --lane udp")?;
        self.say_ip118(f)
    }
}

impl Found {
    fn say_ip118(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.ip118.why_not, self.ip118.datagram) {
            (Some(why), _) => write!(f, "  ip118: no: {why}"),
            (None, datagram) => write!(
                f,
                "  ip118: taken by --lane ip118, in packets of up to {} bytes and their IP header",
                datagram.unwrap_or(0)
            ),
        }
    }
}

/// Why the kernel lets one process not read the other's memory.
fn refused() -> String {
    const WHY: &str = "the kernel refuses to let one read the other's memory";
    let yama = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    match yama.as_deref().map(str::trim) {
        Some(scope) if scope != "0" => format!("{WHY} (kernel.yama.ptrace_scope is {scope})"),
        _ => format!("{WHY} (another PID namespace, Landlock or another sandbox)"),
    }
}
