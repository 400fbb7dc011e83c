//! Tests that the statistics of a driver report the packets that it was made to drop.
#![allow(non_snake_case)]

use std::net::UdpSocket;

use aya::Ebpf;
use aya::programs::{Xdp, XdpMode};
use netlab::netns::{self, Namespace, Topology};
use object::write::{Object, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
};
use zerolane_explain::{Explainer, Options, Rate, Subject};

/// Counters alone.
const COUNTERS: Options = Options {
    rate: Rate::Never,
    folded: false,
    system_calls: false,
};
/// `return XDP_DROP`: the register of the result becomes 1; exit.
const DROP_ALL: [u8; 16] = [
    0xb7, 0, 0, 0, 1, 0, 0, 0, // mov r0, 1
    0x95, 0, 0, 0, 0, 0, 0, 0, // exit
];
/// Where it is in the object, and its name there.
const SECTION: &str = "xdp";
const NAME: &str = "drop_all";

/// Such a program as a compiler would leave it.
fn program() -> Vec<u8> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let section = object.add_section(Vec::new(), SECTION.into(), SectionKind::Text);
    object.append_section_data(section, &DROP_ALL, 8);
    object.add_symbol(Symbol {
        name: NAME.into(),
        value: 0,
        size: DROP_ALL.len() as u64,
        kind: SymbolKind::Text,
        scope: SymbolScope::Linkage,
        weak: false,
        section: SymbolSection::Section(section),
        flags: SymbolFlags::None,
    });
    let license = object.add_section(Vec::new(), b"license".to_vec(), SectionKind::Data);
    object.append_section_data(license, b"GPL\0", 1);
    object.write().unwrap()
}

/// Has the driver of this namespace's device drop all that it receives, as long as the program is kept; why not.
fn drop_all(namespace: &Namespace) -> Result<Ebpf, Box<dyn std::error::Error + Send + Sync>> {
    let attached = namespace.enter_thread(|| {
        let mut object = Ebpf::load(&program())?;
        let program: &mut Xdp = object.program_mut(NAME).ok_or("no program")?.try_into()?;
        program.load()?;
        program.attach(namespace.device(), XdpMode::Driver)?;
        Ok(object)
    });
    attached?
}

/// What the device of this thread's namespace received, in frames.
fn frames(device: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let line = text.lines().find_map(|it| {
        let (name, counts) = it.split_once(':')?;
        (name.trim() == device).then_some(counts)
    });
    line.unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

/// Both ends of the veth have counters of their own, by queue, and only those of the end that dropped rise.
#[test]
fn driver_statistics__what_a_veth_drops() {
    if !netns::is_permitted() {
        eprintln!("skipped: network namespaces need root");
        return;
    }
    const SENT: u64 = 300;
    let hosts = Topology::pair("driver", 1500).unwrap();
    let receiver = hosts.b();
    let bound = receiver.enter_thread(|| UdpSocket::bind((receiver.ipv4(), 0)).unwrap());
    let bound = bound.unwrap();
    let to = bound.local_addr().unwrap();
    let sender = hosts
        .a()
        .enter_thread(|| UdpSocket::bind((hosts.a().ipv4(), 0)).unwrap());
    let sender = sender.unwrap();
    // Resolves the address before the device drops all packets.
    sender.send_to(&[1], to).unwrap();
    bound
        .set_read_timeout(Some(std::time::Duration::from_secs(40)))
        .unwrap();
    bound.recv(&mut [0; 2]).expect("the first one arrives");
    let _program = match drop_all(receiver) {
        Ok(program) => program,
        Err(why) => {
            eprintln!("skipped: no program for a device here: {why}");
            return;
        }
    };
    let watched = || {
        let before = frames(receiver.device());
        let explainer = Explainer::start(Subject::Machine, COUNTERS);
        for _ in 0..SENT {
            sender.send_to(&[1], to).unwrap();
        }
        let explanation = explainer.finish();
        (explanation, frames(receiver.device()) - before)
    };
    let (explanation, arrived) = receiver.enter_thread(watched).unwrap();
    let own = explanation.driver_statistics.iter();
    let own: Vec<_> = own.filter(|it| it.namespace == "this").collect();
    let counted: u64 = own.iter().map(|it| it.count).sum();
    for it in &own {
        assert_eq!(it.interface, receiver.device());
        assert!(it.name.ends_with("_xdp_drops"), "{it:?}");
    }
    // The kernel's own packets, of neighbours and groups, are dropped as well.
    assert!(
        (SENT..=arrived).contains(&counted),
        "{counted} of {arrived}: {own:?}"
    );
}
