//! Switching segmentation and coalescing of a device with `ethtool -K`.

use super::Namespace;
use super::error::Result;
use super::tool::ETHTOOL;

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

/// The outcome of a request to switch features; names as `ethtool -K` takes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffloadChange {
    /// Features that now are as asked, changed or not.
    pub applied: Vec<&'static str>,
    /// Features that are not as asked: fixed, or unknown to this kernel.
    pub unavailable: Vec<&'static str>,
}

/// A feature by its two names.
struct Feature {
    /// As `ethtool -K` takes it.
    name: &'static str,
    /// As `ethtool -k` lists it.
    listed: &'static str,
}

const TX: [Feature; 3] = [
    Feature {
        name: "tso",
        listed: "tcp-segmentation-offload",
    },
    Feature {
        name: "gso",
        listed: "generic-segmentation-offload",
    },
    Feature {
        name: "tx-udp-segmentation",
        listed: "tx-udp-segmentation",
    },
];

const GRO: Feature = Feature {
    name: "gro",
    listed: "generic-receive-offload",
};

const GRO_VARIANTS: [Feature; 2] = [
    Feature {
        name: "rx-gro-list",
        listed: "rx-gro-list",
    },
    Feature {
        name: "rx-udp-gro-forwarding",
        listed: "rx-udp-gro-forwarding",
    },
];

/// Switches the offloads of a device of the namespace.
pub(super) fn set(
    namespace: &Namespace,
    device: &str,
    offloads: Offloads,
) -> Result<OffloadChange> {
    apply(namespace, device, &wanted(offloads))
}

fn apply(
    namespace: &Namespace,
    device: &str,
    wanted: &[(&'static Feature, bool)],
) -> Result<OffloadChange> {
    let mut arguments = vec!["-K", device];
    for (feature, on) in wanted {
        arguments.extend([feature.name, if *on { "on" } else { "off" }]);
    }
    let listing = namespace.enter_thread(|| {
        switch(&arguments);
        ETHTOOL.run(&["-k", device])
    })??;
    Ok(sort_by_outcome(wanted, &listing))
}

/// Switches what can be switched. Failures are ignored: what counts is the
/// state listed afterwards, and without the tool or the device that fails too.
fn switch(arguments: &[&str]) {
    if ETHTOOL.run(arguments).is_ok() {
        return;
    }
    // One unknown name makes ethtool refuse the whole line: one by one, then.
    let (target, features) = arguments.split_at(2);
    for feature in features.chunks(2) {
        let _ = ETHTOOL.run(&[target, feature].concat());
    }
}

fn wanted(offloads: Offloads) -> Vec<(&'static Feature, bool)> {
    let tx = TX.iter().map(|feature| (feature, offloads.tx));
    let variants = GRO_VARIANTS.iter().map(|feature| (feature, false));
    tx.chain([(&GRO, offloads.gro)])
        .chain(variants.filter(|_| !offloads.gro))
        .collect()
}

fn sort_by_outcome(wanted: &[(&'static Feature, bool)], listing: &str) -> OffloadChange {
    let mut change = OffloadChange::default();
    for (feature, on) in wanted {
        if state(listing, feature.listed) == Some(*on) {
            change.applied.push(feature.name);
        } else {
            change.unavailable.push(feature.name);
        }
    }
    change
}

/// Whether a feature is on, from lines such as `tx-gso-list: off [fixed]`.
fn state(listing: &str, listed: &str) -> Option<bool> {
    listing.lines().find_map(|line| {
        let value = line.trim().strip_prefix(listed)?.strip_prefix(':')?;
        match value.split_whitespace().next()? {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    #![allow(non_snake_case)]

    use super::*;

    const LISTING: &str = "Features for x-a:\n\
        tcp-segmentation-offload: on\n\
        \ttx-tcp-segmentation: on\n\
        generic-segmentation-offload: off [requested on]\n\
        generic-receive-offload: off\n\
        rx-gro-list: off [fixed]\n";

    #[test]
    fn state__reads_the_listing() {
        assert_eq!(state(LISTING, "tcp-segmentation-offload"), Some(true));
        assert_eq!(state(LISTING, "tx-tcp-segmentation"), Some(true));
        assert_eq!(state(LISTING, "generic-segmentation-offload"), Some(false));
        assert_eq!(state(LISTING, "rx-gro-list"), Some(false));
        assert_eq!(state(LISTING, "rx-gro"), None);
    }

    #[test]
    fn sort_by_outcome__tells_applied_from_unavailable() {
        let offloads = Offloads {
            tx: true,
            gro: false,
        };
        let change = sort_by_outcome(&wanted(offloads), LISTING);
        assert_eq!(change.applied, ["tso", "gro", "rx-gro-list"]);
        assert_eq!(
            change.unavailable,
            ["gso", "tx-udp-segmentation", "rx-udp-gro-forwarding"]
        );
    }

    #[test]
    fn wanted__gro_on_leaves_its_variants_alone() {
        let offloads = Offloads {
            tx: false,
            gro: true,
        };
        let names: Vec<_> = wanted(offloads)
            .iter()
            .map(|(f, on)| (f.name, *on))
            .collect();
        assert_eq!(
            names,
            [
                ("tso", false),
                ("gso", false),
                ("tx-udp-segmentation", false),
                ("gro", true)
            ]
        );
    }
}
