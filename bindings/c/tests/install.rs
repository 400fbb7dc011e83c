//! Tests the library as a C programmer uses it: installs it with the documented command, finds it with pkg-config,
//! compiles with all warnings as errors, and runs.
#![allow(non_snake_case)]

use netlab::netns::{self, Topology};
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-pedantic"];

/// Runs to success, or fails with all that was said.
fn run(command: &mut Command) -> Output {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// An installation in a directory of its own.
struct Installed {
    root: TempDir,
}

impl Installed {
    fn new() -> Installed {
        let root = TempDir::new().expect("a directory");
        let installed = Installed { root };
        let said = run(&mut installed.make("install")).stdout;
        // A command for each thing of a kind, not for each page of the manual: of links, that of the library alone.
        let said = String::from_utf8_lossy(&said);
        let is_short = said.lines().count() < 30 && said.matches("ln -sf").count() == 1;
        assert!(is_short, "{said}");
        installed
    }

    fn make(&self, goal: &str) -> Command {
        let mut make = Command::new("make");
        // The profile of the tests, whose libraries are compiled already.
        make.args(["-C", CRATE, goal, "PROFILE=dev"])
            .arg(format!("PREFIX={}", self.path("").display()))
            .arg(format!("CARGO={}", env!("CARGO")));
        // What cargo says of this package to its test is not said of those that make has built: ring's, for one, would be
        // compiled for it, and compiled anew by the next cargo.
        for (name, _) in std::env::vars_os() {
            let of_package =
                |it: &str| it.starts_with("CARGO_PKG_") || it.starts_with("CARGO_MANIFEST_");
            if name.to_str().is_some_and(of_package) {
                make.env_remove(name);
            }
        }
        make
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.path().join("usr").join(below)
    }

    fn pkg_config(&self, arguments: &[&str]) -> Vec<String> {
        let output = run(Command::new("pkg-config")
            .args(arguments)
            .arg("zerolane")
            .env("PKG_CONFIG_PATH", self.path("lib/pkgconfig")));
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        text.split_whitespace().map(str::to_owned).collect()
    }

    /// Compiles a C or C++ program against the shared library.
    fn compile(&self, source: &Path) -> PathBuf {
        let program = self.root.path().join(source.file_name().expect("a name"));
        let program = program.with_extension("out");
        let (compiler, language) = match source.extension() {
            Some(it) if it == "cpp" => ("c++", "-std=c++20"),
            _ => ("cc", "-std=c11"),
        };
        run(Command::new(compiler)
            .args([language, "-pthread"])
            .args(STRICT)
            .arg(source)
            .args(self.pkg_config(&["--cflags", "--libs"]))
            .arg("-o")
            .arg(&program));
        program
    }

    /// Compiles a C program with all libraries in it, by the line of docs/guide/c.md.
    fn compile_static(&self, source: &Path) -> PathBuf {
        let name = source.file_name().expect("a name");
        std::fs::copy(source, self.root.path().join(name)).expect("copied");
        let line = "cc -static \"$1\" $(pkg-config --cflags --libs --static zerolane)";
        run(Command::new("sh")
            .args(["-c", line, "sh"])
            .arg(name)
            .current_dir(self.root.path())
            .env("PKG_CONFIG_PATH", self.path("lib/pkgconfig")));
        self.root.path().join("a.out")
    }

    /// Runs a program at the first host, or without a network of its own where there is none.
    fn run_at(&self, hosts: Option<&Topology>, program: &Path) {
        let mut command = match hosts {
            Some(hosts) => hosts.a().command("timeout"),
            None => Command::new("timeout"),
        };
        run(command
            .args(BOUND)
            .arg(program)
            .env("LD_LIBRARY_PATH", self.path("lib")));
    }

    fn run(&self, program: &Path) -> String {
        let output = run(bounded(program).env("LD_LIBRARY_PATH", self.path("lib")));
        String::from_utf8(output.stdout).expect("UTF-8")
    }
}

/// A program that is ended should it hang.
fn bounded(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(BOUND).arg(program);
    command
}

/// What `timeout` is told.
const BOUND: [&str; 2] = ["--kill-after=5", "300"];

/// Two hosts, of which the first has both ends of a veth as well, zl0 and zl1.
fn hosts() -> Option<Topology> {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return None;
    }
    let hosts = Topology::pair("c", 1500).expect("permitted");
    let kernel = hosts.a().rtnetlink().expect("permitted");
    let added = kernel.add_veth("zl0", 1500, (hosts.a(), "zl1"));
    added.expect("a veth");
    for (device, last) in [("zl0", 1), ("zl1", 2)] {
        let address = kernel.set_hardware_address(device, [2, 0, 0, 0, 0, last]);
        address.expect("set");
        kernel.set_up(device, true).expect("up");
    }
    Some(hosts)
}

/// Whether all of `programs` are installed; says which is not.
fn are_there(programs: &[&str]) -> bool {
    let missing = programs
        .iter()
        .find(|it| Command::new(it).arg("--version").output().is_err());
    if let Some(missing) = missing {
        eprintln!("skipped: {missing} is not installed");
    }
    missing.is_none()
}

fn source(below: &str) -> PathBuf {
    Path::new(CRATE).join(below)
}

/// One test, for the installation takes a while: each step needs those before it.
#[test]
fn install__programs_compile_without_a_warning_and_run() {
    if !are_there(&["make", "pkg-config"]) {
        return;
    }
    let installed = Installed::new();

    let transfer = installed.compile(&source("examples/transfer.c"));
    assert!(
        installed
            .run(&transfer)
            .starts_with("16 MiB received, all right")
    );
    let memory = installed.compile(&source("examples/memory.c"));
    assert!(
        installed
            .run(&memory)
            .starts_with("16 rows put and added up, all right")
    );
    let store = installed.compile(&source("examples/kv_store.c"));
    assert!(
        installed
            .run(&store)
            .starts_with("8 requests of 16 scattered blocks put and read, all right")
    );
    let server = installed.compile(&source("examples/rpc_server.c"));
    let said = run(bounded(&server)
        .args(["60", "20"])
        .env("LD_LIBRARY_PATH", installed.path("lib")));
    let said = String::from_utf8(said.stdout).expect("UTF-8");
    let expected = "60 clients at once, 1200 requests answered by one thread, all right";
    assert!(said.starts_with(expected), "{said}");
    let transfer = installed.compile_static(&source("examples/transfer.c"));
    let ran = run(&mut bounded(&transfer));
    assert!(ran.stdout.starts_with(b"16 MiB received"));

    installed.run(&installed.compile(&source("tests/c/arguments.c")));
    nulls_are_refused(&installed);
    extremes_are_tried(&installed);
    installed.run(&installed.compile(&source("tests/c/forked.c")));
    installed.run(&installed.compile(&source("tests/c/delivery.c")));
    installed.run(&installed.compile(&source("tests/c/datagrams.c")));
    installed.run(&installed.compile(&source("tests/c/streams.c")));
    installed.run(&installed.compile(&source("tests/c/incoming.c")));
    installed.run(&installed.compile(&source("tests/c/work.c")));
    installed.run(&installed.compile(&source("tests/c/gather.c")));
    installed.run(&installed.compile(&source("tests/c/worker.c")));
    installed.run(&installed.compile(&source("tests/c/background.c")));
    installed.run(&installed.compile(&source("tests/c/signals.c")));
    for program in ["tests/c/lanes.c", "tests/c/device.c"] {
        let hosts = hosts();
        installed.run_at(hosts.as_ref(), &installed.compile(&source(program)));
    }
    let security = installed.compile(&source("tests/c/security.c"));
    run(bounded(&security)
        .arg(installed.root.path())
        .env("LD_LIBRARY_PATH", installed.path("lib")));
    tutorials_run(&installed);

    header_is_cplusplus_too(&installed);
    soname_and_symbols_are_the_headers(&installed);
    manual_is_installed(&installed);
    uninstall(&installed);
}

/// The programs of docs/guide/c.md: each that listens, and after it the one that connects.
fn tutorials_run(installed: &Installed) {
    let programs = documented_programs(installed);
    let (pairs, rest) = programs.as_chunks();
    assert!(pairs.len() == 3 && rest.is_empty(), "three tutorials");
    for [server, client] in pairs {
        let [server, client] = [server, client].map(|it| installed.compile(it));
        let serving = bounded(&server)
            .env("LD_LIBRARY_PATH", installed.path("lib"))
            .spawn();
        let mut serving = serving.expect("started");
        let end = Instant::now() + Duration::from_secs(60);
        let said = loop {
            let mut client = bounded(&client);
            let ran = client
                .env("LD_LIBRARY_PATH", installed.path("lib"))
                .output();
            let ran = ran.expect("started");
            if ran.status.success() {
                break ran.stdout;
            }
            // The server may not listen, or export, yet.
            assert!(Instant::now() < end, "{client:?}: {ran:?}");
            std::thread::sleep(Duration::from_millis(50));
        };
        // The first client says nothing, and its server ends.
        if said.is_empty() {
            assert!(serving.wait().expect("ours").success());
        } else {
            // `timeout` passes this signal on. It could not pass on a SIGKILL, and the server would stay.
            run(Command::new("kill").arg(serving.id().to_string()));
            serving.wait().expect("ours");
        }
    }
}

/// Each in a file, with addresses of this host, and with what the first one begins with.
fn documented_programs(installed: &Installed) -> Vec<PathBuf> {
    let document =
        std::fs::read_to_string(source("../../docs/guide/c.md")).expect("docs/guide/c.md");
    let blocks = document.split("\n```c\n").skip(1);
    let blocks: Vec<&str> = blocks
        .map(|block| block.split("\n```").next().expect("a first part"))
        .collect();
    let first = blocks.first().expect("docs/guide/c.md has programs");
    let (prelude, _) = first.split_once("int main").expect("a program");
    let ports: Vec<UdpSocket> = (0..3)
        .map(|_| UdpSocket::bind("127.0.0.1:0").expect("a port"))
        .collect();
    let programs = blocks.iter().enumerate().map(|(number, block)| {
        let mut text = match number {
            0 => format!("{block}\n"),
            _ => format!("{prelude}{block}\n"),
        };
        for (port, documented) in ports.iter().zip(9181..) {
            let own = port.local_addr().expect("bound").to_string();
            for host in ["0.0.0.0", "192.0.2.1"] {
                text = text.replace(&format!("{host}:{documented}"), &own);
            }
        }
        let path = installed.root.path().join(format!("document{number}.c"));
        std::fs::write(&path, text).expect("written");
        path
    });
    programs.collect()
}

fn header_is_cplusplus_too(installed: &Installed) {
    if !are_there(&["c++"]) {
        return;
    }
    let said = installed.run(&installed.compile(&source("examples/memory.cpp")));
    assert!(said.starts_with("16 rows put and added up, all right"));
}

/// The program was linked with the name that says which header it was compiled with, and with symbols of a
/// version; nothing else of the library can clash with what is another's.
fn soname_and_symbols_are_the_headers(installed: &Installed) {
    let header = std::fs::read_to_string(installed.path("include/zerolane.h")).expect("the header");
    let version = header
        .lines()
        .find_map(|line| line.strip_prefix("#define ZL_ABI_VERSION "))
        .expect("a version");
    let name = format!("libzerolane.so.{version}");
    let library = installed.path("lib").join(&name);
    let read_of = |file: &Path, program: &str, arguments: &[&str]| {
        let output = run(Command::new(program).args(arguments).arg(file));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let read = |program: &str, arguments: &[&str]| read_of(&library, program, arguments);
    let dynamic = read("readelf", &["--dynamic", "--wide"]);
    assert!(
        dynamic.contains(&format!("soname: [{name}]")),
        "{name}: {dynamic}"
    );
    let archive = installed.path("lib").join("libzerolane.a");
    for file in [&library, &archive] {
        let sections = read_of(file, "readelf", &["--section-headers", "--wide"]);
        assert!(!sections.contains(".debug_"), "{file:?} is not stripped");
    }
    let node = format!("ZEROLANE_{version}");
    let symbols = read(
        "nm",
        &["--dynamic", "--defined-only", "--with-symbol-versions"],
    );
    let shown: BTreeSet<&str> = symbols
        .lines()
        .filter_map(|it| it.split_whitespace().nth(2))
        .filter(|it| *it != node && *it != format!("{node}@@{node}"))
        .map(|it| {
            let (symbol, version) = it.split_once("@@").expect("a version");
            assert_eq!(version, node, "{it}");
            symbol
        })
        .collect();
    let declared: BTreeSet<&str> = functions(&header).map(|it| it.0).collect();
    assert_eq!(shown, declared, "symbols, and functions of the header");
}

/// The functions that a header declares, with the text of their parameters. Calls in its comments are among them.
fn functions(header: &str) -> impl Iterator<Item = (&str, &str)> {
    header.match_indices("zl_").filter_map(|(at, _)| {
        let text = &header[at..];
        let end = text.find(|it: char| !it.is_ascii_alphanumeric() && it != '_')?;
        let (parameters, _) = text[end..].strip_prefix('(')?.split_once(");")?;
        Some((&text[..end], parameters))
    })
}

/// A function without a row in extremes.c fails here.
fn extremes_are_tried(installed: &Installed) {
    let header = std::fs::read_to_string(installed.path("include/zerolane.h")).expect("the header");
    let is_number = |parameter: &str| {
        let mut words = parameter.split_whitespace();
        let integer = |it: &str| it == "int" || it.ends_with("_t") && !it.starts_with("zl_");
        words.next().is_some_and(integer) && !parameter.contains('*')
    };
    let with_numbers: BTreeSet<&str> = functions(&header)
        .filter(|(_, parameters)| parameters.split(',').any(is_number))
        .map(|it| it.0)
        .collect();
    let program = installed.compile(&source("tests/c/extremes.c"));
    let ran = run(bounded(&program)
        .arg(installed.root.path())
        .env("LD_LIBRARY_PATH", installed.path("lib")));
    let said = String::from_utf8(ran.stdout).expect("UTF-8");
    let tried: BTreeSet<&str> = said.lines().collect();
    assert_eq!(
        tried, with_numbers,
        "tried, and functions that take a number"
    );
}

/// What may be null, with its function; a name alone is that of a parameter of any function.
const MAY_BE_NULL: &[&str] = &[
    "how",
    "context",
    // The request's number.
    "id",
    "zl_account_json length",
    "zl_device_open options",
    "zl_connect options",
    "zl_endpoint_bind options",
    "zl_export_numbered key",
    "zl_exported_fetch_op before",
    "zl_fetch_op before",
    "zl_options_identity buffer",
    "zl_options_set_device device",
    "zl_region_wrap release",
    "zl_worker_connect options",
    "zl_worker_listen options",
];

/// Texts that may be empty, with their function.
const MAY_BE_EMPTY: &[&str] = &["zl_stream_reset words"];

/// Each function is called with null for each of its pointers in turn, and with an empty text.
fn nulls_are_refused(installed: &Installed) {
    let header = std::fs::read_to_string(installed.path("include/zerolane.h")).expect("the header");
    let header = without_comments(&header);
    let mut calls = String::new();
    let mut may_be_null: BTreeSet<&str> = MAY_BE_NULL.iter().copied().collect();
    let mut tried = 0;
    for (function, parameters) in functions(&header) {
        let parameters = parameters_of(parameters);
        let before = header
            .split(&format!("{function}("))
            .next()
            .expect("the type");
        let tells = before.trim_end().ends_with("zl_status");
        if !tells {
            let nothing: Vec<&str> = parameters.iter().map(|it| it.absent()).collect();
            calls += &format!("    (void){function}({});\n", nothing.join(", "));
            continue;
        }
        for (at, parameter) in parameters.iter().enumerate() {
            let own = format!("{function} {}", parameter.name);
            let allowed =
                MAY_BE_NULL.contains(&parameter.name) || MAY_BE_NULL.contains(&own.as_str());
            may_be_null.remove(parameter.name);
            may_be_null.remove(own.as_str());
            // There is no device: it needs root.
            let others = parameters.iter().filter(|it| it.name != parameter.name);
            if !parameter.is_pointer() || others.map(Parameter::plain).any(|it| it == "zl_device *")
            {
                continue;
            }
            let with = |other: &str| {
                let mut values: Vec<String> = parameters.iter().map(Parameter::value).collect();
                values[at] = other.to_owned();
                format!("{function}({})", values.join(", "))
            };
            if !allowed {
                let (call, name) = (with("NULL"), parameter.name);
                calls += &format!("    is_null({call}, \"{function}\", \"{name}\", {tried});\n");
                tried += 1;
            }
            if parameter.of == "const char *" && !MAY_BE_EMPTY.contains(&own.as_str()) {
                let call = with("\"\"");
                calls += &format!(
                    "    fails({call}, \"{function}, empty {}\");\n",
                    parameter.name
                );
            }
        }
    }
    assert!(may_be_null.is_empty(), "not there: {may_be_null:?}");
    assert!(tried > 200, "{tried} pointers");
    let text = std::fs::read_to_string(source("tests/c/nulls.c")).expect("nulls.c");
    let text = text.replace("    CALLS\n", &calls);
    let text = text.replace("TRIED", &tried.to_string());
    let included = format!("#include \"{}\"", source("tests/c/expect.h").display());
    let text = text.replace("#include \"expect.h\"", &included);
    let path = installed.root.path().join("nulls.c");
    std::fs::write(&path, text).expect("written");
    installed.run(&installed.compile(&path));
}

/// The variables of nulls.c.
const OBJECTS: [&str; 12] = [
    "worker",
    "endpoint",
    "connection",
    "options",
    "region",
    "exported",
    "queue",
    "pool",
    "set",
    "incoming",
    "streams",
    "stream",
];

/// A parameter of a function.
struct Parameter<'a> {
    /// Its type, with one space between words.
    of: String,
    name: &'a str,
}

impl Parameter<'_> {
    fn is_function(&self) -> bool {
        self.of.contains('(')
    }

    fn is_pointer(&self) -> bool {
        self.is_function() || self.of.ends_with('*')
    }

    /// The type without `const` and `struct` before it.
    fn plain(&self) -> &str {
        let plain = self.of.strip_prefix("const ").unwrap_or(&self.of);
        plain.strip_prefix("struct ").unwrap_or(plain)
    }

    fn absent(&self) -> &'static str {
        if self.is_pointer() { "NULL" } else { "0" }
    }

    /// An argument that is not refused: of the program's objects, or made for the call.
    fn value(&self) -> String {
        let object = self.plain().strip_prefix("zl_");
        let object = object.and_then(|it| it.strip_suffix(" *"));
        match (self.of.as_str(), object) {
            _ if self.is_function() => self.name.to_owned(),
            (_, Some(object)) if OBJECTS.contains(&object) => object.to_owned(),
            ("const char *", _) => "\"127.0.0.1:1\"".to_owned(),
            ("const void *" | "void *", _) => "(char[128]){0}".to_owned(),
            ("size_t", _) => "64".to_owned(),
            (pointer, _) => match pointer.strip_suffix('*') {
                Some(to) => format!("({}[64]){{0}}", to.trim_end()),
                None => "1".to_owned(),
            },
        }
    }
}

/// The parameters in a declaration.
fn parameters_of(text: &str) -> Vec<Parameter<'_>> {
    let mut depth = 0;
    let parts = text.split(|it| {
        depth += i32::from(it == '(') - i32::from(it == ')');
        it == ',' && depth == 0
    });
    let parts = parts.map(str::trim).filter(|it| *it != "void");
    parts
        .map(|part| {
            let (of, name) = match part.split_once("(*") {
                Some((_, rest)) => (part, rest.split_once(')').expect("a name").0),
                None => {
                    let start = part.rfind(|it: char| !it.is_ascii_alphanumeric() && it != '_');
                    part.split_at(start.expect("a type") + 1)
                }
            };
            let of = of.split_whitespace().collect::<Vec<_>>().join(" ");
            Parameter { of, name }
        })
        .collect()
}

fn without_comments(header: &str) -> String {
    let parts = header.split("/*").enumerate();
    let parts = parts.map(|(number, part)| match number {
        0 => part,
        _ => part.split_once("*/").expect("a comment's end").1,
    });
    parts.collect()
}

/// Each function has a page, under its own name.
fn manual_is_installed(installed: &Installed) {
    let header = std::fs::read_to_string(installed.path("include/zerolane.h")).expect("the header");
    for function in ["zl_connect", "zl_send", "zl_worker_events", "zl_wait_for"] {
        assert!(header.contains(&format!("{function}(")), "{function}");
        let page = installed.path(&format!("share/man/man3/{function}.3"));
        let text = std::fs::read_to_string(&page).expect("a page");
        assert!(text.contains(&format!("\n.Nm {function}")), "{function}");
    }
}

/// Nothing that was installed is left.
fn uninstall(installed: &Installed) {
    let mut left = Vec::new();
    let mut directories = vec![installed.path("")];
    run(&mut installed.make("uninstall"));
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => directories.push(path),
                false => left.push(path),
            }
        }
    }
    assert!(left.is_empty(), "left after uninstalling: {left:?}");
}
