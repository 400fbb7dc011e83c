//! Loads this end's identity, and decides which peers to trust: key files, known servers, allowed keys.

use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};

use zerolane::Security;
use zerolane::failure::{CloseReason, Reason};
use zerolane::keys::{self, Access, AllowFile, HostKeyCheck, HostTrust, KnownHosts, identity};
use zerolane::lanes;
use zerolane::options::{NeighbourName, Profile, Profiles, RendezvousName};
use zerolane::security::{Code, Identity, Mode, PublicKey};

use crate::bypass::Bypass;
use crate::console;
use crate::exit::Exit;
use crate::lane::LaneName;
use crate::login::LoginArgs;
use crate::paths::{PathArgs, PathsArgs};

/// Files in the user's key directory.
const IDENTITY: &str = "identity";
const KNOWN_HOSTS: &str = "known_hosts";
const ALLOWED_KEYS: &str = "allowed_keys";

/// Options of all commands that connect, such as `cp`, `ls` and `mem put`.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Security")]
pub(crate) struct ClientArgs {
    /// File with this end's key [default: identity beside the user's other keys, made if missing]
    #[arg(long, value_name = "FILE", conflicts_with = "plain")]
    identity: Option<PathBuf>,
    /// Trust only the server with this key
    #[arg(long, value_name = "KEY", conflicts_with = "plain")]
    server_key: Option<PublicKey>,
    /// Authenticate, but do not encrypt. The server needs the same option
    #[arg(long, conflicts_with = "plain")]
    authenticated: bool,
    /// Use no protection. The server needs the same option
    #[arg(long)]
    plain: bool,
    /// The protocol profile, which must be the same at the server
    #[arg(long, value_enum, default_value_t = ProfileName::Extended)]
    pub(crate) profile: ProfileName,
    /// What carries the connection. Except for udp and auto, the server needs the same option [default: auto, or
    /// ethernet where the address is ether:IFACE/MAC]
    #[arg(long, value_enum, value_name = "LANE")]
    pub(crate) lane: Option<LaneName>,
    /// The name by which both ends meet in shared memory, instead of by address: for containers on one kernel that have
    /// separate networks and share the rendezvous directory
    #[arg(long, value_name = "NAME")]
    pub(crate) rendezvous: Option<RendezvousName>,
    /// Whether raw Ethernet bypasses the kernel's network stack, by AF_XDP: see `zerolane lanes` [default: auto]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(crate) bypass: Option<Bypass>,
    #[command(flatten)]
    pub(crate) paths: PathArgs,
}

/// Options of commands that connect to `serve`, which can demand a code.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Security")]
pub(crate) struct FileClientArgs {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The one-time code that `serve --code` printed there, instead of keys
    #[arg(long, value_name = "CODE", conflicts_with_all = ["plain", "authenticated", "server_key", "identity"])]
    pub(crate) code: Option<Code>,
    #[command(flatten)]
    pub(crate) login: LoginArgs,
}

/// Options of commands that listen, such as `serve` and `mem export`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Security")]
pub(crate) struct ServerArgs {
    /// File with this end's key [default: identity beside the user's other keys, made if missing]
    #[arg(long, value_name = "FILE", conflicts_with = "plain")]
    identity: Option<PathBuf>,
    /// Keys that may connect; the file is reread when it changes [default: allowed_keys beside the user's other keys].
    /// The server's own key always may
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plain", "anyone"])]
    allowed: Option<PathBuf>,
    /// Let any client connect
    #[arg(long)]
    anyone: bool,
    /// Authenticate, but do not encrypt. Clients need the same option
    #[arg(long, conflicts_with = "plain")]
    authenticated: bool,
    /// Use no protection. Clients need the same option
    #[arg(long)]
    plain: bool,
    /// The protocol profile, which must be the same at clients
    #[arg(long, value_enum, default_value_t = ProfileName::Extended)]
    pub(crate) profile: ProfileName,
    /// What carries connections. auto offers shared memory besides UDP; the others offer nothing else [default: auto,
    /// or ethernet where the address is ether:IFACE]
    #[arg(long, value_enum, value_name = "LANE")]
    pub(crate) lane: Option<LaneName>,
    /// The name by which both ends meet in shared memory, instead of by address: for containers on one kernel that have
    /// separate networks and share the rendezvous directory
    #[arg(long, value_name = "NAME")]
    pub(crate) rendezvous: Option<RendezvousName>,
    /// Whether raw Ethernet bypasses the kernel's network stack, by AF_XDP: see `zerolane lanes` [default: auto]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(crate) bypass: Option<Bypass>,
    /// The name by which hosts of the segment find this one over raw Ethernet; '' for none [default: the host's name]
    #[arg(long, value_name = "NAME", value_parser = parse_ether_name)]
    ether_name: Option<String>,
    #[command(flatten)]
    pub(crate) paths: PathsArgs,
}

fn parse_ether_name(text: &str) -> Result<String, String> {
    match text.is_empty() || lanes::is_neighbour_name(text) {
        true => Ok(text.to_owned()),
        false => {
            Err("1 to 63 letters, digits, '-', '_' and '.', the first a letter or digit".into())
        }
    }
}

impl ServerArgs {
    /// The name by which hosts of the segment find this one.
    pub(crate) fn neighbour(&self) -> NeighbourName {
        match self.ether_name.as_deref() {
            None => NeighbourName::Host,
            Some("") => NeighbourName::Silent,
            Some(name) => NeighbourName::Named(name.to_owned()),
        }
    }
}

/// The words of `--profile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ProfileName {
    /// With congestion control and selective repair
    Extended,
    /// Without either, as in the thesis, for comparison
    Classic,
}

impl From<ProfileName> for Profiles {
    fn from(name: ProfileName) -> Profiles {
        Profiles::only(match name {
            ProfileName::Extended => Profile::Extended,
            ProfileName::Classic => Profile::Classic,
        })
    }
}

/// The security options of a connection whose ends authenticate each other.
fn protection(authenticated: bool) -> Security {
    match authenticated {
        true => Security::authenticated(),
        false => Security::default(),
    }
}

/// The path of this user's key, which need not exist.
pub(crate) fn identity_file(given: Option<PathBuf>) -> Result<PathBuf> {
    let of_user = || keys::home().map(|home| home.join(IDENTITY));
    given
        .or_else(of_user)
        .ok_or_else(|| anyhow!("no directory for keys: set HOME or ZEROLANE_HOME"))
}

/// The path of the list of keys that may connect, if there is a directory for it.
pub(crate) fn allowed_keys_file(given: Option<PathBuf>) -> Option<PathBuf> {
    given.or_else(|| keys::home().map(|home| home.join(ALLOWED_KEYS)))
}

/// The path of the list of known servers, if there is a directory for it.
pub(crate) fn known_hosts_file() -> Option<PathBuf> {
    keys::home().map(|home| home.join(KNOWN_HOSTS))
}

/// Adds the file name to the error of a key file, unless the error already names it.
pub(crate) fn in_file(path: &Path) -> impl FnOnce(keys::Error) -> anyhow::Error {
    move |error| match error {
        keys::Error::Syntax { .. } => anyhow::Error::new(error).context(path.display().to_string()),
        error => error.into(),
    }
}

/// Loads or makes this end's identity. `None` means an identity for this process only, if there is no directory for it,
/// or the default file cannot be written.
pub(crate) fn own(given: Option<PathBuf>) -> Result<Option<Arc<Identity>>> {
    let is_named = given.is_some();
    let path = match identity_file(given) {
        Ok(path) => path,
        Err(why) => {
            without_key(&why);
            return Ok(None);
        }
    };
    match identity::load_or_create(&path) {
        Ok(identity) => Ok(Some(Arc::new(identity))),
        Err(why @ keys::Error::Io { .. }) if !is_named && is_missing(&path) => {
            without_key(&why);
            Ok(None)
        }
        Err(why) => Err(in_file(&path)(why)),
    }
}

fn without_key(why: &dyn Display) {
    console::note(format_args!("A key for this time only: {why}."));
}

/// Whether the file does not exist. A file that cannot be examined may exist.
fn is_missing(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(_) => false,
        Err(why) => matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

impl ClientArgs {
    /// The default arguments, with this end's key in `identity`.
    pub(crate) fn of_identity(identity: Option<PathBuf>) -> ClientArgs {
        ClientArgs {
            identity,
            server_key: None,
            authenticated: false,
            plain: false,
            profile: ProfileName::Extended,
            lane: None,
            rendezvous: None,
            bypass: None,
            paths: PathArgs::default(),
        }
    }

    /// As [`FileClientArgs::check_for_login`].
    pub(crate) fn check_for_login(&self) -> Result<()> {
        only_without_login(self.for_servers())
    }

    /// An option on the command line that is only for servers that run already.
    fn for_servers(&self) -> Option<&'static str> {
        let given = [
            (self.identity.is_some(), "--identity"),
            (self.server_key.is_some(), "--server-key"),
            (self.authenticated, "--authenticated"),
            (self.plain, "--plain"),
            (self.profile == ProfileName::Classic, "--profile classic"),
            (self.lane.is_some(), "--lane"),
            (self.rendezvous.is_some(), "--rendezvous"),
            (self.bypass.is_some(), "--bypass"),
            (!self.paths.is_empty(), "--path"),
        ];
        let given = given.iter().find(|(given, _)| *given);
        given.map(|(_, option)| *option)
    }
}

impl FileClientArgs {
    /// Whether a one-time code authenticates this end.
    pub(crate) fn has_code(&self) -> bool {
        self.code.is_some()
    }

    /// Trusts only the server with this key, unless the command line decides otherwise.
    pub(crate) fn expect_key(&mut self, key: PublicKey) {
        if !self.client.plain && self.code.is_none() {
            self.client.server_key.get_or_insert(key);
        }
    }

    /// Refuses options that mean nothing for a server that a login starts: both ends then use temporary keys.
    pub(crate) fn check_for_login(&self) -> Result<()> {
        only_without_login(self.for_servers())
    }

    /// Refuses options that mean nothing if both sides are on this machine.
    pub(crate) fn check_within(&self) -> Result<()> {
        let login = &self.login;
        let given = [
            (login.rsh.is_some(), "--rsh"),
            (login.remote_program.is_some(), "--remote-program"),
            (login.remote_listen.is_some(), "--remote-listen"),
        ];
        let given = given.iter().find(|(given, _)| *given);
        match self.for_servers().or(given.map(|(_, option)| *option)) {
            Some(option) => Err(anyhow!(
                "{option} is for a side at another host, and both are on this machine: leave it out, or write HOST:PATH for one"
            )
            .context(Exit::Usage)),
            None => Ok(()),
        }
    }

    /// An option on the command line that is only for servers that run already.
    fn for_servers(&self) -> Option<&'static str> {
        match self.code {
            Some(_) => Some("--code"),
            None => self.client.for_servers(),
        }
    }
}

fn only_without_login(option: Option<&str>) -> Result<()> {
    match option {
        Some(option) => Err(anyhow!(
            "{option} is for servers that are there already, not for one that ssh starts"
        )
        .context(Exit::Usage)),
        None => Ok(()),
    }
}

/// A client's trust in the host that it connects to.
pub(crate) struct Caution {
    trust: Arc<HostTrust>,
    own: Option<PublicKey>,
    host: String,
    mode: Mode,
    by_code: bool,
    /// Whether the command line named the key.
    key_named: bool,
}

impl Caution {
    /// Decides by `args` and `code` how to trust `host` (name and port). Returns the trust and the security options.
    pub(crate) fn new(
        host: String,
        args: ClientArgs,
        code: Option<Code>,
    ) -> Result<(Caution, Security)> {
        let without_keys = |host, mode| Caution {
            trust: Arc::new(HostTrust::anyone()),
            own: None,
            host,
            mode,
            by_code: mode != Mode::Plain,
            key_named: false,
        };
        if args.plain {
            return Ok((without_keys(host, Mode::Plain), Security::plain()));
        }
        if let Some(code) = code {
            return Ok((without_keys(host, Mode::Encrypted), by_code(code)));
        }
        let identity = own(args.identity)?;
        let own = identity.as_ref().map(|identity| identity.public());
        let key_named = args.server_key.is_some();
        let trust = match (args.server_key, known_hosts_file()) {
            (Some(key), _) => HostTrust::only(key),
            (None, Some(path)) => {
                let known = KnownHosts::load(&path).map_err(in_file(&path))?;
                known.trust(&host, own)
            }
            (None, None) => HostTrust::anyone(),
        };
        let trust = Arc::new(trust);
        let security = Security {
            identity,
            trust: Arc::clone(&trust) as Arc<dyn zerolane::security::Trust>,
            ..protection(args.authenticated)
        };
        let caution = Caution {
            trust,
            own,
            host,
            mode: security.mode,
            by_code: false,
            key_named,
        };
        Ok((caution, security))
    }

    /// Trusts `host` by a key that was learned over another channel.
    pub(crate) fn of_known(host: String, key: PublicKey) -> Caution {
        Caution {
            trust: Arc::new(HostTrust::only(key)),
            own: None,
            host,
            mode: Mode::Encrypted,
            by_code: false,
            key_named: false,
        }
    }

    /// Prints which server was met, before any other message.
    pub(crate) fn introduce(&self) {
        match self.mode {
            Mode::Encrypted => {}
            Mode::Authenticated => {
                console::note("Not encrypted: what was sent could be read by others.");
            }
            Mode::Plain => {
                console::note("WARNING: plain: what was sent could be read and changed by others.");
            }
        }
        if let Some(HostKeyCheck::First { key, saved }) = self.trust.key_check() {
            let host = &self.host;
            console::note(match saved {
                true => format!("First contact with {host}: its key {key} is remembered."),
                false => format!("First contact with {host}: its key {key} cannot be remembered."),
            });
        }
    }

    /// Adds advice to an error that `why` caused.
    pub(crate) fn advise(
        &self,
        why: Option<&zerolane::Error>,
    ) -> impl FnOnce(anyhow::Error) -> anyhow::Error + use<> {
        let advice = self.advice(why);
        |error| match advice {
            Some(advice) => error.context(Advice(advice)),
            None => error,
        }
    }

    fn advice(&self, why: Option<&zerolane::Error>) -> Option<String> {
        let host = &self.host;
        if let Some(HostKeyCheck::Changed { known, presented }) = self.trust.key_check() {
            if self.key_named {
                return Some(format!(
                    "{host} has the key {presented}, and --server-key names {known} (or server-key in a configuration file). If that was not mistyped, \
                     another program is listening in its place"
                ));
            }
            return Some(format!(
                "WARNING: {host} IS NOT WHO IT WAS. Its key was {known} and now is {presented}. Another \
                 program may be listening in its place. If you know that it has a new key: \
                 `zerolane keys forget {host}`"
            ));
        }
        match (why?, self.own) {
            (zerolane::Error::Closed(CloseReason::ExchangeRefused(Reason::Denied)), _) => {
                Some(match self.by_code {
                    true => format!(
                        "{host} does not know this code: it was mistyped, is used up, or was made by \
                         another server. Ask for the one that `zerolane serve --code` shows there now"
                    ),
                    false => format!(
                        "{host} wants a one-time code: ask for it there, and use --code CODE"
                    ),
                })
            }
            (
                zerolane::Error::Closed(CloseReason::Rejected {
                    reason: Reason::Denied,
                    ..
                }),
                Some(own),
            ) => Some(format!(
                "{host} does not let you in. Its owner can, by `zerolane keys add {own} read` (or read-write) \
                 or the line '{own} read' in allowed_keys there"
            )),
            _ => None,
        }
    }
}

/// Advice for the user, printed in front of an error.
#[derive(Debug)]
struct Advice(String);

impl std::fmt::Display for Advice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Authentication by a code; the keys are temporary.
fn by_code(code: Code) -> Security {
    Security {
        pre_shared: Some(code.into()),
        ..Security::default()
    }
}

/// A server's identity, and the clients that it lets in.
pub(crate) struct Admission {
    pub(crate) security: Security,
    pub(crate) access: Access,
    /// The line that tells the user who may connect.
    pub(crate) words: String,
}

impl Admission {
    /// Lets in one client with `code`, once.
    pub(crate) fn by_code(code: Code) -> Admission {
        Admission {
            security: by_code(code),
            access: Access::Anyone,
            words: "Who may connect: one client, once, with a code.".into(),
        }
    }
}

impl ServerArgs {
    /// Lets in the keys of `file`, unless the options decide otherwise.
    pub(crate) fn expect_list(&mut self, file: PathBuf) {
        if !self.plain && !self.anyone {
            self.allowed.get_or_insert(file);
        }
    }

    /// Reads the files that the options name.
    pub(crate) fn admission(self) -> Result<Admission> {
        if self.plain {
            return Ok(Admission {
                security: Security::plain(),
                access: Access::Anyone,
                words: "WARNING: plain: any client that reaches this address can connect, and any \
                        host on the path can read and change everything."
                    .into(),
            });
        }
        let identity = own(self.identity)?;
        let own = identity.as_ref().map(|identity| identity.public());
        let (access, words) = match self.anyone {
            true => (
                Access::Anyone,
                "WARNING: any client that reaches this address can connect.".into(),
            ),
            false => listed(self.allowed, own)?,
        };
        let words = match self.authenticated {
            true => format!("{words} Not encrypted: any host on the path can read everything."),
            false => words,
        };
        let security = Security {
            identity,
            ..protection(self.authenticated)
        };
        Ok(Admission {
            security,
            access,
            words,
        })
    }
}

pub(crate) fn listed(given: Option<PathBuf>, own: Option<PublicKey>) -> Result<(Access, String)> {
    let path = allowed_keys_file(given);
    let path = path.context("no list of keys: name one with --allowed, or say --anyone")?;
    let list = AllowFile::load(&path, own).map_err(in_file(&path))?;
    let others = list.list().len() - usize::from(own.is_some());
    let words = words(&path, others);
    Ok((Access::Listed(Arc::new(list)), words))
}

/// Reports that the list of keys changed.
pub(crate) fn tell_news(news: Result<usize, String>) {
    console::note(match news {
        Ok(count) => {
            let keys = console::counted(count, "key");
            format!("The list of keys was read again: {keys} may connect.")
        }
        Err(why) => {
            format!("WARNING: the list of keys stays as it was, because it cannot be used: {why}")
        }
    });
}

fn words(path: &Path, others: usize) -> String {
    let (path, others) = (path.display(), console::counted(others, "other"));
    format!("Who may connect: its own key and {others}, from {path}.")
}
