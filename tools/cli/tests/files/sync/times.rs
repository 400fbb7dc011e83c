//! Tests modification times from clocks that are wrong or differ, against rsync.

use super::filters::Random;
use super::*;

/// Seconds and nanoseconds since 1970. No time is another one truncated: that is equal here, and different for rsync.
const TIMES: [(i64, u32); 13] = [
    // Before 1970, and the second around it.
    (-4_000_000_000, 7),
    (-86_400, 0),
    (-1, 1),
    (-1, 999_999_999),
    (0, 0),
    // An hour and a day apart: daylight saving time, and a wrong clock.
    (1_700_000_000, 5),
    (1_700_003_600, 5),
    (1_700_086_400, 5),
    // In the future, beyond 31 and 32 bits.
    (2_147_483_647, 1),
    (2_147_483_648, 1),
    (4_294_967_296, 3),
    (32_503_680_000, 999_999_999),
    (32_503_680_001, 0),
];

fn set_time(path: &Path, (seconds, nanoseconds): (i64, u32)) {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let second = match seconds < 0 {
        true => SystemTime::UNIX_EPOCH - whole,
        false => SystemTime::UNIX_EPOCH + whole,
    };
    let time = second + Duration::from_nanos(nanoseconds.into());
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(time).unwrap();
}

/// Plants two trees whose files were changed, or not, by different clocks.
fn plant_apart(from: &Path, to: &Path, random: &mut Random) {
    for number in 0..40 {
        let name = format!("f{number}");
        let time = TIMES[random.below(TIMES.len())];
        let len = 1 + random.below(4);
        write(&from.join(&name), &vec![b'f'; len]);
        set_time(&from.join(&name), time);
        if random.below(5) == 0 {
            continue;
        }
        let len = if random.below(4) == 0 { len + 1 } else { len };
        let other = random.below(TIMES.len());
        let time = if random.below(3) == 0 {
            time
        } else {
            TIMES[other]
        };
        write(&to.join(&name), &vec![b't'; len]);
        set_time(&to.join(&name), time);
    }
}

/// What rsync changes, comparing times to the nanosecond.
fn rsync(options: &[&str], from: &Path, to: &Path) -> Vec<String> {
    let mut rsync = Command::new("rsync");
    rsync.args(["-rt", "--modify-window=-1", "--out-format=%i %n"]);
    rsync.args(options).args([from.join(""), to.join("")]);
    let out = succeed(rsync);
    let files = out.lines().filter_map(|line| {
        let (action, name) = line.split_once(' ')?;
        action.starts_with(">f").then(|| name.to_owned())
    });
    let mut files: Vec<_> = files.collect();
    files.sort();
    files
}

fn files(changes: &str) -> Vec<String> {
    let changes = changes.lines().map(|line| {
        let change: serde_json::Value = serde_json::from_str(line).unwrap();
        change
    });
    let changed = changes.filter(|it| it["event"] == "change" && it["kind"] == "file");
    let mut files: Vec<_> = changed
        .map(|it| it["path"].as_str().unwrap().to_owned())
        .collect();
    files.sort();
    files
}

/// `ZEROLANE_SEED` repeats a failed run.
#[test]
fn sync__times_of_clocks_that_are_apart_as_rsync_has_them() {
    if Command::new("rsync").arg("--version").output().is_err() {
        println!("skipped: there is no rsync");
        return;
    }
    let given = std::env::var("ZEROLANE_SEED").ok();
    let first: u64 = given.map_or(314, |seed| seed.parse().unwrap());
    for seed in first..first + 4 {
        println!("ZEROLANE_SEED={seed}");
        let lab = Lab::new(&[]);
        for pushes in [true, false] {
            let name = if pushes { "push" } else { "pull" };
            let (from, to) = match pushes {
                true => (lab.local(name), lab.share(name)),
                false => (lab.share(name), lab.local(name)),
            };
            let mut random = Random::new(seed);
            plant_apart(&from, &to, &mut random);
            let sync = |options: &[&str]| match pushes {
                true => push(&lab, options, name, name),
                false => pull(&lab, options, name, name),
            };
            let expected = rsync(&["-n"], &from, &to);
            let planned = files(&succeed(sync(&["-n", "--json"])));
            assert_eq!(planned, expected, "{name}");
            assert!(!expected.is_empty());
            let synced = numbers(sync(&[]));
            assert_eq!(synced["sent"], expected.len(), "{synced}");
            // The times are those of the source. Files that were skipped keep their content.
            let (here, there) = (tree(&from, false), tree(&to, false));
            for (file, words) in &here {
                let is_sent = expected.contains(file);
                assert_eq!(there[file] == *words, is_sent, "{file}: {words}");
            }
            // Neither program finds more to do, whatever the clocks show.
            assert_eq!(rsync(&["-n"], &from, &to), [""; 0]);
            assert_eq!(numbers(sync(&[]))["sent"], 0);
        }
    }
}
