use std::time::Instant;
use zerolane_cast::sim::{Group, Setup, run};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let nodes: u32 = a[1].parse().unwrap();
    let gb: u64 = a[2].parse().unwrap();
    let arity: u32 = a[3].parse().unwrap();
    let dying: f64 = a[4].parse().unwrap();
    let slow: f64 = a[5].parse().unwrap();
    let seed: u64 = a.get(6).map_or(1, |it| it.parse().unwrap());
    let mut setup = Setup::group(&Group {
        nodes,
        bytes: gb * 1_000_000_000,
        port: 1_250_000_000,
        arity,
        racks: None,
        dying,
        slow,
        slow_by: 10,
        seed,
    });
    if let Some(u) = std::env::var_os("UNTIL") {
        setup.until = setup.ideal().mul_f64(u.to_str().unwrap().parse().unwrap());
    }
    let t = Instant::now();
    let o = run(&setup);
    let mut ratios: Vec<f64> = setup
        .sound()
        .iter()
        .map(|n| {
            o.nodes[*n as usize].done.map_or(f64::INFINITY, |d| {
                d.as_secs_f64() / setup.ideal().as_secs_f64()
            })
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    let q = |p: f64| ratios[((ratios.len() - 1) as f64 * p) as usize];
    if std::env::var_os("TAIL").is_some() {
        for n in setup.sound() {
            let d = o.nodes[n as usize]
                .done
                .map_or(f64::INFINITY, |d| d.as_secs_f64());
            if d > 1.12 * setup.ideal().as_secs_f64() {
                println!("node {n}: {d:.2}");
            }
        }
        for (at, node, e) in &o.events {
            if !matches!(
                e,
                zerolane_cast::Event::Joined(_)
                    | zerolane_cast::Event::NodeDone(_)
                    | zerolane_cast::Event::Done
            ) {
                println!("{at:?} {node} {e:?}");
            }
        }
    }
    println!(
        "nodes {nodes} {gb} GB arity {arity} dying {dying} slow {slow} seed {seed}: median {:.3} p90 {:.3} p99 {:.3} max {:.3}; steps {} cpu {:.1}s peak {}",
        q(0.5),
        q(0.9),
        q(0.99),
        q(1.0),
        o.steps,
        t.elapsed().as_secs_f64(),
        o.nodes.iter().map(|n| n.peak_window).max().unwrap()
    );
}
