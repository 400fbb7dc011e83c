//! Tests servers and languages that poll, fork and thread each in their own way, between two hosts, as client and server.

use std::fs;
use std::path::Path;

use crate::hosts::Hosts;
use crate::lab::text;

/// Whether a program that no user's PATH has is there; prints which is not.
fn is_there(program: &str) -> bool {
    let there = Path::new(program).exists();
    if !there {
        eprintln!("skipped: {program} is not installed");
    }
    there
}

/// A user without rights, for servers that refuse root.
const NOBODY: [&str; 4] = [
    "setpriv",
    "--reuid=65534",
    "--regid=65534",
    "--clear-groups",
];

#[test]
fn run__node_as_client_and_server() {
    let Some(mut hosts) = Hosts::new(&["node", "curl"]) else {
        return;
    };
    let serve = "const fs = require('fs');\n\
        require('http').createServer((request, answer) => {\n\
            if (request.method == 'PUT') { request.pipe(fs.createWriteStream('sent')).on('close', () => answer.end()); }\n\
            else { fs.createReadStream('page').pipe(answer); }\n\
        }).listen(8090, '0.0.0.0');";
    hosts.serve(true, 8090, &["node", "-e", serve]);
    let url = format!("http://{}:8090/", hosts.there());
    hosts.carried(&["curl", "-sS", "-o", "got", &url]);
    hosts.has("got");
    hosts.carried(&["curl", "-sS", "-T", "page", &url]);
    hosts.has("sent");
    let get = format!(
        "require('http').get('{url}', it => it.pipe(require('fs').createWriteStream('got')));"
    );
    hosts.carried(&["node", "-e", &get]);
    hosts.has("got");
    let plain = hosts.client(false, &["node", "-e", &get]);
    assert!(plain.status.success(), "{}", text(&plain));
    hosts.has("got");
}

const JAVA_SERVER: &str = r#"
import java.net.*;
import java.nio.file.*;

class Server {
    public static void main(String[] arguments) throws Exception {
        var server = new ServerSocket(8091, 50, InetAddress.getByName("0.0.0.0"));
        while (true) {
            var client = server.accept();
            new Thread(() -> {
                try (client) {
                    Files.copy(Path.of("page"), client.getOutputStream());
                    client.shutdownOutput();
                    client.getInputStream().transferTo(Files.newOutputStream(Path.of("sent")));
                } catch (Exception error) {
                    error.printStackTrace();
                }
            }).start();
        }
    }
}
"#;

const JAVA_CLIENT: &str = r#"
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.file.*;

/** Reads and writes by a selector, as asynchronous frameworks do. */
class Client {
    public static void main(String[] arguments) throws Exception {
        var channel = SocketChannel.open();
        channel.configureBlocking(false);
        channel.connect(new InetSocketAddress(arguments[0], 8091));
        var selector = Selector.open();
        channel.register(selector, SelectionKey.OP_CONNECT);
        var got = FileChannel.open(Path.of("got"), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
        var page = ByteBuffer.wrap(Files.readAllBytes(Path.of("page")));
        var buffer = ByteBuffer.allocateDirect(1 << 16);
        var reads = true;
        while (reads || page.hasRemaining()) {
            selector.select();
            for (var key : selector.selectedKeys()) {
                if (key.isConnectable() && channel.finishConnect())
                    key.interestOps(SelectionKey.OP_READ | SelectionKey.OP_WRITE);
                else if (key.isWritable() && page.hasRemaining() && channel.write(page) >= 0 && !page.hasRemaining()) {
                    channel.shutdownOutput();
                    key.interestOps(SelectionKey.OP_READ);
                } else if (key.isReadable()) {
                    reads = channel.read(buffer) >= 0;
                    got.write(buffer.flip());
                    buffer.clear();
                    if (!reads)
                        key.interestOps(page.hasRemaining() ? SelectionKey.OP_WRITE : 0);
                }
            }
            selector.selectedKeys().clear();
        }
        channel.close();
    }
}
"#;

#[test]
fn run__a_jvm_with_threads_and_with_a_selector() {
    let Some(mut hosts) = Hosts::new(&["java", "javac"]) else {
        return;
    };
    for (name, source) in [("Server", JAVA_SERVER), ("Client", JAVA_CLIENT)] {
        let file = hosts.path(&format!("{name}.java"));
        fs::write(&file, source).unwrap();
        let compiled = hosts.client(false, &["javac", "-d", ".", file.to_str().unwrap()]);
        assert!(compiled.status.success(), "{}", text(&compiled));
    }
    let there = hosts.there();
    hosts.serve(true, 8091, &["java", "-cp", ".", "Server"]);
    hosts.carried(&["java", "-cp", ".", "Client", &there]);
    hosts.has("got");
    hosts.has_soon("sent");
    let plain = hosts.client(false, &["java", "-cp", ".", "Client", &there]);
    assert!(plain.status.success(), "{}", text(&plain));
    hosts.has("got");
    hosts.has_soon("sent");
}

#[test]
fn run__mariadb() {
    let Some(mut hosts) = Hosts::new(&["mariadb", "mariadb-install-db", "python3"]) else {
        return;
    };
    if !is_there("/usr/sbin/mariadbd") {
        return;
    }
    let data = hosts.path("data").to_str().unwrap().to_owned();
    let made = hosts.client(
        false,
        &[
            "mariadb-install-db",
            "--no-defaults",
            "--user=root",
            &format!("--datadir={data}"),
        ],
    );
    assert!(made.status.success(), "{}", text(&made));
    let words = [
        "/usr/sbin/mariadbd",
        "--no-defaults",
        "--user=root",
        "--skip-grant-tables",
        "--bind-address=0.0.0.0",
        "--port=3307",
        "--socket=socket",
        &format!("--datadir={data}"),
    ];
    hosts.serve(true, 3307, &words);
    let there = hosts.there();
    // The page there and back, as text.
    let script = format!(
        "set -e; m='mariadb --no-defaults -h {there} -P 3307 --protocol=tcp --max-allowed-packet=64M'\n\
         $m -e 'create database if not exists d; create or replace table d.t (b longblob)'\n\
         python3 -c \"print('insert into d.t values (x\\'' + open('page', 'rb').read().hex() + '\\');')\" | $m\n\
         $m -N -r -e 'select hex(b) from d.t' | python3 -c \"import sys; \
         open('got', 'wb').write(bytes.fromhex(sys.stdin.read()))\""
    );
    hosts.carried(&["sh", "-c", &script]);
    hosts.has("got");
    let plain = hosts.client(false, &["sh", "-c", &script]);
    assert!(plain.status.success(), "{}", text(&plain));
    hosts.has("got");
}

/// A cache between two connections of which both are carried.
#[test]
fn run__varnish_in_front_of_python() {
    let Some(mut hosts) = Hosts::new(&["python3", "curl"]) else {
        return;
    };
    if !is_there("/usr/sbin/varnishd") {
        return;
    }
    hosts.serve_near(
        true,
        8092,
        &["python3", "-m", "http.server", "8092", "--bind", "0.0.0.0"],
    );
    let origin = format!("{}:8092", hosts.near());
    let state = hosts.path("varnish").to_str().unwrap().to_owned();
    let words = [
        "/usr/sbin/varnishd",
        "-F",
        "-j",
        "none",
        "-n",
        &state,
        "-a",
        ":8093",
        "-b",
        &origin,
    ];
    hosts.serve(true, 8093, &[&words[..], &["-s", "malloc,64m"]].concat());
    let url = format!("http://{}:8093/page", hosts.there());
    for _ in 0..2 {
        hosts.carried(&["curl", "-sS", "-o", "got", &url]);
        hosts.has("got");
    }
    let plain = hosts.client(false, &["curl", "-sS", "-o", "got", &url]);
    assert!(plain.status.success(), "{}", text(&plain));
    hosts.has("got");
    let said = hosts.said();
    assert!(said.contains("Zerolane over UDP"), "to the origin: {said}");
}

/// A pool between clients and a database that forks for each connection.
#[test]
fn run__pgbouncer_in_front_of_postgresql() {
    let Some(mut hosts) = Hosts::new(&["psql", "python3", "setpriv"]) else {
        return;
    };
    let binaries = "/usr/lib/postgresql/15/bin/";
    if !is_there("/usr/sbin/pgbouncer") || !is_there(&format!("{binaries}postgres")) {
        return;
    }
    hosts.open_to_all();
    let data = hosts.path("data").to_str().unwrap().to_owned();
    let initdb = format!("{binaries}initdb");
    let made = hosts.client(
        false,
        &[
            &NOBODY[..],
            &[&initdb, "-D", &data, "-U", "zl", "-A", "trust"],
        ]
        .concat(),
    );
    assert!(made.status.success(), "{}", text(&made));
    fs::write(
        hosts.path("data/pg_hba.conf"),
        "host all all 0.0.0.0/0 trust\n",
    )
    .unwrap();
    let postgres = format!("{binaries}postgres");
    let words = [
        &postgres, "-D", &data, "-h", "0.0.0.0", "-p", "5433", "-k", "",
    ];
    hosts.serve_near(true, 5433, &[&NOBODY[..], &words].concat());
    let config = format!(
        "[databases]\n* = host={} port=5433 user=zl\n\
         [pgbouncer]\nlisten_addr = 0.0.0.0\nlisten_port = 6433\nunix_socket_dir =\nauth_type = any\n",
        hosts.near()
    );
    fs::write(hosts.path("bouncer.ini"), config).unwrap();
    let words = ["/usr/sbin/pgbouncer", "bouncer.ini"];
    hosts.serve(true, 6433, &[&NOBODY[..], &words].concat());
    let script = format!(
        "set -e; p='psql -v ON_ERROR_STOP=1 -q -h {} -p 6433 -U zl postgres'\n\
         $p -c 'create table if not exists t (b bytea); delete from t'\n\
         python3 -c \"print('insert into t values (decode(\\'' + open('page', 'rb').read().hex() + \
         '\\', \\'hex\\'));')\" | $p\n\
         $p -At -c \"select encode(b, 'hex') from t\" | python3 -c \"import sys; \
         open('got', 'wb').write(bytes.fromhex(sys.stdin.read()))\"",
        hosts.there()
    );
    hosts.carried(&["sh", "-c", &script]);
    hosts.has("got");
    let plain = hosts.client(false, &["sh", "-c", &script]);
    assert!(plain.status.success(), "{}", text(&plain));
    hosts.has("got");
    let said = hosts.said();
    assert!(
        said.contains("Zerolane over UDP"),
        "to the database: {said}"
    );
}
