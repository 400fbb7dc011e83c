//! Implements `zerolane disk attach`: shows a disk of another host to local programs, over NBD.

use std::io::pipe;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, anyhow, bail};
use indicatif::HumanBytes;
use zerolane_disk::initiator::Queue;
use zerolane_files::Stop;
use zerolane_nbd::server::{Server, ServerEvent};

use super::file::Shown;
use super::iscsi;
use super::remote::{Place, open};
use crate::console;
use crate::exit::Exit;
use crate::files::stop_on_signals;
use crate::security::ClientArgs;

/// Arguments of `zerolane disk attach`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
This program is an NBD server on a UNIX socket. What is printed is the URI for other programs: qemu-img info URI, \
nbdcopy URI image, qemu-system-x86_64 -drive file=URI, nbd-client -unix SOCKET /dev/nbd0. It runs until Ctrl-C. For filters of nbdkit \
there is a plugin, which does not need this command: nbdkit --filter=... libzerolane_nbdkit.so host=HOST lun=LUN.

With --file the disk is a file for any program, by FUSE, until Ctrl-C or `fusermount3 -u FILE`: what is printed is its path. Needs \
nbdfuse (Debian's package libnbd-bin).

With --iscsi it is an iSCSI target instead. What is printed is the URL for initiators: \
iscsi-inq URL, qemu with its iSCSI driver. This target has no encryption and no authentication: anyone who reaches the \
port can read and write the disk. So it listens on this machine alone, unless an address is given.")]
pub(super) struct Args {
    /// Where `disk serve` runs, and which of its disks: HOST[:PORT]/LUN
    place: Place,
    /// Serve it over iSCSI [default address: 127.0.0.1:3260]
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, require_equals = true, default_missing_value = iscsi::DEFAULT,
        conflicts_with = "socket")]
    iscsi: Option<SocketAddr>,
    /// The UNIX socket to make [default: one in XDG_RUNTIME_DIR, or in the directory of temporary files]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Create this file and show the disk in it, besides running the NBD server
    #[arg(long, value_name = "FILE", conflicts_with = "iscsi")]
    file: Option<PathBuf>,
    /// Refuse writes by clients
    #[arg(long)]
    read_only: bool,
    #[command(flatten)]
    security: ClientArgs,
}

/// Serves the disk until Ctrl-C or SIGTERM.
pub(super) fn run(args: &Args) -> Result<()> {
    if let Some(address) = args.iscsi {
        return iscsi::run(&args.place, &args.security, args.read_only, address);
    }
    let queue = open(&args.place, &args.security, Default::default())?;
    let stop = stop_on_signals()?;
    let path = args.socket.clone().unwrap_or_else(socket);
    if path.exists() {
        bail!("{} already exists", path.display());
    }
    let server = Server::bind(&path, args.read_only);
    let server = server.with_context(|| format!("cannot listen on {}", path.display()))?;
    let unit = queue.unit();
    console::note(format_args!(
        "{}: {}, serial number {}",
        args.place,
        HumanBytes(unit.bytes()),
        unit.serial
    ));
    let uri = format!("nbd+unix:///?socket={}", path.display());
    match &args.file {
        None => {
            console::say(&uri)?;
            server.serve(&queue, stop.descriptor()?, tell)?;
        }
        Some(file) => {
            let read_only = args.read_only || unit.read_only;
            let shown = Shown::start(file, &uri, read_only)?;
            serve_file(&server, &queue, shown, &stop)?;
        }
    }
    match queue.failure() {
        Some(error) if !stop.requested() => Err(anyhow!(error)),
        // The user unmounted the file.
        None if !stop.requested() => Ok(()),
        _ => Err(Exit::Interrupted.into()),
    }
}

/// Serves the disk while `nbdfuse` shows it as a file. At its end, `nbdfuse` writes what it still holds.
fn serve_file(server: &Server, queue: &Queue, shown: Shown, stop: &Stop) -> Result<()> {
    let bytes = queue.unit().bytes();
    // The queue may fail first.
    let is_closed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stopped = || stop.requested() || is_closed.load(Ordering::Relaxed);
        let (ended, ends) = pipe()?;
        let file = scope.spawn(move || {
            // Dropping this makes the other end readable.
            let _ends = ends;
            shown.until_stopped(bytes, stopped)
        });
        let served = server.serve(queue, ended, tell);
        is_closed.store(true, Ordering::Relaxed);
        let ended = file.join().expect("it does not panic");
        served?;
        ended
    })
}

/// Prints the events about which the user can do something.
fn tell(news: ServerEvent) {
    match news {
        ServerEvent::Connected | ServerEvent::Disconnected => {}
        ServerEvent::CutOff(offence) => {
            console::note(format_args!("a client was cut off: {offence}"))
        }
        ServerEvent::Full => console::note("a client was turned away: there are too many"),
    }
}

/// The default path of the socket, with this process's number.
fn socket() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = own.filter(|it| it.is_dir());
    let directory = own.unwrap_or_else(std::env::temp_dir);
    directory.join(format!("zerolane-disk-{}.sock", std::process::id()))
}
