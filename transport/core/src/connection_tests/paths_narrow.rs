//! Tests that paths beyond the first adapt when they silently drop larger datagrams (RFC 8899, 4.3).

use super::paths::{S, link};
use super::paths_sim::PathsSim;
use super::seeds::each;
use crate::ExportAs;
use crate::*;
use netsim::Side;
use netsim::link::{LinkConfig, Loss};
use zerolane_wire::Rights;

/// The sizes were found so long ago that they may be doubted.
fn settled(links: &[LinkConfig], seed: u64) -> PathsSim {
    let mut sim = PathsSim::over(links, seed);
    sim.run_for(limits::VERIFY_INTERVAL);
    sim
}

/// Sets both directions of `path` to `config` from now on.
fn set_link(sim: &mut PathsSim, path: usize, config: LinkConfig) {
    for side in Side::BOTH {
        sim.nets[path].link_mut(side).set_config(config);
    }
}

fn mtu(sim: &mut PathsSim, path: usize) -> Option<u32> {
    let now = sim.now();
    sim.a.c().state_of(now, path).expect("there").mtu
}

fn received_by(sim: &mut PathsSim, path: usize) -> u64 {
    let now = sim.now();
    sim.b.c().state_of(now, path).expect("there").bytes_received
}

#[test]
fn path__beyond_the_first_that_shrinks_goes_on_with_what_passes() {
    each(3, |seed| {
        for (narrow, carried) in [(1_300, 1_280), (1_100, 1_100), (600, 576)] {
            let links = [link(5, 100), link(5, 100)];
            let mut sim = settled(&links, seed);
            let it = sim.post(1, 24 << 20);
            sim.run_for(S / 2);
            assert_eq!(mtu(&mut sim, 1), Some(1_500));
            let config = LinkConfig {
                mtu: Some(narrow),
                ..links[1]
            };
            set_link(&mut sim, 1, config);
            sim.finish(it);
            assert_eq!(mtu(&mut sim, 1), Some(carried), "MTU {narrow}");
            assert_eq!(mtu(&mut sim, 0), Some(1_500));
            let before = received_by(&mut sim, 1);
            let it = sim.post(2, 16 << 20);
            sim.finish(it);
            let by = received_by(&mut sim, 1) - before;
            assert!(by > 4 << 20, "MTU {narrow}: {by} bytes by it");
        }
    });
}

/// Loss says nothing about a size while nothing else is heard either; nor does random loss.
#[test]
fn path__beyond_the_first_that_was_down_or_loses_is_not_taken_for_narrow() {
    each(3, |seed| {
        for rtt in [5, 300] {
            let links = [link(5, 100), link(rtt, 100)];
            let mut sim = settled(&links, seed);
            let it = sim.post(1, 16 << 20);
            sim.run_for(S / 2);
            sim.set_up(1, false);
            sim.run_for(2 * S);
            sim.set_up(1, true);
            sim.finish(it);
            let lossy = LinkConfig {
                loss: Loss::Random(0.1),
                ..links[1]
            };
            set_link(&mut sim, 1, lossy);
            let it = sim.post(2, 8 << 20);
            sim.finish(it);
            sim.run_for(3 * S);
            assert_eq!(mtu(&mut sim, 1), Some(1_500), "{rtt} ms");
            assert_eq!(sim.a.c().path_life(1), PathLife::Usable, "{rtt} ms");
        }
    });
}

/// Short operations use the control path, which is the narrow one here.
#[test]
fn path_of_control__that_shrinks_leaves_operations_to_another() {
    let links = [link(20, 100), link(5, 100)];
    let mut sim = settled(&links, 1);
    let config = LinkConfig {
        mtu: Some(700),
        ..links[1]
    };
    set_link(&mut sim, 1, config);
    let target = sim.b.empty(1_000);
    let now = sim.now();
    let (handle, mx) = sim
        .b
        .c()
        .export(target, Rights::ALL, ExportAs::Handle)
        .expect("room");
    let place = RemotePlace {
        handle,
        mx,
        address: 0,
    };
    let source = sim.a.filled(7, 1_000);
    let flags = WorkFlags::default();
    let put = sim
        .a
        .c()
        .post_put(now, place, source, None, flags)
        .expect("posted");
    sim.run_until(10 * S, |sim| sim.a.outcomes(put) > 0);
    assert_eq!(sim.a.failed(put), None);
    assert!(sim.b.holds(target, 7, 1_000));
}
