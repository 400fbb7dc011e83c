//! Implements `zerolane run`: carries the TCP connections of an unchanged program.

mod checked;
pub(crate) mod sockets;

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::process::set_child_subreaper;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use zerolane::trap::{NotTrapped, Trap};
use zerolane_streams::sockets::call::{Runner, VARIABLE};
use zerolane_streams::sockets::rules::Rule;
use zerolane_streams::sockets::{Notice, Pump, Settings, trapped};

use crate::console;
use crate::descriptors;
use crate::exit::Exit;
use crate::units;

/// Arguments of `zerolane run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  zerolane run -- redis-server --bind '*'            # on one host
  zerolane run -v -- redis-cli -h db set greeting hello    # on another
  zerolane run --only 10.0.0.0/8:80,*:443 -- curl -O http://10.1.2.3/large
  zerolane run --trap -- caddy file-server           # a static program, or one in Go

Where the other host runs its program without Zerolane, connections stay the program's own TCP. With Zerolane, the \
connection is encrypted, and is bound to the other host's address as TCP is: its key is not checked.

The exit code is the program's, 128 and the signal if one killed it, 127 if there is no such program, 126 if it cannot \
be executed; before it runs, the codes below.")]
pub struct Args {
    /// Try only these connections: ADDRESS[/BITS][:PORT] of the other host and the server's port, `*` for any
    #[arg(long, value_name = "RULES", value_delimiter = ',')]
    only: Vec<Rule>,
    /// Let connections fail that Zerolane cannot carry, and say why; those that no rule covers stay TCP
    #[arg(long)]
    strict: bool,
    /// Wait this long, or two round trips, for the answer of a host that may have no Zerolane, once a minute. Busy hosts
    /// may need more
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = units::duration)]
    answer_within: Duration,
    /// Let the kernel stop the program at its socket calls, rather than load a library into it: also for static
    /// programs and those in Go. Needs Linux 5.19. Programs that change the user, such as sudo, then get no new rights
    #[arg(long)]
    trap: bool,
    /// Say on standard error what carries each connection, and why not Zerolane
    #[arg(short, long)]
    verbose: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// How long the program's linker may take to load the library, on a busy machine.
const LOADED_WITHIN: Duration = Duration::from_secs(30);
/// How long connections may last after the last program has ended, like those of the kernel.
const LINGER: Duration = Duration::from_secs(60);

/// The library, beside this program or where it is installed.
const LIBRARY: &str = "libzerolane-sockets.so";
/// The same, as cargo names it.
const BUILT_LIBRARY: &str = "libzerolane_sockets.so";

/// Runs the program until it and its children have ended; returns its exit code.
pub(crate) fn run(args: Args) -> Result<Exit> {
    let (name, words) = args.program.split_first().context("no program")?;
    checked::check(name, args.trap)?;
    let settings = Settings {
        only: args.only,
        strict: args.strict,
        answer_within: args.answer_within,
    };
    let (verbose, strict) = (args.verbose, args.strict);
    let tell = move |notice: Notice| {
        if verbose || strict && !matches!(notice, Notice::Carried(..)) {
            console::note(format_args!("zerolane: {notice}"));
        }
    };
    let mut pump = Pump::new(settings, tell).context("cannot begin")?;
    let runner = pump.runner();
    let mut command = Command::new(name);
    command.args(words).env(VARIABLE, runner.to_string());
    if !args.trap {
        command.env("LD_PRELOAD", preload(&library()?)?);
    }
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    // Children that their parents left, such as daemons, are this process's.
    set_child_subreaper(Some(rustix::process::getpid())).context("cannot wait for daemons")?;
    let started = start(&mut command, args.trap.then_some(runner))
        .map_err(|it| it.context(format!("cannot run {}", name.display())))?;
    let child = Pid::from_raw(i32::try_from(started.id())?);
    descriptors::allow_all();
    let (tell, mut ends) = channel();
    wait_in_thread(child, tell.clone());
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in &mut signals {
                // The terminal sends the others to the program, too.
                if let SIGHUP | SIGTERM = signal
                    && kill(child, Signal::try_from(signal).ok()).is_err()
                {
                    // Its daemons go on without Zerolane.
                    let _ = tell.send(End::Stop);
                }
            }
        })?;
    let running = Running {
        child,
        since: Instant::now(),
        loads: !args.trap,
    };
    let status = running.pump(&mut pump, &mut ends)?;
    pump.close()?;
    Ok(Exit::of_command(status))
}

/// Starts the program: with a trap, whose calls are answered for `trap`.
fn start(command: &mut Command, trap: Option<Runner>) -> Result<Child> {
    let failed = |error: std::io::Error| {
        let exit = match error.kind() {
            ErrorKind::NotFound => Exit::CommandNotFound,
            _ => Exit::NotExecutable,
        };
        anyhow!(error).context(exit)
    };
    let Some(runner) = trap else {
        return command.spawn().map_err(failed);
    };
    trapped::check().context(
        "the system does not let this process take descriptors of others: in a container, allow pidfd_getfd \
         (for Docker: --cap-add SYS_PTRACE)",
    )?;
    let (child, trap) = Trap::spawn(command).map_err(|why| match why {
        NotTrapped::Program(error) => failed(error),
        NotTrapped::Trap(_) => anyhow!(why).context(Exit::NotExecutable),
    })?;
    thread::Builder::new().name("trap".into()).spawn(move || {
        let say = |words: &str| console::note(format_args!("zerolane: {words}"));
        if let Err(error) = trapped::serve(&trap, runner, say) {
            say(&format!(
                "the program's socket calls fail from now on: {error}"
            ));
        }
    })?;
    Ok(child)
}

/// What the thread that waits for processes reports.
enum End {
    /// The program has ended.
    Program(ExitStatus),
    /// So have all of its children.
    All,
    /// This process was told to end after the program has.
    Stop,
}

struct Running {
    child: Pid,
    since: Instant,
    /// The program must load the library.
    loads: bool,
}

impl Running {
    /// Carries connections until all processes have ended, and nothing is left to deliver.
    fn pump(&self, pump: &mut Pump, ends: &mut Receiver<End>) -> Result<ExitStatus> {
        let (mut status, mut all_since, mut unloaded) = (None, None, false);
        let mut stopped = false;
        pump.run(|pump| {
            match ends.try_recv() {
                Ok(End::Program(it)) => status = Some(it),
                Ok(End::All) | Err(TryRecvError::Disconnected) => {
                    all_since.get_or_insert_with(Instant::now);
                }
                Ok(End::Stop) => stopped = true,
                Err(TryRecvError::Empty) => {}
            }
            unloaded = self.loads
                && pump.loaded() == 0
                && (status.is_some() || self.since.elapsed() > LOADED_WITHIN);
            let over = |since: Instant| pump.is_idle() || since.elapsed() > LINGER;
            unloaded || stopped || all_since.is_some_and(over)
        })?;
        if unloaded {
            if status.is_none() {
                let _ = kill(self.child, Signal::SIGKILL);
            }
            return Err(anyhow!(
                "the program did not load the library {BUILT_LIBRARY}: its linker refused it (see above), or it \
                 clears LD_PRELOAD or loads no libraries"
            ));
        }
        status.context("nobody knows how the program ended")
    }
}

/// Waits for the program and all children.
fn wait_in_thread(child: Pid, tell: Sender<End>) {
    thread::spawn(move || {
        loop {
            let ended = match waitpid(None, Some(WaitPidFlag::__WALL)) {
                Ok(it) => it,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(_) => break,
            };
            let raw = match ended {
                WaitStatus::Exited(id, code) if id == child => code << 8,
                WaitStatus::Signaled(id, signal, _) if id == child => signal as i32,
                _ => continue,
            };
            let status = std::os::unix::process::ExitStatusExt::from_raw(raw);
            let _ = tell.send(End::Program(status));
        }
        let _ = tell.send(End::All);
    });
}

fn library() -> Result<PathBuf> {
    let own = std::env::current_exe().context("where is this program?")?;
    let directory = own.parent().context("where is this program?")?;
    let installed = directory.join("../lib/zerolane").join(LIBRARY);
    let places = [
        installed,
        directory.join(LIBRARY),
        directory.join(BUILT_LIBRARY),
        // Where cargo builds it for tests.
        directory.join("deps").join(BUILT_LIBRARY),
    ];
    let found = places.iter().find(|it| it.is_file());
    let found = found.and_then(|it| it.canonicalize().ok());
    found.ok_or_else(|| {
        anyhow!(
            "there is no {}: `make install` and the Debian package install it, and `cargo build -p zerolane-preload` \
             builds it beside this program",
            places[0].display()
        )
    })
}

/// The value of LD_PRELOAD: the library, then what is there already.
fn preload(library: &std::path::Path) -> Result<OsString> {
    let path = library.as_os_str();
    ensure!(
        !path.as_bytes().iter().any(|it| matches!(it, b':' | b' ')),
        "the linker cannot load {}: its path has a space or a colon",
        library.display()
    );
    let mut value = path.to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|it| !it.is_empty()) {
        value.push(OsStr::new(":"));
        value.push(others);
    }
    Ok(value)
}
