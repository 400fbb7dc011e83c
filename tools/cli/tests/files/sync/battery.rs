//! Tests copies of all kinds while one end is killed at a random moment: no content is wrong, lost or deleted too
//! early.

use super::*;
use std::io;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};

/// The kind of copy of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Copy,
    Sync,
    InPlace,
}

/// The end that is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Client,
    /// The server, and the client if it notices nothing.
    Server,
    /// The server, which restarts, so that the client continues.
    ServerForAWhile,
}

/// Content of every file, by path; `None` is a directory.
type Files = BTreeMap<String, Option<[u8; 32]>>;

/// All files below `base`. A server whose client was killed may still rename files, so this retries.
fn files(base: &Path) -> Files {
    fn walk(base: &Path, below: &str, files: &mut Files) -> io::Result<()> {
        for entry in fs::read_dir(base.join(below))? {
            let name = entry?.file_name().into_string().unwrap();
            let path = format!("{below}/{name}").trim_start_matches('/').to_owned();
            let place = base.join(&path);
            if fs::metadata(&place)?.is_dir() {
                files.insert(path.clone(), None);
                walk(base, &path, files)?;
            } else {
                let digest = blake3::hash(&fs::read(&place)?);
                files.insert(path, Some(*digest.as_bytes()));
            }
        }
        Ok(())
    }
    eventually("nothing is renamed", || {
        let mut found = BTreeMap::new();
        match walk(base, "", &mut found) {
            Ok(()) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => panic!("{}: {error}", base.display()),
        }
    })
}

/// Plants two states of a tree: the new one in `from`, the old one in `to`.
fn plant_two(from: &Path, to: &Path, seed: u64, kind: Kind) {
    for number in 0..3 {
        let mut bytes = content(seed + number, (6 + 5 * number as usize) * MIB + 77);
        write(&to.join(format!("large{number}")), &bytes);
        // Most of the file stays the same.
        let middle = bytes.len() / 2;
        bytes[middle..].reverse();
        write(&from.join(format!("large{number}")), &bytes);
    }
    for number in 0..40 {
        let name = format!("d{}/f{number}", number % 4);
        write(
            &from.join(&name),
            &content(seed + 100 + number, 3000 * number as usize),
        );
        if number % 3 > 0 {
            write(&to.join(&name), &content(seed + 200 + number, 2000));
        }
    }
    write(&from.join("new/deep/f"), &content(seed + 300, 5000));
    write(&to.join("extra/deep/f"), &content(seed + 301, 5000));
    write(&to.join("d1/extra"), &content(seed + 302, 5000));
    if kind != Kind::Copy {
        write(&to.join("d0/was/f"), b"directory");
        write(&from.join("d0/was"), b"file");
        write(&to.join("d2/was"), b"file");
        write(&from.join("d2/was/f"), b"directory");
    }
    // New files are newer, however fast the test runs.
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    for (path, digest) in files(to) {
        if digest.is_some() {
            let file = File::options().write(true).open(to.join(path)).unwrap();
            file.set_modified(old).unwrap();
        }
    }
}

const HARD_LINKS: &str = "-H";

/// Files of the source that get another name, in directories before and after them.
const LINKED: [(&str, &str); 4] = [
    ("large1", "d0/linked"),
    ("d2/f2", "d1/linked"),
    ("d1/f13", "new/deep/linked"),
    ("d0/f4", "linked"),
];

struct Round {
    lab: Lab,
    kind: Kind,
    push: bool,
    victim: Victim,
    options: Vec<&'static str>,
    after: Duration,
}

impl Round {
    fn new(seed: u64) -> Round {
        let dice = content(seed, 9);
        let kind = [Kind::Copy, Kind::Sync, Kind::InPlace][usize::from(dice[0] % 3)];
        let mut options = match kind {
            Kind::Copy => vec!["-r"],
            Kind::Sync | Kind::InPlace => vec!["--delete"],
        };
        if kind == Kind::InPlace {
            options.push("--in-place");
        }
        for (die, option) in [
            (dice[1], "--delta"),
            (dice[2], "--resume"),
            (dice[3], "--fsync"),
            (dice[8], HARD_LINKS),
        ] {
            if die & 1 == 0 {
                options.push(option);
            }
        }
        Round {
            lab: Lab::new(&[]),
            kind,
            push: dice[4] & 1 == 0,
            victim: match dice[5] % 8 {
                0..5 => Victim::Client,
                5 | 6 => Victim::Server,
                _ => Victim::ServerForAWhile,
            },
            options,
            after: Duration::from_micros(u64::from(dice[6]) * 400 + u64::from(dice[7])),
        }
    }

    fn ends(&self) -> (std::path::PathBuf, std::path::PathBuf) {
        match self.push {
            true => (self.lab.local("a"), self.lab.share("t")),
            false => (self.lab.share("a"), self.lab.local("t")),
        }
    }

    fn command(&self) -> Command {
        match (self.kind, self.push) {
            (Kind::Copy, true) => self.lab.put(&self.options, "a/.", "t"),
            (Kind::Copy, false) => self.lab.get(&self.options, "a/.", "t"),
            (_, true) => push(&self.lab, &self.options, "a", "t"),
            (_, false) => pull(&self.lab, &self.options, "a", "t"),
        }
    }

    /// Runs the copy. Returns whether the kill was in time.
    fn run(mut self, seed: u64) -> bool {
        let (from, to) = self.ends();
        fs::create_dir_all(&to).unwrap();
        plant_two(&from, &to, seed << 20, self.kind);
        let linked = match self.options.contains(&HARD_LINKS) {
            true => &LINKED[..],
            false => &[],
        };
        for (first, other) in linked {
            fs::hard_link(from.join(first), from.join(other)).unwrap();
        }
        let (new, old) = (files(&from), files(&to));
        let mut command = self.command();
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut client = Running(quiet.spawn().unwrap());
        std::thread::sleep(self.after);
        let ended = client.0.try_wait().unwrap();
        let what = format!(
            "ZEROLANE_SEED={seed}: {:?} {:?}, push: {}, {:?} after {:?}, ended: {ended:?}",
            self.kind, self.options, self.push, self.victim, self.after
        );
        match self.victim {
            Victim::Client => client.0.kill().unwrap(),
            Victim::Server | Victim::ServerForAWhile => {
                drop(self.lab.server.take());
                if self.victim == Victim::Server {
                    client.0.kill().unwrap();
                }
                let address = self.lab.address.clone();
                self.lab.start(zerolane(), &[], &address);
            }
        }
        let status = client.0.wait().unwrap();
        if self.victim == Victim::ServerForAWhile && status.code() != Some(0) {
            // The client had no connection yet.
            assert_eq!(files(&to), old, "{what}: {status}");
        }
        self.check(&what, &new, &old);
        // The server may not have noticed yet.
        eventually("it is copied", || {
            let (code, out, err) = run(self.command());
            let said = out + &err;
            assert!(
                code == 0 || said.contains("another copy is writing it"),
                "{what}: {said}"
            );
            (code == 0).then_some(())
        });
        let now = files(&to);
        match self.kind {
            Kind::Copy => {
                let right = |(path, digest): (&String, &_)| now.get(path) == Some(digest);
                assert!(new.iter().all(right), "{what}");
                let stays = |path: &String| now.contains_key(path);
                assert!(old.keys().all(stays), "{what}");
            }
            Kind::Sync | Kind::InPlace => assert_eq!(now, new, "{what}"),
        }
        assert_eq!(files(&from), new, "{what}: the source");
        for (first, other) in linked {
            let inode = |name: &str| to.join(name).metadata().unwrap().ino();
            assert_eq!(inode(first), inode(other), "{what}: {first} and {other}");
        }
        ended.is_none()
    }

    /// Asserts that each file is the old one, the new one, or one that no copy reads, and that extra files were deleted
    /// only after everything was copied.
    fn check(&self, what: &str, new: &Files, old: &Files) {
        let (_, to) = self.ends();
        let now = eventually("nothing changes", || {
            // A server whose client was killed may continue for a while.
            let before = files(&to);
            (files(&to) == before).then_some(before)
        });
        let temporary = |path: &str| path.contains(".zlpart");
        for (path, digest) in now.iter().filter(|(path, _)| !temporary(path)) {
            if new.get(path) == Some(digest) || old.get(path) == Some(digest) {
                continue;
            }
            assert_eq!(self.kind, Kind::InPlace, "{what}: {path} is wrong");
            let read = match self.push {
                true => self.lab.get(&[], &format!("t/{path}"), "read"),
                false => self.lab.put(&[], &format!("t/{path}"), "read"),
            };
            let (code, out, err) = run(read);
            let refused = (out.clone() + &err).contains("--in-place ended early");
            assert!(
                code == 1 && refused,
                "{what}: {path} is wrong and not refused: {out}{err}"
            );
        }
        let all_copied = new
            .iter()
            .all(|(path, digest)| now.get(path) == Some(digest));
        for path in old.keys() {
            let gone = !now.contains_key(path) && !new.contains_key(path);
            // These files lie below a directory that is renamed until the end, because its type changes.
            let replaced = path.starts_with("d0/was") || path.starts_with("d2/was");
            assert!(
                !gone || all_copied || replaced,
                "{what}: {path} is gone too early"
            );
            let lost = !now.contains_key(path) && new.contains_key(path);
            assert!(!lost, "{what}: {path} is lost");
        }
    }
}

/// Runs rounds until `killed` ends were killed in time. Runs some at once, because rounds that kill the server mostly
/// wait.
fn rounds(killed: u64) {
    let given = std::env::var("ZEROLANE_SEED").ok();
    let first: u64 = given.map_or(1, |seed| seed.parse().unwrap());
    println!("ZEROLANE_SEED={first}");
    let next = AtomicU64::new(first);
    let in_time = AtomicU64::new(0);
    let one_more = || {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        let more = in_time.load(Ordering::Relaxed) < killed;
        assert!(!more || seed < first + 20 * killed, "too fast to be killed");
        more.then_some(seed)
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(seed) = one_more() {
                    let killed = Round::new(seed).run(seed);
                    in_time.fetch_add(killed.into(), Ordering::Relaxed);
                }
            });
        }
    });
    let rounds = next.into_inner() - first;
    println!("{} killed, {rounds} rounds", in_time.into_inner());
}

/// `ZEROLANE_KILLS=200` runs more of them.
#[test]
fn battery__twenty_kills() {
    let given = std::env::var("ZEROLANE_KILLS").ok();
    rounds(given.map_or(20, |kills| kills.parse().unwrap()));
}
