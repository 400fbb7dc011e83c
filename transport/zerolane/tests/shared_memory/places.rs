//! Tests that other users cannot interfere: as a peer, at the path of the directory, or inside it.

use crate::child::{Job, child, heard, lane_of, listener, told};
use crate::{LEN, accept, content, listen};
use std::fs::{self, DirBuilder, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use zerolane::counters::LaneKind;
use zerolane::options::LaneChoice;

/// Another user than this process's.
const NOBODY: u32 = 65_534;

/// Whether this process may start a process of `user`.
fn may_start(user: u32) -> bool {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can start a process of another user");
        return false;
    }
    let program = std::env::current_exe().expect("this program");
    let reachable = Command::new("test")
        .arg("-x")
        .arg(&program)
        .uid(user)
        .gid(user)
        .status();
    if !reachable.is_ok_and(|it| it.success()) {
        eprintln!("skipped: user {user} may not start {}", program.display());
        return false;
    }
    true
}

#[test]
fn processes__another_user_gets_udp() {
    if !may_start(NOBODY) {
        return;
    }
    let mut endpoint = listen(LaneChoice::Best);
    let job = Job {
        lane: "best",
        user: Some(NOBODY),
        ..Job::SEND
    };
    let (mut child, mut said) = child(endpoint.local_addr(), &job);
    let mut connection = accept(&mut endpoint);
    let mut buffer = vec![0; LEN];
    connection.recv_into(&mut buffer).expect("by UDP");
    assert!(buffer == content(0, LEN), "content");
    assert_eq!(lane_of(&mut said), "Udp Some(NoListener)");
    assert_eq!(connection.account().lane, LaneKind::Udp);
    child.kill().expect("ours");
    child.wait().expect("killed");
}

/// The path in `directory` where processes meet the listener at `address`.
pub(crate) fn name(directory: &Path, address: SocketAddr) -> PathBuf {
    let namespace = fs::metadata("/proc/self/ns/net").expect("Linux").ino();
    directory.join(format!("{namespace}-{}-{}", address.ip(), address.port()))
}

/// A user that has no other process here, and its directory for meeting, which does not exist yet.
struct Place {
    user: u32,
    path: PathBuf,
}

impl Place {
    /// Each test has its own.
    fn new(test: u32) -> Place {
        let user = 100_000 + std::process::id() * 4 + test;
        let path = PathBuf::from(format!("/tmp/zerolane-{user}"));
        Place { user, path }
    }

    fn make(&self, owner: u32, mode: u32) {
        self.clear();
        DirBuilder::new()
            .mode(0o700)
            .create(&self.path)
            .expect("made");
        fs::set_permissions(&self.path, Permissions::from_mode(mode)).expect("ours");
        chown(&self.path, Some(owner), Some(owner)).expect("given");
    }

    fn clear(&self) {
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_dir_all(&self.path);
    }

    /// Makes a socket there that admits any process.
    fn lurk(&self, address: SocketAddr) -> UnixListener {
        let name = name(&self.path, address);
        let lurking = UnixListener::bind(&name).expect("free");
        fs::set_permissions(&name, Permissions::from_mode(0o777)).expect("ours");
        lurking.set_nonblocking(true).expect("open");
        lurking
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Lets a process of the place's user connect to a listener that offers both lanes; returns its report of the lane.
fn comes(place: &Place, put: impl FnOnce(SocketAddr)) -> String {
    let mut endpoint = listen(LaneChoice::Best);
    put(endpoint.local_addr());
    let job = Job {
        lane: "best",
        user: Some(place.user),
        ..Job::SEND
    };
    let (mut child, mut said) = child(endpoint.local_addr(), &job);
    let mut connection = accept(&mut endpoint);
    let mut buffer = vec![0; LEN];
    connection.recv_into(&mut buffer).expect("by UDP");
    assert!(buffer == content(0, LEN), "content");
    let lane = lane_of(&mut said);
    child.kill().expect("ours");
    child.wait().expect("killed");
    lane
}

/// Every user can write to `/tmp`: a user that makes the directory first must not get the payload of the user in its
/// name.
#[test]
fn connect__where_the_directory_is_another_users_is_by_udp_and_nobody_is_met() {
    let place = Place::new(0);
    if !may_start(place.user) {
        return;
    }
    let aside = place.path.with_extension("aside");
    let link = || {
        place.make(place.user, 0o700);
        fs::rename(&place.path, &aside).expect("moved");
        symlink(&aside, &place.path).expect("linked");
    };
    let makes: [(&str, &dyn Fn()); 4] = [
        ("another user's", &|| place.make(NOBODY, 0o700)),
        ("another user's, open", &|| place.make(NOBODY, 0o777)),
        ("its own, open", &|| place.make(place.user, 0o777)),
        ("a link", &link),
    ];
    for (what, make) in makes {
        make();
        let mut lurking = None;
        let lane = comes(&place, |address| lurking = Some(place.lurk(address)));
        assert_eq!(lane, "Udp Some(Directory)", "{what}");
        let came = lurking.expect("put").accept();
        assert!(came.is_err(), "{what}: it was met");
    }
    fs::remove_dir_all(&aside).expect("ours");
    place.clear();
    fs::write(&place.path, b"").expect("free");
    assert_eq!(comes(&place, |_| {}), "Udp Some(Directory)", "a file");
    // A process that would listen there does not, either.
    let job = Job {
        user: Some(place.user),
        ..Job::SEND
    };
    let (mut child, mut said) = listener(&job);
    let refused = told(&mut said, "refused");
    assert!(refused.contains("not this user's alone"), "{refused}");
    child.wait().expect("over");
}

/// As if a process of root put a socket into the directory.
#[test]
fn connect__where_another_user_listens_in_the_directory_is_by_udp_and_says_so() {
    let place = Place::new(1);
    if !may_start(place.user) {
        return;
    }
    place.make(place.user, 0o700);
    let mut lurking = None;
    let lane = comes(&place, |address| lurking = Some(place.lurk(address)));
    assert_eq!(lane, "Udp Some(OtherUser)");
    let (mut met, _) = lurking.expect("put").accept().expect("it looked who it is");
    let said = std::io::Read::read(&mut met, &mut [0; 64]);
    assert_eq!(said.expect("closed"), 0, "and passed nothing");
}

/// Root reaches every directory; a listener of another user accepts nothing from it.
#[test]
fn visitors__of_another_user_are_turned_away() {
    let place = Place::new(2);
    if !may_start(place.user) {
        return;
    }
    let job = Job {
        user: Some(place.user),
        first: "turn away",
        ..Job::SEND
    };
    let (mut child, mut said) = listener(&job);
    let at: SocketAddr = told(&mut said, "at").parse().expect("an address");
    let mut visiting = UnixStream::connect(name(&place.path, at)).expect("it listens");
    assert_eq!(heard(&mut said, "refused").as_deref(), Some("1"));
    let said = std::io::Read::read(&mut visiting, &mut [0; 64]);
    assert_eq!(said.expect("closed"), 0, "nothing is said");
    assert!(child.wait().expect("over").success());
}
