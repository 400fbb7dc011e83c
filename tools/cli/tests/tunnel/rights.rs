//! Tests that a tunnel runs with few rights, or none.

use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use zerolane::tun::{TunDevice, TunOffload};

use crate::lab::{Lab, Outside, PROGRAM, Running, datagrams, inside, state, stream, until};

/// Two hosts. `None`, after printing the reason, where they or `setpriv` are missing.
fn lab() -> Option<Lab> {
    let lab = Lab::new()?;
    if Command::new("setpriv").arg("--version").output().is_err() {
        eprintln!("skipped: there is no program setpriv");
        return None;
    }
    Some(lab)
}

#[test]
fn show_and_down__of_another_users_tunnel_are_refused() {
    let Some(lab) = lab() else { return };
    let a = lab.hosts.a();
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    let up = lab.up(a, &["./ta.conf"]);
    let is_up = || lab.shown(a).contains("\"interface\":\"ta\"");
    until("up", is_up);
    for words in [&["show"][..], &["show", "ta"], &["down", "ta"]] {
        let mut command = a.command("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", PROGRAM])
            .args(words)
            .env("ZEROLANE_CONFIG", "/dev/null");
        let refused = command.output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(
            !refused.status.success() && said.contains("ta belongs to another user"),
            "{words:?}: {said}"
        );
    }
    assert!(is_up());
    drop(up);
}

/// As root, and as a user that has CAP_NET_ADMIN, and may open the device as root does where it is not open to all.
#[test]
fn up__keeps_no_capability_but_one() {
    const NET_ADMIN: u64 = 1 << 12;
    const NOBODY: u32 = 65_534;
    let Some(lab) = lab() else { return };
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    for file in ["", "b", "tb.conf"] {
        std::os::unix::fs::chown(lab.base.path().join(file), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let of_a = lab.up(a, &["./ta.conf"]);
    let mut command = b.command("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg("--inh-caps=+net_admin,+dac_override")
        .args(["--ambient-caps=+net_admin,+dac_override", PROGRAM])
        .args(["up", "./tb.conf"])
        .current_dir(lab.base.path())
        .env("ZEROLANE_HOME", lab.base.path().join("home"))
        .env("ZEROLANE_CONFIG", "/dev/null")
        .stdin(Stdio::null());
    let of_b = Running(command.spawn().unwrap());
    lab.wait_connected();
    datagrams(b, a, [inside(1)[0], inside(2)[0]], &[100, 8000]);
    for process in [&of_a, &of_b] {
        for set in ["CapEff:", "CapPrm:"] {
            assert_eq!(state(process, set), format!("{NET_ADMIN:016x}"), "{set}");
        }
        for set in ["CapInh:", "CapAmb:"] {
            assert_eq!(state(process, set), format!("{:016x}", 0), "{set}");
        }
        assert_eq!(state(process, "NoNewPrivs:"), "1");
    }
    assert!(state(&of_b, "Uid:").starts_with("65534"));
    drop((of_a, of_b));
}

/// A user without any right runs an interface that another program made.
#[test]
fn up__an_interface_handed_over() {
    let Some(lab) = lab() else { return };
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    for file in ["", "b", "tb.conf"] {
        std::os::unix::fs::chown(lab.base.path().join(file), Some(65_534), Some(65_534)).unwrap();
    }
    let made = b.enter_thread(|| TunDevice::open("given", TunOffload::TcpAndUdp));
    let made = made.unwrap().unwrap();
    let links = b.rtnetlink().unwrap();
    for (address, len) in inside(2).into_iter().zip([24, 64]) {
        links.assign_address("given", address, len).unwrap();
    }
    links.set_mtu("given", 1420).unwrap();
    links.set_up("given", true).unwrap();
    // A duplicate that the child inherits.
    let inherited = nix::unistd::dup(&made).unwrap();
    let number = inherited.as_raw_fd().to_string();
    let of_a = lab.up(a, &["./ta.conf"]);
    let mut command = b.command("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", PROGRAM])
        .args(["up", "./tb.conf", "--tun-fd", &number])
        .current_dir(lab.base.path())
        .env("ZEROLANE_HOME", lab.base.path().join("home"))
        .env("ZEROLANE_CONFIG", "/dev/null")
        .stdin(Stdio::null());
    let of_b = Running(command.spawn().unwrap());
    drop(inherited);
    lab.wait_connected();
    assert!(lab.shown(b).contains("\"interface\":\"given\""));
    stream(b, a, inside(1)[0]);
    datagrams(a, b, [inside(2)[1], inside(1)[1]], &[100, 8000]);
    assert_eq!(state(&of_b, "CapPrm:"), format!("{:016x}", 0));
    drop((of_a, of_b));
    let refused = lab.output(b, &["up", "./tb.conf", "--tun-fd", "0"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("--tun-fd 0") && said.contains("no TUN"),
        "{said}"
    );
}
