//! Tests ordinary programs inside a tunnel.

use std::fs;
use std::process::Stdio;

use crate::content::content;
use crate::lab::{Lab, Outside, Running, STREAM, is_there, until};

#[test]
fn up__rsync_inside() {
    let Some(lab) = Lab::new() else { return };
    if !is_there("rsync") {
        return;
    }
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    let ends = lab.both(&[]);
    let at = |name: &str| lab.base.path().join(name);
    fs::create_dir(at("from")).unwrap();
    for n in 0..50 {
        let len = 1000 + 40_000 * n as usize;
        fs::write(at("from").join(n.to_string()), content(n, len)).unwrap();
    }
    let module = format!(
        "use chroot = no\nuid = 0\ngid = 0\n[it]\npath = {}\n",
        at("from").display()
    );
    fs::write(at("rsyncd.conf"), module).unwrap();
    let mut daemon = a.command("rsync");
    daemon
        .args([
            "--daemon",
            "--no-detach",
            "--address=10.9.0.1",
            "--port=8730",
        ])
        .arg(format!("--config={}", at("rsyncd.conf").display()))
        .stdin(Stdio::null());
    let daemon = Running(daemon.spawn().unwrap());
    until("copied", || {
        let mut copy = b.command("rsync");
        let copy = copy.args(["-a", "--timeout=20", "rsync://10.9.0.1:8730/it/"]);
        copy.arg(at("to")).status().unwrap().success()
    });
    for n in 0..50 {
        let len = 1000 + 40_000 * n as usize;
        assert!(fs::read(at("to").join(n.to_string())).unwrap() == content(n, len));
    }
    drop((daemon, ends));
}

#[test]
fn up__curl_and_nginx_inside() {
    let Some(lab) = Lab::new() else { return };
    if !is_there("curl") || !is_there("nginx") {
        return;
    }
    let (a, b) = (lab.hosts.a(), lab.hosts.b());
    lab.configure(Outside::V4, "10.9.0.2, fd99::2");
    let ends = lab.both(&[]);
    let base = lab.base.path().display();
    fs::write(lab.base.path().join("page"), content(5, STREAM)).unwrap();
    let configuration = format!(
        "daemon off; user root; pid {base}/pid; error_log stderr; events {{}}\n\
         http {{ access_log off; client_body_temp_path {base}/t1; proxy_temp_path {base}/t2;\n\
         fastcgi_temp_path {base}/t3; uwsgi_temp_path {base}/t4; scgi_temp_path {base}/t5;\n\
         server {{ listen 10.9.0.1:8080; listen [fd99::1]:8080; root {base}; }} }}\n"
    );
    let file = lab.base.path().join("nginx.conf");
    fs::write(&file, configuration).unwrap();
    let mut server = a.command("nginx");
    server.arg("-c").arg(&file).stdin(Stdio::null());
    let mut server = Running(server.spawn().unwrap());
    for host in ["10.9.0.1", "[fd99::1]"] {
        let page = format!("http://{host}:8080/page");
        until("fetched", || {
            let mut fetch = b.command("curl");
            let fetched = fetch.args(["-gsS", "--max-time", "30", &page]).output();
            fetched.unwrap().stdout == content(5, STREAM)
        });
    }
    // It ends its workers only if it is asked.
    let id = nix::unistd::Pid::from_raw(server.0.id() as i32);
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
    server.0.wait().unwrap();
    drop(ends);
}
