//! Tests the provider by Debian's libfabric: a C program that makes each call, and libfabric's own programs.
#![allow(non_snake_case)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use tempfile::TempDir;

const STRICT: [&str; 4] = ["-std=gnu11", "-Wall", "-Wextra", "-Werror"];

/// The C program, and the directory in which libfabric finds the provider.
struct Made {
    directory: TempDir,
}

/// Makes both, or says why not.
fn made() -> Option<&'static Made> {
    static MADE: OnceLock<Option<Made>> = OnceLock::new();
    MADE.get_or_init(make).as_ref()
}

fn make() -> Option<Made> {
    if !Path::new("/usr/include/rdma/fabric.h").exists() {
        eprintln!(
            "skipped: libfabric's headers are not installed: they are in the Debian package libfabric-dev"
        );
        return None;
    }
    let directory = TempDir::new().expect("a directory");
    // Its name is what libfabric looks for.
    let provider = directory.path().join("libzerolane-fi.so");
    std::os::unix::fs::symlink(library(), provider).expect("a link");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/calls.c");
    let mut compile = Command::new("cc");
    compile
        .args(STRICT)
        .args(["-O1", "-g", source, "-lfabric", "-o"]);
    let output = compile.arg(directory.path().join("calls")).output();
    succeeded("cc", &output.expect("a C compiler"));
    Some(Made { directory })
}

/// What cargo has built beside this program.
fn library() -> PathBuf {
    let own = std::env::current_exe().expect("a path");
    let directories = own.ancestors().skip(1).take(2);
    let mut built = directories.map(|it| it.join("libzerolane_fi.so"));
    built.find(|it| it.exists()).expect("the provider is built")
}

fn succeeded(what: &str, output: &Output) {
    assert!(
        output.status.success(),
        "{what}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

impl Made {
    /// A program that finds this provider alone.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FI_") {
                command.env_remove(name);
            }
        }
        command
            .env("FI_PROVIDER_PATH", self.directory.path())
            .env("FI_ZEROLANE_SECURITY", "plain");
        command
    }

    fn case(&self, name: &str, lane: &str) {
        let mut command = self.command(self.directory.path().join("calls"));
        command.env("FI_PROVIDER", "zerolane").arg(name);
        command.env("FI_ZEROLANE_LANE", lane);
        succeeded(name, &command.output().expect("a program"));
    }
}

/// Runs a case over shared memory and over UDP.
macro_rules! cases {
    ($($test:ident: $case:literal,)+) => {
        $(
            #[test]
            fn $test() {
                if let Some(made) = made() {
                    made.case($case, "best");
                    made.case($case, "udp");
                }
            }
        )+
    };
}

cases! {
    getinfo__offers_what_it_has_and_refuses_the_rest: "info",
    connect__both_ends_learn_of_each_other_and_of_the_end: "connections",
    reject__with_and_without_a_reason: "rejections",
    calls__of_wrong_arguments_and_absent_functions: "misuse",
    msg__every_length_form_and_failure: "messages",
    cq__every_format_and_selective_completion: "formats",
    rma__every_form_and_refusal: "memory",
    atomic__words_of_32_and_64_bits: "atomics",
    cntr__counts_waits_and_fails: "counters",
    srx__endpoints_share_receives: "shared",
    wait__by_descriptor_call_and_signal: "waiting",
    progress__without_a_call_of_the_program: "unattended",
    security__another_key_and_a_dead_peer: "strangers",
    close__with_receives_posted_spoils_no_later_ones: "reopened",
    fork__a_child_gets_errors_and_the_parent_goes_on: "forked",
    endpoints__200_pairs_of_one_process: "many",
}

/// Whether a program is installed.
fn is_there(program: &str, package: &str) -> bool {
    let found = Command::new("which").arg(program).output();
    let there = found.is_ok_and(|it| it.status.success());
    if !there {
        eprintln!("skipped: {program} is not installed: it is in the Debian package {package}");
    }
    there
}

#[test]
fn fi_info__lists_it_alone_and_below_ofi_rxm() {
    let Some(made) = made() else { return };
    if !is_there("fi_info", "libfabric-bin") {
        return;
    }
    for (provider, kind) in [("zerolane", "FI_EP_MSG"), ("zerolane;ofi_rxm", "FI_EP_RDM")] {
        let mut command = made.command("fi_info");
        let output = command
            .args(["-p", provider, "-t", kind])
            .output()
            .expect("run");
        succeeded(provider, &output);
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains(&format!("provider: {provider}\n")), "{said}");
    }
}

#[test]
fn fi_pingpong__runs_with_both_kinds_of_endpoints() {
    let Some(made) = made() else { return };
    if !is_there("fi_pingpong", "libfabric-bin") {
        return;
    }
    for (at, (provider, kind)) in [("zerolane", "msg"), ("zerolane;ofi_rxm", "rdm")]
        .into_iter()
        .enumerate()
    {
        // A control port of its own: other tests of this machine may run the same program.
        let port = (20_000 + std::process::id() as usize % 20_000 + at).to_string();
        let words = ["-p", provider, "-e", kind, "-I", "20", "-B", &port];
        let mut server = made.command("fi_pingpong");
        server.args(words).stdout(Stdio::null());
        let mut server = server.spawn().expect("run");
        let mut tried = 0;
        let output = loop {
            let mut client = made.command("fi_pingpong");
            let client = client.args([
                "-p",
                provider,
                "-e",
                kind,
                "-I",
                "20",
                "-P",
                &port,
                "127.0.0.1",
            ]);
            let output = client.output().expect("run");
            tried += 1;
            // The server may not listen yet.
            if output.status.success() || tried == 50 {
                break output;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        };
        if !output.status.success() {
            let _ = server.kill();
        }
        let ended = server.wait().expect("an end");
        succeeded(provider, &output);
        assert!(ended.success(), "{provider}: {ended}");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("\n1m "), "{said}");
    }
}

/// A key of a job, for all ranks.
const KEY: &str = "5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a";

/// Runs a program of MPI by Debian's Open MPI, over `lane`.
fn run_job(made: &Made, ranks: usize, lane: &str) {
    let program = made.directory.path().join("job");
    if !program.exists() {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/c/job.c");
        let mut compile = Command::new("mpicc");
        compile
            .args(STRICT)
            .args(["-O1", "-g", source, "-o"])
            .arg(&program);
        succeeded("mpicc", &compile.output().expect("run"));
    }
    let mut command = made.command("timeout");
    command
        .args(["--kill-after=5", "100", "mpirun", "--oversubscribe", "-n"])
        .arg(ranks.to_string())
        .args(["--mca", "pml", "cm", "--mca", "mtl", "ofi"])
        .args(["--mca", "mtl_ofi_provider_include", "zerolane;ofi_rxm"])
        .arg(&program)
        .env("FI_ZEROLANE_SECURITY", "sealed")
        .env("FI_ZEROLANE_KEY", KEY)
        .env("FI_ZEROLANE_LANE", lane)
        .env("FI_LOG_LEVEL", "info")
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let output = command.output().expect("run");
    succeeded("mpirun", &output);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains(&format!("{ranks} ranks agree")), "{said}");
    // It was this provider, over that lane.
    let log = String::from_utf8_lossy(&output.stderr);
    let over = match lane {
        "udp" => "over Udp",
        _ => "over SharedMemory",
    };
    assert!(log.contains(over), "{log}");
}

#[test]
fn mpi__a_job_of_open_mpi_over_shared_memory_and_sealed_udp() {
    let Some(made) = made() else { return };
    if !is_there("mpirun", "openmpi-bin") || !is_there("mpicc", "libopenmpi-dev") {
        return;
    }
    run_job(made, 2, "best");
    run_job(made, 2, "udp");
    run_job(made, 4, "best");
}

#[test]
fn library__needs_no_symbol_of_libfabric_and_offers_one() {
    if !is_there("nm", "binutils") {
        return;
    }
    let symbols = |option: &str| {
        let mut nm = Command::new("nm");
        let output = nm
            .args(["-D", option])
            .arg(library())
            .output()
            .expect("run");
        succeeded("nm", &output);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let defined = symbols("--defined-only");
    let names: Vec<_> = defined
        .lines()
        .filter_map(|it| it.rsplit(' ').next())
        .collect();
    assert_eq!(names, ["fi_prov_ini"]);
    assert!(!symbols("--undefined-only").contains(" fi_"));
}
