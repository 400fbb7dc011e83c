//! Tests `zerolane up USER@HOST`.

use std::fs;
use std::process::{Command, Stdio};

use crate::content::content;
use crate::lab::{Lab, PROGRAM, Running, STREAM, has_interface, inside, stream, until};

/// The ends of a login from B to A by a script in place of ssh, until the test ends one of them.
#[test]
fn up__over_ssh_brings_up_both_ends_and_takes_both_down() {
    let Some(lab) = Lab::new() else { return };
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    let script = lab.base.path().join("rsh");
    let programs = std::path::Path::new(PROGRAM).parent().unwrap();
    let text = format!(
        "while [ \"$1\" = -l ]; do shift 2; done\nshift\n\
         export SSH_CONNECTION='{} 1 {} 22' PATH='{}':\"$PATH\"\n\
         exec nsenter --net=/run/netns/{} sh -c \"exec $*\"\n",
        b.ipv4(),
        a.ipv4(),
        programs.display(),
        a.name()
    );
    fs::write(&script, text).unwrap();
    let host = format!("me@{}", a.ipv4());
    let rsh = format!("sh {}", script.display());
    let words = [
        &*host,
        "--rsh",
        &rsh,
        "--inside",
        "10.9.0.0/30,fd99::/126",
        "--name",
        "pair",
    ];
    for interrupted in [true, false] {
        let mut up = lab.up(b, &words);
        until("there", || {
            has_interface(a, "pair") && has_interface(b, "pair")
        });
        lab.wait_connected();
        for family in [0, 1] {
            stream(b, a, inside(2)[family]);
            stream(a, b, inside(1)[family]);
        }
        if interrupted {
            let id = nix::unistd::Pid::from_raw(up.0.id() as i32);
            nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
        } else {
            assert!(lab.output(a, &["down", "pair"]).status.success());
        }
        let mut ended = None;
        until("ended", || {
            ended = up.0.try_wait().unwrap();
            ended.is_some()
        });
        let code = ended.and_then(|it| it.code());
        assert_eq!(code == Some(130), interrupted, "{code:?}");
        assert_ne!(code, Some(0));
        until("gone", || {
            !has_interface(a, "pair") && !has_interface(b, "pair")
        });
    }
}

/// A login over a real sshd, and another through the tunnel that it brought up.
#[test]
fn up__over_a_real_sshd_and_ssh_inside() {
    const SSHD: &str = "/usr/sbin/sshd";
    let Some(lab) = Lab::new() else { return };
    if !std::path::Path::new(SSHD).exists() {
        eprintln!("skipped: there is no program {SSHD}");
        return;
    }
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    let at = |name: &str| lab.base.path().join(name).display().to_string();
    // Like the service of the package.
    fs::create_dir_all("/run/sshd").unwrap();
    for key in ["host", "client"] {
        let mut make = Command::new("ssh-keygen");
        make.args(["-q", "-t", "ed25519", "-N", "", "-f", &at(key)]);
        assert!(make.status().unwrap().success());
    }
    let programs = std::path::Path::new(PROGRAM).parent().unwrap();
    let config = format!(
        "HostKey {}\nAuthorizedKeysFile {}\nSetEnv PATH={}:/usr/bin:/bin\nListenAddress 0.0.0.0:2222\n\
         PidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n",
        at("host"),
        at("client.pub"),
        programs.display()
    );
    fs::write(at("sshd"), config).unwrap();
    let mut server = a.command(SSHD);
    server.args(["-De", "-f", &at("sshd")]).stdin(Stdio::null());
    let server = Running(server.stderr(Stdio::null()).spawn().unwrap());
    let options = [
        "-oStrictHostKeyChecking=no",
        "-oUserKnownHostsFile=/dev/null",
        "-oBatchMode=yes",
        "-oConnectTimeout=20",
        // It outlives the kill of the program that started it, and may outlive the network.
        "-oServerAliveInterval=1",
        "-F/dev/null",
        &format!("-i{}", at("client")),
    ];
    let login = |host: &str, command: &str| {
        let mut login = b.command("ssh");
        login
            .args(options)
            .args(["-p2222", &format!("root@{host}"), command]);
        login.stdin(Stdio::null()).output().unwrap()
    };
    let outside = a.ipv4().to_string();
    until("sshd listens", || login(&outside, "true").status.success());
    let host = format!("root@{outside}:2222");
    let rsh = format!("ssh {}", options.join(" "));
    let up = lab.up(
        b,
        &[
            &host,
            "--rsh",
            &rsh,
            "--inside",
            "10.9.0.0/30",
            "--name",
            "real",
        ],
    );
    until("there", || {
        has_interface(a, "real") && has_interface(b, "real")
    });
    lab.wait_connected();
    fs::write(at("file"), content(7, STREAM)).unwrap();
    until("copied", || {
        let copied = login("10.9.0.2", &format!("cat {}", at("file")));
        copied.stdout == content(7, STREAM)
    });
    drop(up);
    // Without its login, the other end goes too.
    until("gone", || {
        !has_interface(a, "real") && !has_interface(b, "real")
    });
    drop(server);
}
