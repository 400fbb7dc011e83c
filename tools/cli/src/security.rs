//! The identity of the commands, and the peers they trust: key files, servers met before, keys let in.

use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};

use zerolane::Security;
use zerolane::failure::{CloseReason, Reason};
use zerolane::keys::{self, Access, AllowFile, HostTrust, KnownHosts, Meeting, identity};
use zerolane::lanes;
use zerolane::options::{NeighbourName, Profile, Profiles, RendezvousName};
use zerolane::security::{Code, Identity, Mode, PublicKey};

use crate::bypass::Bypass;
use crate::console;
use crate::exit::Exit;
use crate::lane::LaneName;
use crate::login::LoginArgs;
use crate::paths::{PathArgs, PathsArgs};

/// Files in the directory of the user's keys.
const IDENTITY: &str = "identity";
const KNOWN_HOSTS: &str = "known_hosts";
const ALLOWED_KEYS: &str = "allowed_keys";

/// Options of all commands that connect: `cp`, `ls`, `mem put` and its like.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Security")]
pub(crate) struct ClientArgs {
    /// File with this end's key [default: identity beside the user's other keys, made if missing]
    #[arg(long, value_name = "FILE", conflicts_with = "plain")]
    identity: Option<PathBuf>,
    /// Trust the server with this key and no other
    #[arg(long, value_name = "KEY", conflicts_with = "plain")]
    server_key: Option<PublicKey>,
    /// Do not encrypt, only authenticate. The server must be told the same
    #[arg(long, conflicts_with = "plain")]
    authenticated: bool,
    /// Use no protection. The server must be told the same
    #[arg(long)]
    plain: bool,
    /// How the protocol behaves. The server must be told the same
    #[arg(long, value_enum, default_value_t = ProfileName::Extended)]
    pub(crate) profile: ProfileName,
    /// What carries the connection; but for udp and auto, the server must be told so, too [default: auto, or ethernet where the
    /// address is ether:IFACE/MAC]
    #[arg(long, value_enum, value_name = "LANE")]
    pub(crate) lane: Option<LaneName>,
    /// The name by which both ends meet in shared memory, in place of their address: for containers of one kernel with networks of
    /// their own and one directory of the rendezvous
    #[arg(long, value_name = "NAME")]
    pub(crate) rendezvous: Option<RendezvousName>,
    /// Whether raw Ethernet goes past the kernel's network stack, by AF_XDP: see `zerolane lanes` [default: auto]
    #[arg(long, value_enum, value_name = "WHEN")]
    pub(crate) bypass: Option<Bypass>,
    #[command(flatten)]
    pub(crate) paths: PathArgs,
}

/// Options of the commands that reach what `serve` offers, which can ask for a code.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Security")]
pub(crate) struct FileClientArgs {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    /// The one-time code that `serve --code` showed there, in place of keys
    #[arg(long, value_name = "CODE", conflicts_with_all = ["plain", "authenticated", "server_key", "identity"])]
    pub(crate) code: Option<Code>,
    #[command(flatten)]
    pub(crate) login: LoginArgs,
}

/// Options of the commands that listen: `serve`, `mem export`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Security")]
pub(crate) struct ServerArgs {
    /// File with this end's key [default: identity beside the user's other keys, made if missing]
    #[arg(long, value_name = "FILE", conflicts_with = "plain")]
    identity: Option<PathBuf>,
    /// Keys that may connect, read again when it changes [default: allowed_keys beside the user's
    /// other keys]. The server's own key always may
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plain", "anyone"])]
    allowed: Option<PathBuf>,
    /// Let any client connect
    #[arg(long)]
    anyone: bool,
    /// Do not encrypt, only authenticate. Clients must be told the same
    #[arg(long, conflicts_with = "plain")]
    authenticated: bool,
    /// Use no protection. Clients must be told the same
    #[arg(long)]
    plain: bool,
    /// How the protocol behaves. Clients must be told the same
    #[arg(long, value_enum, default_value_t = ProfileName::Extended)]
    pub(crate) profile: ProfileName,
    /// What carries connections; auto offers shared memory besides UDP, the others offer nothing else [default: auto, or
    /// ethernet where the address is ether:IFACE]
    #[arg(long, value_enum, value_name = "LANE")]
    pub(crate) lane: Option<LaneName>,
    /// The name by which both ends meet in shared memory, in place of their address: for containers of one kernel with networks of
    /// their own and one directory of the rendezvous
    #[arg(long, value_name = "NAME")]
    pub(crate) rendezvous: Option<RendezvousName>,
    /// Whether raw Ethernet goes past the kernel's network stack, by AF_XDP: see `zerolane lanes` [default: auto]
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
            Err("1 to 63 letters, digits, '-', '_' and '.', of which the first is no sign".into())
        }
    }
}

impl ServerArgs {
    /// The name by which neighbours find it.
    pub(crate) fn neighbour(&self) -> NeighbourName {
        match self.ether_name.as_deref() {
            None => NeighbourName::Host,
            Some("") => NeighbourName::Silent,
            Some(name) => NeighbourName::Named(name.to_owned()),
        }
    }
}

/// Names of profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ProfileName {
    /// With congestion control and selective repair
    Extended,
    /// As the thesis has it, to be compared with: without either
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

/// Protection of a connection whose ends prove their identities.
fn protection(authenticated: bool) -> Security {
    match authenticated {
        true => Security::authenticated(),
        false => Security::default(),
    }
}

/// The file in which this user's key is, or would be.
pub(crate) fn identity_file(given: Option<PathBuf>) -> Result<PathBuf> {
    let of_user = || keys::home().map(|home| home.join(IDENTITY));
    given
        .or_else(of_user)
        .ok_or_else(|| anyhow!("no directory for keys: set HOME or ZEROLANE_HOME"))
}

/// The list of keys that may connect, if there is a place for it.
pub(crate) fn allowed_keys_file(given: Option<PathBuf>) -> Option<PathBuf> {
    given.or_else(|| keys::home().map(|home| home.join(ALLOWED_KEYS)))
}

/// The file of servers met, if there is a place for it.
pub(crate) fn known_hosts_file() -> Option<PathBuf> {
    keys::home().map(|home| home.join(KNOWN_HOSTS))
}

/// Has the error of a key file name the file, once: most do.
pub(crate) fn in_file(path: &Path) -> impl FnOnce(keys::Error) -> anyhow::Error {
    move |error| match error {
        keys::Error::Syntax { .. } => anyhow::Error::new(error).context(path.display().to_string()),
        error => error.into(),
    }
}

/// This end's identity. Without a place to keep it, or with one that cannot be written, one for this process only.
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

/// Whether there is no such file. One that cannot be looked at may be there.
fn is_missing(path: &Path) -> bool {
    match path.symlink_metadata() {
        Ok(_) => false,
        Err(why) => matches!(why.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

impl ClientArgs {
    /// What is said when nothing else is, with this end's key in that file.
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
}

impl FileClientArgs {
    /// Whether a one-time code is to let it in.
    pub(crate) fn has_code(&self) -> bool {
        self.code.is_some()
    }

    /// Trusts the server with this key and no other, if the command line says nothing else.
    pub(crate) fn expect_key(&mut self, key: PublicKey) {
        if !self.client.plain && self.code.is_none() {
            self.client.server_key.get_or_insert(key);
        }
    }

    /// Refuses what has no meaning for a server that a login starts: both ends have keys of their own then, for this
    /// time only.
    pub(crate) fn check_for_login(&self) -> Result<()> {
        match self.for_servers() {
            Some(option) => Err(anyhow!(
                "{option} is for servers that are there already, not for one that ssh starts"
            )
            .context(Exit::Usage)),
            None => Ok(()),
        }
    }

    /// Refuses what has no meaning where both sides are on this machine.
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

    /// An option that was given and is for servers that are there already.
    fn for_servers(&self) -> Option<&'static str> {
        let client = &self.client;
        let given = [
            (self.code.is_some(), "--code"),
            (client.identity.is_some(), "--identity"),
            (client.server_key.is_some(), "--server-key"),
            (client.authenticated, "--authenticated"),
            (client.plain, "--plain"),
            (client.profile == ProfileName::Classic, "--profile classic"),
            (client.lane.is_some(), "--lane"),
            (client.rendezvous.is_some(), "--rendezvous"),
            (client.bypass.is_some(), "--bypass"),
            (!client.paths.is_empty(), "--path"),
        ];
        given
            .iter()
            .find(|(given, _)| *given)
            .map(|(_, option)| *option)
    }
}

/// The trust of a client in the host it connects to.
pub(crate) struct Caution {
    trust: Arc<HostTrust>,
    own: Option<PublicKey>,
    host: String,
    mode: Mode,
    by_code: bool,
    /// The key was named on the command line.
    key_named: bool,
}

impl Caution {
    /// Trust in `host` (name and port) as `args` and `code` say, and what a connection needs for it.
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

    /// Trust in `host`, whose key was told in another way.
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

    /// Says which server it met, before anything else is said.
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
        if let Some(Meeting::First { key, kept }) = self.trust.meeting() {
            let host = &self.host;
            console::note(match kept {
                true => format!("First contact with {host}: its key {key} is remembered."),
                false => format!("First contact with {host}: its key {key} cannot be remembered."),
            });
        }
    }

    /// Puts in front of an error that was caused by `why` what the user can do about it.
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
        if let Some(Meeting::Changed { known, shown }) = self.trust.meeting() {
            if self.key_named {
                return Some(format!(
                    "{host} has the key {shown}, and --server-key names {known} (or server-key in a configuration file). If that was not mistyped, \
                     another program is listening in its place"
                ));
            }
            return Some(format!(
                "WARNING: {host} IS NOT WHO IT WAS. Its key was {known} and now is {shown}. Another \
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
                        "{host} wants a one-time code: ask there for it, and say --code CODE"
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
                "{host} does not let you in. Its owner can: by `zerolane keys add {own} read` (or read-write), \
                 which is the line '{own} read' in its allowed_keys"
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

/// Protection by a code in place of keys: those are made for the one connection.
fn by_code(code: Code) -> Security {
    Security {
        pre_shared: Some(code.into()),
        ..Security::default()
    }
}

/// How a server proves its identity, and which clients it lets in.
pub(crate) struct Doors {
    pub(crate) security: Security,
    pub(crate) access: Access,
    /// A line for the user: who may connect.
    pub(crate) words: String,
}

impl Doors {
    /// Lets in one client that has `code`, once.
    pub(crate) fn by_code(code: Code) -> Doors {
        Doors {
            security: by_code(code),
            access: Access::Anyone,
            words: "Who may connect: one client, once, with a code.".into(),
        }
    }
}

impl ServerArgs {
    /// Keys from this file may connect, if the options say nothing else.
    pub(crate) fn expect_list(&mut self, file: PathBuf) {
        if !self.plain && !self.anyone {
            self.allowed.get_or_insert(file);
        }
    }

    /// Reads the files that the options name.
    pub(crate) fn doors(self) -> Result<Doors> {
        if self.plain {
            return Ok(Doors {
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
        Ok(Doors {
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

/// Reports a change of the list of keys.
pub(crate) fn tell_news(news: Result<usize, String>) {
    console::note(match news {
        Ok(count) => format!("The list of keys was read again: {count} may connect."),
        Err(why) => {
            format!("WARNING: the list of keys stays as it was, for it cannot be used: {why}")
        }
    });
}

fn words(path: &Path, others: usize) -> String {
    let path = path.display();
    format!("Who may connect: its own key and {others} others, from {path}.")
}
