//! Switches segmentation and coalescing of a device, as `ethtool -K` does, by the generic netlink family `ethtool`.

use super::Namespace;
use super::error::{Error, Result};
use super::netlink::Netlink;
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, ErrorContext, NLA_F_NESTED, Nla, NlasIterator, Parseable,
    ParseableParametrized, parse_string,
};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::protocols::NETLINK_GENERIC;
use std::collections::BTreeSet;
use std::io;

/// What a device may do for the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// Takes packets bigger than the MTU and cuts them, or on veth hands them
    /// over whole: TSO, GSO and UDP segmentation.
    pub tx: bool,
    /// Merges arriving packets of a flow: GRO. Switching it off also switches
    /// off its variants `rx-gro-list` and `rx-udp-gro-forwarding`; switching it
    /// on leaves them alone, because they are off by default.
    pub gro: bool,
}

impl Offloads {
    /// Whether a feature must be on or off; `None` if it is neither of sending nor of GRO.
    fn wants(self, feature: &str) -> Option<bool> {
        let is_tso = feature.starts_with("tx-tcp") && feature.ends_with("-segmentation");
        match feature {
            _ if is_tso || TX.contains(&feature) => Some(self.tx),
            GRO => Some(self.gro),
            _ if !self.gro && GRO_VARIANTS.contains(&feature) => Some(false),
            _ => None,
        }
    }
}

/// The outcome of a request to switch features, by the kernel's names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffloadChange {
    /// Features that now are as asked, changed or not.
    pub applied: Vec<&'static str>,
    /// Features that are not as asked: fixed, or unknown to this kernel.
    pub unavailable: Vec<&'static str>,
}

/// Features of sending. The other variants of TCP segmentation follow the first.
const TX: [&str; 3] = [
    "tx-tcp-segmentation",
    "tx-generic-segmentation",
    "tx-udp-segmentation",
];
const GRO: &str = "rx-gro";
const GRO_VARIANTS: [&str; 2] = ["rx-gro-list", "rx-udp-gro-forwarding"];

/// Checksums of packets sent, of any protocol over IP, and of packets received.
const CHECKSUMS: [&str; 2] = ["tx-checksum-ip-generic", "rx-checksum"];

/// Switches the offloads of a device of the namespace.
pub(super) fn set(
    namespace: &Namespace,
    device: &str,
    offloads: Offloads,
) -> Result<OffloadChange> {
    switch(namespace, device, |it| offloads.wants(it))
}

/// Switches whether a device of the namespace computes and checks checksums, or the stack does. Without them it cuts no
/// packets either.
pub(super) fn set_checksums(
    namespace: &Namespace,
    device: &str,
    on: bool,
) -> Result<OffloadChange> {
    switch(namespace, device, |it| {
        CHECKSUMS.contains(&it).then_some(on)
    })
}

fn switch(
    namespace: &Namespace,
    device: &str,
    wants: impl Fn(&str) -> Option<bool>,
) -> Result<OffloadChange> {
    let ethtool = Ethtool::open(namespace)?;
    let changes: Vec<(String, bool)> = ethtool
        .features(device)?
        .changeable
        .into_iter()
        .filter_map(|it| wants(&it).map(|on| (it, on)))
        .collect();
    ethtool.switch(device, &changes)?;
    let active = ethtool.features(device)?.active;
    Ok(sort_by_outcome(wants, &active))
}

fn sort_by_outcome(
    wants: impl Fn(&str) -> Option<bool>,
    active: &BTreeSet<String>,
) -> OffloadChange {
    let mut change = OffloadChange::default();
    let known = TX.into_iter().chain([GRO]).chain(GRO_VARIANTS);
    for feature in known.chain(CHECKSUMS) {
        let Some(on) = wants(feature) else {
            continue;
        };
        if active.contains(feature) == on {
            change.applied.push(feature);
        } else {
            change.unavailable.push(feature);
        }
    }
    change
}

/// What a device says of its features.
#[derive(Debug, Default)]
struct Features {
    /// Those that can be switched.
    changeable: BTreeSet<String>,
    /// Those that are on.
    active: BTreeSet<String>,
}

/// Commands and attributes of linux/ethtool_netlink.h.
mod code {
    pub(super) const FEATURES_GET: u8 = 11;
    pub(super) const FEATURES_SET: u8 = 12;
    pub(super) const FEATURES_HEADER: u16 = 1;
    pub(super) const FEATURES_CHANGEABLE: u16 = 2;
    pub(super) const FEATURES_WANTED: u16 = 3;
    pub(super) const FEATURES_ACTIVE: u16 = 4;
    pub(super) const HEADER_DEVICE: u16 = 2;
    pub(super) const BITSET_BITS: u16 = 3;
    pub(super) const BITS_BIT: u16 = 1;
    pub(super) const BIT_NAME: u16 = 2;
    pub(super) const BIT_IS_SET: u16 = 3;
}

/// The kernel's side of `ethtool` in one namespace.
struct Ethtool {
    kernel: Netlink,
    /// The number of the family, which the kernel chose when it booted.
    family: u16,
}

impl Ethtool {
    fn open(namespace: &Namespace) -> Result<Ethtool> {
        let kernel = Netlink::open(namespace, NETLINK_GENERIC)?;
        let asked = "find the netlink family ethtool";
        let request = GenlMessage::from_payload(GenlCtrl {
            cmd: GenlCtrlCmd::GetFamily,
            nlas: vec![GenlCtrlAttrs::FamilyName(Message::family_name().to_owned())],
        });
        let answers = kernel.ask(asked, request, 0)?;
        let mut attributes = answers.into_iter().flat_map(|it| it.payload.nlas);
        let family = attributes.find_map(|it| match it {
            GenlCtrlAttrs::FamilyId(number) => Some(number),
            _ => None,
        });
        let family = family.ok_or_else(|| Error::io(asked, io::ErrorKind::NotFound.into()))?;
        Ok(Ethtool { kernel, family })
    }

    fn features(&self, device: &str) -> Result<Features> {
        let asked = format!("read the features of {device}");
        let mut features = Features::default();
        for attribute in self.ask(&asked, code::FEATURES_GET, vec![header(device)])? {
            match attribute.kind() & !NLA_F_NESTED {
                code::FEATURES_CHANGEABLE => features.changeable = bits_set(&attribute),
                code::FEATURES_ACTIVE => features.active = bits_set(&attribute),
                _ => {}
            }
        }
        Ok(features)
    }

    fn switch(&self, device: &str, changes: &[(String, bool)]) -> Result<()> {
        let asked = format!("switch features of {device}");
        let wanted = nested(code::FEATURES_WANTED, &[bits(changes)]);
        self.ask(&asked, code::FEATURES_SET, vec![header(device), wanted])
            .map(drop)
    }

    fn ask(
        &self,
        asked: &str,
        command: u8,
        attributes: Vec<DefaultNla>,
    ) -> Result<Vec<DefaultNla>> {
        let mut request = GenlMessage::from_payload(Message {
            command,
            attributes,
        });
        request.set_resolved_family_id(self.family);
        let answers = self.kernel.ask(asked, request, 0)?;
        Ok(answers
            .into_iter()
            .flat_map(|it| it.payload.attributes)
            .collect())
    }
}

fn header(device: &str) -> DefaultNla {
    let name = DefaultNla::new(code::HEADER_DEVICE, c_string(device));
    nested(code::FEATURES_HEADER, &[name])
}

/// Bits by their names, and whether each is set.
fn bits(bits: &[(String, bool)]) -> DefaultNla {
    let bits: Vec<DefaultNla> = bits
        .iter()
        .map(|(name, is_set)| {
            let mut bit = vec![DefaultNla::new(code::BIT_NAME, c_string(name))];
            bit.extend(is_set.then(|| DefaultNla::new(code::BIT_IS_SET, Vec::new())));
            nested(code::BITS_BIT, &bit)
        })
        .collect();
    nested(code::BITSET_BITS, &bits)
}

/// The names in a bitset that lists those set and no others.
fn bits_set(bitset: &DefaultNla) -> BTreeSet<String> {
    let of_kind = |parent: &DefaultNla, kind: u16| {
        let children = children(parent).unwrap_or_default();
        children
            .into_iter()
            .filter(move |it| it.kind() & !NLA_F_NESTED == kind)
    };
    of_kind(bitset, code::BITSET_BITS)
        .flat_map(|it| of_kind(&it, code::BITS_BIT))
        .flat_map(|it| of_kind(&it, code::BIT_NAME))
        .filter_map(|it| parse_string(&value(&it)).ok())
        .collect()
}

fn c_string(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

fn nested(kind: u16, children: &[DefaultNla]) -> DefaultNla {
    let mut value = vec![0; children.buffer_len()];
    children.emit(&mut value);
    DefaultNla::new(kind | NLA_F_NESTED, value)
}

fn value(attribute: &DefaultNla) -> Vec<u8> {
    let mut value = vec![0; attribute.value_len()];
    attribute.emit_value(&mut value);
    value
}

fn children(attribute: &DefaultNla) -> std::result::Result<Vec<DefaultNla>, DecodeError> {
    attributes_in(&value(attribute))
}

fn attributes_in(bytes: &[u8]) -> std::result::Result<Vec<DefaultNla>, DecodeError> {
    NlasIterator::new(bytes)
        .map(|it| DefaultNla::parse(&it.context("an attribute of the family ethtool")?))
        .collect()
}

/// A message of the family.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    command: u8,
    attributes: Vec<DefaultNla>,
}

impl GenlFamily for Message {
    fn family_name() -> &'static str {
        "ethtool"
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        1
    }
}

impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Message {
    fn parse_with_param(
        bytes: &[u8],
        header: GenlHeader,
    ) -> std::result::Result<Self, DecodeError> {
        Ok(Message {
            command: header.cmd,
            attributes: attributes_in(bytes)?,
        })
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn wants__gro_off_takes_its_variants_along() {
        let [on, off] = [true, false].map(|gro| Offloads { tx: true, gro });
        assert_eq!(on.wants("rx-gro-list"), None);
        assert_eq!(off.wants("rx-gro-list"), Some(false));
        assert_eq!(off.wants("rx-gro"), Some(false));
        assert_eq!(off.wants("rx-gro-hw"), None);
    }

    #[test]
    fn wants__tx_is_of_all_tcp_and_of_no_tunnels() {
        let off = Offloads {
            tx: false,
            gro: true,
        };
        for feature in ["tx-tcp6-segmentation", "tx-udp-segmentation"] {
            assert_eq!(off.wants(feature), Some(false), "{feature}");
        }
        for feature in [
            "tx-udp_tnl-segmentation",
            "tx-sctp-segmentation",
            "tx-checksum-ipv4",
        ] {
            assert_eq!(off.wants(feature), None, "{feature}");
        }
    }

    #[test]
    fn sort_by_outcome__what_is_not_as_asked_is_named() {
        let active = ["tx-tcp-segmentation", "rx-gro", "rx-gro-list"].map(String::from);
        let offloads = Offloads {
            tx: true,
            gro: false,
        };
        let change = sort_by_outcome(|it| offloads.wants(it), &active.into());
        assert_eq!(
            change.applied,
            ["tx-tcp-segmentation", "rx-udp-gro-forwarding"]
        );
        assert_eq!(
            change.unavailable,
            [
                "tx-generic-segmentation",
                "tx-udp-segmentation",
                "rx-gro",
                "rx-gro-list"
            ]
        );
    }

    #[test]
    fn bits_set__are_the_names_of_a_list() {
        let list = [("a".to_owned(), true), ("b-c".to_owned(), true)];
        let bitset = nested(code::FEATURES_ACTIVE, &[bits(&list)]);
        assert_eq!(bits_set(&bitset), ["a", "b-c"].map(String::from).into());
        let broken = DefaultNla::new(code::FEATURES_ACTIVE, vec![9, 0, 3]);
        assert_eq!(bits_set(&broken), BTreeSet::new());
    }
}
