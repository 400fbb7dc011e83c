//! Tests logins over a real sshd, which runs as the test's user on loopback.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, geteuid};

use super::super::lab::*;

const SSHD: &str = "/usr/sbin/sshd";

struct Sshd {
    base: tempfile::TempDir,
    port: u16,
    user: User,
    server: Option<Running>,
}

impl Sshd {
    /// `None`, after printing the reason, where sshd cannot run.
    fn start(options: &str) -> Option<Sshd> {
        let user = User::from_uid(geteuid()).unwrap();
        let why = match &user {
            _ if !fs::exists(SSHD).unwrap() => "no sshd (openssh-server)",
            None => "this user has no name",
            Some(user) if !is_shell(&user.shell) => "this user may not log in",
            Some(_) => "",
        };
        let Some(user) = user.filter(|_| why.is_empty()) else {
            println!("skipped: {why}");
            return None;
        };
        if user.uid.is_root() {
            // Like the service of the package.
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let base = tempfile::tempdir_in("/dev/shm").unwrap();
        for name in ["home", "local", "keys"] {
            fs::create_dir(base.path().join(name)).unwrap();
        }
        let mut sshd = Sshd {
            base,
            port: 0,
            user,
            server: None,
        };
        for key in ["host", "client", "unlisted"] {
            let mut make = Command::new("ssh-keygen");
            make.args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(sshd.path(key));
            succeed(make);
        }
        fs::copy(sshd.path("client.pub"), sshd.path("authorized")).unwrap();
        let forced = format!(
            "#!/bin/sh\n\
             echo \"$SSH_ORIGINAL_COMMAND\" >>'{base}/ran'\n\
             cd '{base}/home'\n\
             echo 'Welcome to this host'\n\
             export ZEROLANE_HOME='{base}/keys'\n\
             exec sh -c \"$SSH_ORIGINAL_COMMAND\"\n",
            base = sshd.base.path().display()
        );
        fs::write(sshd.path("forced"), forced).unwrap();
        fs::set_permissions(sshd.path("forced"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(sshd.path("banner"), "Only for guests.\n").unwrap();
        let at = |name: &str| sshd.path(name).display().to_string();
        let config = format!(
            "HostKey {}\nAuthorizedKeysFile {}\nForceCommand {}\nBanner {}\nListenAddress 127.0.0.1\n\
             PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPermitUserRC no\nPrintMotd no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\n{options}\n",
            at("host"),
            at("authorized"),
            at("forced"),
            at("banner")
        );
        fs::write(sshd.path("config"), config).unwrap();
        sshd.listen();
        let host_key = fs::read_to_string(sshd.path("host.pub")).unwrap();
        let known = format!("[127.0.0.1]:{} {host_key}", sshd.port);
        fs::write(sshd.path("known"), known).unwrap();
        Some(sshd)
    }

    /// Listens at a port that was free a moment ago.
    fn listen(&mut self) {
        for _ in 0..10 {
            let port = TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
                .port();
            let log = fs::File::create(self.path("log")).unwrap();
            let mut sshd = Command::new(SSHD);
            sshd.arg("-De")
                .arg("-f")
                .arg(self.path("config"))
                .args(["-p", &port.to_string()]);
            sshd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
            let mut running = Running(sshd.spawn().unwrap());
            let log = || fs::read_to_string(self.path("log")).unwrap();
            let listens = eventually("sshd listens", || {
                let ended = fs::read_link(format!("/proc/{}/exe", running.0.id())).is_err();
                log()
                    .contains("Server listening")
                    .then_some(true)
                    .or(ended.then_some(false))
            });
            if listens && running.0.try_wait().unwrap().is_none() {
                self.port = port;
                self.server = Some(running);
                return;
            }
            println!("sshd did not start at {port}: {}", log());
        }
        panic!("sshd does not start");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.base.path().join(name)
    }

    fn there(&self, path: &str) -> String {
        format!("{}@127.0.0.1:{}:{path}", self.user.name, self.port)
    }

    /// The ssh command with these options first. It uses nothing from this user's home.
    fn ssh(&self, options: &str) -> String {
        let at = |name: &str| self.path(name).display().to_string();
        format!(
            "ssh -F none {options} -i '{}' -o UserKnownHostsFile='{}' -o GlobalKnownHostsFile=none \
             -o IdentitiesOnly=yes -o IdentityAgent=none -o UpdateHostKeys=no",
            at("client"),
            at("known")
        )
    }

    fn zerolane(&self, arguments: &[&str], ssh: &str) -> Command {
        let program = format!("'{}'", env!("CARGO_BIN_EXE_zerolane"));
        let mut command = zerolane();
        command
            .args(arguments)
            .args(["--rsh", ssh, "--remote-program", &program])
            .current_dir(self.base.path())
            .env("ZEROLANE_HOME", self.path("keys"));
        command
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.path("log"));
            println!("sshd: {}", log.unwrap_or_default());
        }
    }
}

fn is_shell(shell: &std::path::Path) -> bool {
    let name = shell.file_name().and_then(|it| it.to_str());
    name.is_none_or(|it| !matches!(it, "nologin" | "false"))
}

fn same(a: PathBuf, b: PathBuf) {
    let differ = Command::new("diff").arg("-r").args([a, b]).output();
    let differ = differ.unwrap();
    assert!(differ.status.success(), "{differ:?}");
}

#[test]
fn sshd__cp_and_sync_both_ways_and_ls() {
    let Some(sshd) = Sshd::start("") else { return };
    let ssh = sshd.ssh("-o BatchMode=yes");
    fs::create_dir_all(sshd.path("local/tree/deep")).unwrap();
    fs::write(sshd.path("local/tree/deep/large"), content(1, 5 * MIB)).unwrap();
    fs::write(sshd.path("local/tree/a b"), b"spaces").unwrap();
    let absolute = sshd.path("home/absolute").display().to_string();
    for (verb, there, at) in [
        (&["cp", "-r"][..], "relative", "home/relative"),
        (&["cp", "-r"], &absolute, "home/absolute"),
        (&["sync"], "synced", "home/synced"),
    ] {
        let there = sshd.there(there);
        let back = format!("local/back-{}", at.replace('/', "-"));
        for (from, to) in [("local/tree", &*there), (&*there, &*back)] {
            let arguments = [verb, &[from, to]].concat();
            let (code, out, err) = run(sshd.zerolane(&arguments, &ssh));
            assert_eq!(code, 0, "{out}{err}");
            assert!(
                err.contains("Only for guests.") && !err.contains("Welcome"),
                "{err}"
            );
        }
        same(sshd.path("local/tree"), sshd.path(at));
        same(sshd.path("local/tree"), sshd.path(&back));
    }
    let (code, out, err) = run(sshd.zerolane(&["ls", &sshd.there("relative")], &ssh));
    assert!(code == 0 && out == "a b\ndeep\n", "{out}{err}");
    let ran = fs::read_to_string(sshd.path("ran")).unwrap();
    let command = format!("'{}' serve --stdio", env!("CARGO_BIN_EXE_zerolane"));
    assert!(
        ran.lines().count() == 7 && ran.lines().all(|it| it == command),
        "{ran}"
    );
    assert_eq!(names(&sshd.path("keys")), [""; 0]);
}

#[test]
fn sshd__that_refuses_or_is_another_host() {
    let Some(sshd) = Sshd::start("") else { return };
    let get = |ssh: &str| sshd.zerolane(&["cp", &sshd.there("a"), "local/"], ssh);
    let ssh = sshd.ssh("-o BatchMode=yes");
    let unlisted = ssh.replace("/client'", "/unlisted'");
    fail(get(&unlisted), 3, "Permission denied (publickey)");
    fail(get(&unlisted), 3, "no login at 127.0.0.1: ssh failed");
    let other = fs::read_to_string(sshd.path("unlisted.pub")).unwrap();
    let known = format!("[127.0.0.1]:{} {other}", sshd.port);
    fs::write(sshd.path("known"), known).unwrap();
    fail(get(&ssh), 3, "REMOTE HOST IDENTIFICATION HAS CHANGED");
}

#[test]
fn sshd__ssh_may_ask() {
    let Some(sshd) = Sshd::start("") else { return };
    fs::write(sshd.path("home/a"), b"theirs").unwrap();
    fs::write(sshd.path("known"), "").unwrap();
    let ask = format!(
        "#!/bin/sh\necho \"$1\" >>'{}'\necho yes\n",
        sshd.path("asked").display()
    );
    fs::write(sshd.path("ask"), ask).unwrap();
    fs::set_permissions(sshd.path("ask"), fs::Permissions::from_mode(0o755)).unwrap();
    let ssh = sshd.ssh("-o StrictHostKeyChecking=ask");
    let mut get = sshd.zerolane(&["cp", &sshd.there("a"), "local/b"], &ssh);
    get.env("SSH_ASKPASS", sshd.path("ask"))
        .env("SSH_ASKPASS_REQUIRE", "force");
    let (code, out, err) = run(get);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(fs::read(sshd.path("local/b")).unwrap(), b"theirs");
    let asked = fs::read_to_string(sshd.path("asked")).unwrap();
    assert!(asked.contains("continue connecting"), "{asked}");
}

#[test]
fn sshd__a_copy_outlives_its_ssh() {
    const LARGE: usize = 192 * MIB;
    let Some(sshd) = Sshd::start("") else { return };
    fs::write(sshd.path("local/large"), content(1, LARGE)).unwrap();
    let shell = format!(
        "#!/bin/sh\necho $$ >'{}'\nexec {} \"$@\"\n",
        sshd.path("pid").display(),
        sshd.ssh("-o BatchMode=yes")
    );
    fs::write(sshd.path("shell"), shell).unwrap();
    fs::set_permissions(sshd.path("shell"), fs::Permissions::from_mode(0o755)).unwrap();
    let shell = sshd.path("shell").display().to_string();
    let mut put = sshd.zerolane(&["cp", "local/large", &sshd.there("")], &shell);
    put.args(UNHURRIED);
    let mut copy = Running(
        put.stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    while part_bytes(&sshd.path("home"), "large") <= 8 * MIB as u64 {
        assert!(copy.0.try_wait().unwrap().is_none());
    }
    let pid = fs::read_to_string(sshd.path("pid")).unwrap();
    kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL).unwrap();
    assert_eq!(copy.0.wait().unwrap().code(), Some(0));
    assert!(fs::read(sshd.path("home/large")).unwrap() == content(1, LARGE));
}

#[test]
fn sshd__cast_starts_its_hosts() {
    // A login finds no zerolane, even if this host has one.
    let programs = tempfile::tempdir_in("/dev/shm").unwrap();
    for name in ["sh", "uname", "mktemp", "head", "chmod", "rm"] {
        symlink(format!("/bin/{name}"), programs.path().join(name)).unwrap();
    }
    let only = format!("SetEnv PATH={}", programs.path().display());
    let Some(sshd) = Sshd::start(&only) else {
        return;
    };
    let ssh = sshd.ssh("-o BatchMode=yes");
    let bytes = content(1, 3 * MIB);
    fs::write(sshd.path("local/weights"), &bytes).unwrap();
    let there = format!("{}@127.0.0.1:{}", sshd.user.name, sshd.port);
    // A host that runs sshd, and an address where nothing listens.
    let closed = {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        taken.local_addr().unwrap().to_string()
    };
    let cast = ["cast", "--ssh", "--to", "it's here", "local/weights"];
    let mut named = sshd.zerolane(&cast, &ssh);
    named.args([&there, &closed]);
    let (code, out, err) = run(named);
    assert_eq!(code, 5, "{out}{err}");
    assert!(
        out.contains(&format!("{closed}: FAILED: the login did not start a host")),
        "{out}{err}"
    );
    assert!(fs::read(sshd.path("home/it's here")).unwrap() == bytes);
    // A second login carries the program, if the first one finds none.
    let mut brought = zerolane();
    brought
        .args(["cast", "--ssh", "-e", &ssh, "local/weights", &there])
        .current_dir(sshd.base.path())
        .env("ZEROLANE_HOME", sshd.path("keys"));
    let (code, out, err) = run(brought);
    assert_eq!(code, 0, "{out}{err}");
    assert!(fs::read(sshd.path("home/weights")).unwrap() == bytes);
    let ran = fs::read_to_string(sshd.path("ran")).unwrap();
    let begins: Vec<_> = ran.lines().filter(|it| it.contains("cast")).collect();
    assert_eq!(begins.len(), 3, "{ran}");
    // The keys of the cast were exchanged over the logins, and none is remembered.
    assert!(!fs::exists(sshd.path("keys/known_hosts")).unwrap());
    // Nor is a key stored.
    assert!(!fs::exists(sshd.path("keys/identity")).unwrap());
}

#[test]
fn sshd__cp_and_sync_between_two_hosts() {
    let Some(sshd) = Sshd::start("") else { return };
    // The other name is not a known host.
    let ssh = sshd.ssh("-o BatchMode=yes -o StrictHostKeyChecking=no");
    fs::create_dir_all(sshd.path("home/tree/deep")).unwrap();
    fs::write(sshd.path("home/tree/deep/large"), content(1, 5 * MIB)).unwrap();
    fs::write(sshd.path("home/tree/a b"), b"spaces").unwrap();
    let beside = |path: &str| sshd.there(path).replace("127.0.0.1", "localhost");
    for (verb, at) in [(&["cp", "-r"][..], "copied"), (&["sync"], "synced")] {
        let (from, to) = (sshd.there("tree"), beside(at));
        let arguments = [verb, &[&from, &to]].concat();
        let (code, out, err) = run(sshd.zerolane(&arguments, &ssh));
        assert!(code == 0 && out.is_empty(), "{out}{err}");
        assert!(!err.contains("Welcome"), "{err}");
        same(sshd.path("home/tree"), sshd.path("home").join(at));
    }
    let missing = sshd.zerolane(&["cp", &sshd.there("none"), &beside("x")], &ssh);
    fail(missing, 1, "none: no such file or directory");
    assert_eq!(names(&sshd.path("keys")), [""; 0]);
}
