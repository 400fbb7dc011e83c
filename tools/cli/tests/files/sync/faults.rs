//! Tests syncs to full file systems and to those that ignore case.

use super::*;
use nix::unistd::geteuid;

/// Runs a script in a separate mount namespace; `None` if this user or machine cannot. `$ZL` is the program, `$THERE`
/// the served directory, `$BASE` a scratch directory.
fn alone(lab: &Lab, script: &str) -> Option<String> {
    if !geteuid().is_root() {
        println!("skipped: only root mounts");
        return None;
    }
    let base = lab.base.path().join("mounts");
    fs::create_dir_all(&base).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh"]);
    said_by(command, lab, script, &base)
}

/// Runs a script in this shell. `None`: it skips the test.
fn said_by(mut shell: Command, lab: &Lab, script: &str, base: &Path) -> Option<String> {
    shell.args(["-c", &format!("exec 2>&1\nset -e\n{script}")]);
    shell.env("ZEROLANE_HOME", HOME);
    shell.env("ZL", zerolane().get_program());
    shell.env("THERE", lab.there("a")).env("BASE", base);
    let Ok(done) = shell.output() else {
        println!("skipped: there is no {}", shell.get_program().display());
        return None;
    };
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    if let Some(why) = said.lines().find(|line| line.starts_with("skipped")) {
        println!("{why}");
        return None;
    }
    assert!(done.status.success(), "{said}");
    Some(said)
}

#[test]
fn sync__to_a_full_file_system_deletes_nothing_and_goes_on_when_there_is_room() {
    let lab = Lab::new(&[]);
    let from = lab.share("a");
    for number in 0..20 {
        write(&from.join(format!("f{number}")), &content(number, 200_000));
    }
    write(&from.join("large"), &content(99, 5 * MIB));
    for options in ["", "--delta", "--in-place", "--checksum"] {
        let script = format!(
            r#"
            mount -t tmpfs -o size=12m tmpfs $BASE || {{ echo "skipped: no tmpfs"; exit; }}
            mkdir $BASE/t; echo old > $BASE/t/f3; echo old > $BASE/t/large; echo x > $BASE/t/extra
            head -c 9000000 /dev/zero > $BASE/filler
            code=0; $ZL sync {options} --delete $THERE $BASE/t || code=$?
            test $code = 5 || {{ echo "code $code"; exit 1; }}
            test "$(cat $BASE/t/extra)" = x
            rm $BASE/filler
            $ZL sync {options} --delete $THERE $BASE/t
            diff -r {} $BASE/t
            "#,
            from.display()
        );
        let Some(said) = alone(&lab, &script) else {
            return;
        };
        assert!(said.contains("no space left"), "{said}");
        assert!(said.contains("nothing was deleted"), "{said}");
    }
}

#[test]
fn sync__hard_links_that_the_target_refuses_are_failures_as_with_rsync() {
    let lab = Lab::new(&[]);
    let from = lab.share("a");
    write(&from.join("one"), b"one");
    fs::create_dir(from.join("sub")).unwrap();
    fs::hard_link(from.join("one"), from.join("sub/two")).unwrap();
    fs::hard_link(from.join("one"), from.join("three")).unwrap();
    // Links between file systems are impossible.
    let script = format!(
        r#"
        for it in t r; do
            mkdir -p $BASE/$it/sub
            mount -t tmpfs tmpfs $BASE/$it/sub || {{ echo "skipped: no tmpfs"; exit; }}
            echo old > $BASE/$it/sub/two; echo extra > $BASE/$it/extra
        done
        code=0; $ZL sync -H --delete $THERE $BASE/t || code=$?
        test $code = 5 || {{ echo "code $code"; exit 1; }}
        test $BASE/t/one -ef $BASE/t/three
        test "$(cat $BASE/t/sub/two)" = old
        test "$(ls -A $BASE/t $BASE/t/sub | grep -c zlpart)" = 0
        test -e $BASE/t/extra; rm $BASE/t/sub/two
        code=0; $ZL cp -rH $THERE/. $BASE/t || code=$?
        test $code = 5 || {{ echo "code $code of cp"; exit 1; }}
        test ! -e $BASE/t/sub/two
        command -v rsync || exit 0
        code=0; rsync -aH {}/ $BASE/r || code=$?
        test $code = 23 || {{ echo "code $code of rsync"; exit 1; }}
        "#,
        from.display()
    );
    if let Some(said) = alone(&lab, &script) {
        let failed = said.matches("sub/two: cannot be a hard link there").count();
        assert_eq!(failed, 2, "{said}");
        assert!(said.contains("nothing was deleted"), "{said}");
    }
}

#[test]
fn sync__to_a_file_system_that_takes_two_names_for_one() {
    let lab = Lab::new(&[]);
    for (name, bytes) in [
        ("README", "one"),
        ("readme", "two"),
        ("d/x", "x"),
        ("D/y", "y"),
        ("Alone", "alone"),
    ] {
        write(&lab.share("a").join(name), bytes.as_bytes());
    }
    let by_kernel = "mount -o loop $BASE/image $BASE/m";
    for (make, mount) in [
        ("mkfs.vfat $BASE/image", by_kernel),
        ("mkfs.ext4 -q -O casefold $BASE/image", by_kernel),
        (
            "mkntfs -q -F $BASE/image",
            "lowntfs-3g -o ignore_case $BASE/image $BASE/m",
        ),
    ] {
        let script = format!(
            r#"
            truncate -s 64M $BASE/image
            mkdir -p $BASE/m
            for it in '{make}' '{mount}'; do
                command -v "${{it%% *}}" > $BASE/why || {{ echo "skipped: there is no ${{it%% *}}"; exit; }}
            done
            {{ {make} && {mount}; }} > $BASE/why 2>&1 ||
                {{ echo "skipped: this kernel mounts none of {make}: $(cat $BASE/why)"; exit; }}
            # A server of that file system would outlive this.
            trap 'umount $BASE/m' EXIT
            mkdir $BASE/m/t
            chattr +F $BASE/m/t 2> /dev/null || true
            echo a > $BASE/m/t/probe; test -e $BASE/m/t/PROBE || {{ echo "skipped: this kernel mounts none that folds"; exit; }}
            rm $BASE/m/t/probe
            for time in 1 2 3; do
                code=0; $ZL sync --delete --modify-window 2 $THERE $BASE/m/t || code=$?
                echo "time $time: code $code"; ls -R $BASE/m/t
                # Both names stand for one file, which is one of the two; nothing is lost but what cannot be there.
                case "$(cat $BASE/m/t/readme)" in one|two) ;; *) exit 1;; esac
                # One that the listing shows under another name was not deleted as too much.
                test "$(cat $BASE/m/t/alone)" = alone
            done
            "#
        );
        if let Some(said) = alone(&lab, &script) {
            println!("{said}");
        }
    }
}

/// Seconds since 1970, in the year 2603. The last time of ext4 is in 2446.
const FAR: u64 = 20_000_000_000;

/// Sets the modification time of a file or directory to [`FAR`]. Returns whether its file system keeps it.
fn keeps_far_time(path: &Path) -> bool {
    let far = SystemTime::UNIX_EPOCH + Duration::from_secs(FAR);
    File::open(path).unwrap().set_modified(far).unwrap();
    path.metadata().unwrap().modified().unwrap() == far
}

#[test]
fn sync__times_that_the_target_cannot_hold_are_told() {
    let lab = Lab::new(&[]);
    let from = lab.share("a");
    write(&from.join("files/old"), b"x");
    write(&from.join("files/far"), b"x");
    write(&from.join("directories/far/old"), b"x");
    if !keeps_far_time(&from.join("files/far")) || !keeps_far_time(&from.join("directories/far")) {
        return println!("skipped: no file system here holds the time");
    }
    // Each sync tells it.
    let script = "for time in 1 2; do for it in files directories; do $ZL sync $THERE/$it $BASE/m/$it; done; done";
    let limited = tempfile::tempdir().unwrap();
    fs::create_dir(limited.path().join("m")).unwrap();
    let said = match keeps_far_time(limited.path()) {
        false => said_by(Command::new("sh"), &lab, script, limited.path()),
        true => {
            let mounted = format!(
                r#"
                truncate -s 64M $BASE/image; mkdir $BASE/m
                {{ mkfs.ext4 -q -F $BASE/image && mount -o loop $BASE/image $BASE/m; }} > $BASE/why 2>&1 ||
                    {{ echo "skipped: this kernel mounts none of ext4: $(cat $BASE/why)"; exit; }}
                trap 'umount $BASE/m' EXIT
                {script}
                "#
            );
            alone(&lab, &mounted)
        }
    };
    let Some(said) = said else { return };
    let told = said.matches("far: its time was not kept").count();
    assert_eq!(told, 4, "{said}");
    assert_eq!(said.matches("its time was not kept").count(), 4, "{said}");
}

#[test]
fn sync__a_directory_that_cannot_be_read_fails_once() {
    use std::os::unix::fs::chown;
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    let lab = Lab::new(&["--anyone"]);
    let keys = tempfile::tempdir().unwrap();
    write(&lab.local("a/closed/in"), b"x");
    write(&lab.local("a/open"), b"x");
    fs::set_permissions(lab.local("a/closed"), fs::Permissions::from_mode(0o000)).unwrap();
    for to in ["new", "there"] {
        if to == "there" {
            fs::create_dir_all(lab.share("there/closed")).unwrap();
        }
        let mut command = push(&lab, &[], "a", to);
        command.env("ZEROLANE_HOME", keys.path());
        if geteuid().is_root() {
            // Root may read the keys.
            chown(keys.path(), Some(NOBODY), Some(NOBODY)).unwrap();
            command.uid(NOBODY).gid(NOBODY);
        }
        let (code, _, err) = run(command);
        assert_eq!(code, 5, "{err}");
        assert_eq!(err.matches("closed: permission denied").count(), 1, "{err}");
        assert!(err.contains("1 failed, 1 sent"), "{err}");
    }
    fs::set_permissions(lab.local("a/closed"), fs::Permissions::from_mode(0o700)).unwrap();
}
