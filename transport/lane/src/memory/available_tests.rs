//! Tests that available memory is the least of the machine and the process's control groups.
#![allow(non_snake_case)]
use super::*;
use std::process::Command;

const MIB: u64 = 1 << 20;
const MACHINE: (&str, &str) = (
    "/proc/meminfo",
    "MemTotal:       24576 kB\nMemFree:         1024 kB\nMemAvailable:    8192 kB\n",
);

/// The bytes left on a system that has only these files.
fn left(files: &[(&str, &str)]) -> Option<u64> {
    available(|path| {
        let file = files.iter().find(|it| Path::new(it.0) == path)?;
        Some(file.1.to_owned())
    })
}

#[test]
fn available__of_the_machine_alone_is_what_it_says() {
    assert_eq!(left(&[MACHINE]), Some(8 * MIB));
    assert_eq!(left(&[]), None, "a sandbox without /proc");
}

#[test]
fn available__of_groups_is_the_least_around_the_process() {
    let groups = ("/proc/self/cgroup", "0::/outer/inner\n");
    let mounts = (
        "/proc/self/mountinfo",
        "24 1 0:22 / /proc rw - proc proc rw\n31 24 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
    );
    let outer = ("/sys/fs/cgroup/outer/memory.max", "4194304\n");
    let outer_used = ("/sys/fs/cgroup/outer/memory.current", "3145728\n");
    let inner = ("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
    let inner_used = ("/sys/fs/cgroup/outer/inner/memory.current", "1048576\n");
    let mut files = vec![
        MACHINE, groups, mounts, outer, outer_used, inner, inner_used,
    ];
    assert_eq!(left(&files), Some(MIB));
    // The page cache is reclaimable.
    let stat = "anon 1048576\nfile 2097152\ninactive_file 1048576\nactive_file 524288\n";
    files.push(("/sys/fs/cgroup/outer/memory.stat", stat));
    assert_eq!(left(&files), Some(MIB + MIB + MIB / 2));
    // The usage exceeds the limit.
    files[3].1 = "1048576\n";
    assert_eq!(left(&files), Some(0));
}

#[test]
fn available__in_a_container_that_sees_its_own_group_alone() {
    let files = [
        MACHINE,
        (
            "/proc/self/cgroup",
            "4:memory:/pods/seven\n2:cpu,cpuacct:/pods\n0::/\n",
        ),
        (
            "/proc/self/mountinfo",
            "40 30 0:31 /pods /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
             41 30 0:32 /pods/seven /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        ),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "3145728\n"),
        ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "2097152\n"),
        (
            "/sys/fs/cgroup/memory/memory.stat",
            "inactive_file 0\ntotal_inactive_file 1048576\n",
        ),
    ];
    assert_eq!(left(&files), Some(2 * MIB));
}

#[test]
fn check__of_more_than_there_is_is_refused_in_words() {
    assert!(check(usize::MAX / 2).is_err(), "this machine has less");
    assert!(check_against(usize::MAX, None).is_ok() && check_against(7, Some(7)).is_ok());
    let error = check_against(8, Some(7)).expect_err("more");
    assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    let words = "cannot allocate 8 bytes: the system has 7 left";
    assert_eq!(error.to_string(), words);
}

/// Set for the process that allocates memory in a group of its own.
const CONFINED: &str = "ZEROLANE_TEST_CONFINED";
const GROUP_BYTES: u64 = 256 * MIB;

/// A memory control group, removed when this is dropped.
struct Group(PathBuf);

impl Group {
    /// `None` if this process may not make one.
    fn new() -> Option<Group> {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (groups, mounts) = (text("/proc/self/cgroup"), text("/proc/self/mountinfo"));
        let name = format!("zerolane-test-{}", std::process::id());
        let below = |version: &Version, directory: PathBuf| {
            let made = directory.join(&name);
            fs::create_dir(&made).ok()?;
            let group = Group(made);
            // A group that does not delegate this controller has no such file.
            fs::write(group.0.join(version.limit), GROUP_BYTES.to_string()).ok()?;
            Some(group)
        };
        VERSIONS.iter().find_map(|version| {
            let mut directories = version.directories(&groups, &mounts).into_iter();
            directories.find_map(|it| below(version, it))
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Without the check the kernel kills the process, or others of its group.
#[test]
fn memfd__of_more_than_the_group_has_is_refused() {
    if std::env::var_os(CONFINED).is_some() {
        let error =
            crate::memory::Region::memfd(2 * GROUP_BYTES as usize).expect_err("more than there is");
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory, "{error}");
        assert_eq!(
            crate::memory::Region::memfd(1 << 21).expect("room").len(),
            1 << 21
        );
        return;
    }
    let Some(group) = Group::new() else {
        println!(
            "skipped: this kernel mounts none of the memory control groups for this process to write"
        );
        return;
    };
    // Names of tests leave out the crate.
    let (_, module) = module_path!().split_once("::").expect("in a crate");
    let confined = Command::new("sh")
        .args(["-c", r#"echo $$ >"$0" && exec "$@""#])
        .arg(group.0.join("cgroup.procs"))
        .arg(std::env::current_exe().expect("this test"))
        .arg("--exact")
        .arg(format!(
            "{module}::memfd__of_more_than_the_group_has_is_refused"
        ))
        .env(CONFINED, "1")
        .output()
        .expect("a shell");
    let said = String::from_utf8_lossy(&confined.stdout);
    assert!(
        confined.status.success() && said.contains("1 passed"),
        "{}\n{said}",
        confined.status
    );
}
