//! `zerolane disk attach`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::HumanBytes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::iscsi;
use super::remote::{Place, open};
use crate::console;
use crate::exit::Exit;
use crate::files::stop_on_signals;
use crate::program;
use crate::security::ClientArgs;

/// As it is built.
const PLUGIN: &str = "libzerolane_nbdkit.so";
/// Where it is installed, from where this program is.
const LIBRARIES: &str = "../lib/zerolane";
/// As nbdkit finds it among its own.
const INSTALLED: &str = "zerolane";
/// Time between two looks at nbdkit and at signals.
const LOOK: Duration = Duration::from_millis(50);

/// Arguments of `zerolane disk attach`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
It needs nbdkit, and the plugin libzerolane_nbdkit.so: beside this program or in ../lib/zerolane from there, where \
--plugin says, or installed as nbdkit's plugin `zerolane`. What is printed is the URI for other programs: qemu-img info URI, nbdcopy URI image, \
nbdfuse FILE URI, qemu-system-x86_64 -drive file=URI. It runs until Ctrl-C.

With --iscsi this program is an iSCSI target instead, and needs neither. What is printed is the URL for initiators: \
iscsi-inq URL, qemu with its iSCSI driver. iSCSI as it is here has no encryption and no authentication: whoever reaches the port \
reads and writes the disk. So it listens on this machine alone, unless an address is given.")]
pub(super) struct Args {
    /// Where `disk serve` runs, and which of its disks: HOST[:PORT]/LUN
    place: Place,
    /// Serve it over iSCSI [default address: 127.0.0.1:3260]
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, require_equals = true, default_missing_value = iscsi::DEFAULT,
        conflicts_with_all = ["socket", "plugin"])]
    iscsi: Option<SocketAddr>,
    /// The UNIX socket to make [default: one in the directory of this user's sockets, or of temporary files]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Clients may not write
    #[arg(long)]
    read_only: bool,
    /// The plugin of nbdkit
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    #[command(flatten)]
    security: ClientArgs,
}

/// Ends nbdkit, and its socket with it.
struct Door {
    child: Child,
    socket: PathBuf,
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // A child is never so many.
            let id = Pid::from_raw(self.child.id() as i32);
            let _ = kill(id, Signal::SIGTERM);
        }
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Runs the door until Ctrl-C or SIGTERM.
pub(super) fn run(args: &Args) -> Result<()> {
    if let Some(address) = args.iscsi {
        return iscsi::run(&args.place, &args.security, args.read_only, address);
    }
    let Some(nbdkit) = program::find("nbdkit") else {
        bail!("nbdkit is not installed: it is in the Debian package nbdkit");
    };
    let words = args.security.for_plugin()?;
    // Which disk it is, and whether there is one, is said here, and not by nbdkit.
    let unit = open(&args.place, &args.security, Default::default())?
        .unit()
        .clone();
    let stop = stop_on_signals()?;
    let socket = args.socket.clone().unwrap_or_else(socket);
    if socket.exists() {
        bail!("{} is there already", socket.display());
    }
    let mut command = Command::new(nbdkit);
    // Clients may ask for single bytes; the disk has blocks.
    command.args(["--foreground", "--exit-with-parent"]);
    command.args(["--filter=blocksize", "--unix"]);
    command.arg(&socket).stdin(Stdio::null());
    if args.read_only {
        command.arg("--readonly");
    }
    command.arg(plugin(args.plugin.as_deref()));
    command.arg(format!("host={}", args.place.host));
    command.arg(format!("lun={}", args.place.lun)).args(words);
    let child = command.spawn().context("starting nbdkit")?;
    let mut door = Door { child, socket };
    while !door.socket.exists() {
        if let Some(status) = door.child.try_wait()? {
            bail!("nbdkit did not start: {status}");
        }
        if stop.requested() {
            return Err(Exit::Interrupted.into());
        }
        thread::sleep(LOOK);
    }
    console::note(format_args!(
        "{}: {}, serial number {}",
        args.place,
        HumanBytes(unit.bytes()),
        unit.serial
    ));
    console::say(format_args!(
        "nbd+unix:///?socket={}",
        door.socket.display()
    ))?;
    while !stop.requested() {
        if let Some(status) = door.child.try_wait()? {
            bail!("nbdkit ended: {status}");
        }
        thread::sleep(LOOK);
    }
    drop(door);
    Err(Exit::Interrupted.into())
}

/// A socket of this process.
fn socket() -> PathBuf {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = own.filter(|it| it.is_dir());
    let directory = own.unwrap_or_else(std::env::temp_dir);
    directory.join(format!("zerolane-disk-{}.sock", std::process::id()))
}

/// The plugin that was named, was built or installed with this program, or is among nbdkit's own.
fn plugin(named: Option<&Path>) -> OsString {
    if let Some(path) = named {
        // nbdkit takes what has no slash for the name of one of its own.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        return path.into_os_string();
    }
    let own = std::env::current_exe().ok();
    let directory = own.as_ref().and_then(|own| own.parent());
    let places = directory.map(|it| [it.to_owned(), it.join(LIBRARIES)]);
    let mut files = places.into_iter().flatten().map(|it| it.join(PLUGIN));
    let found = files.find(|it| it.exists());
    found.map_or_else(|| INSTALLED.into(), PathBuf::into_os_string)
}
