//! Measures repeated puts of one buffer, for comparison with `bindings/python/examples/put_rate.py`.
//!
//! ```sh
//! put_rate own BYTES             # says where it listens; serves connections one after the other
//! put_rate put ADDRESS BYTES N   # puts BYTES N times; says Gb/s
//! ```

use std::time::{Duration, Instant};
use zerolane::{Connection, Endpoint, ExportedRegion, Options, Region, Rights};

/// Puts before the clock starts: pages touched, window open.
const WARM_UP: usize = 3;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["own", bytes] => own(bytes.parse()?),
        ["put", address, bytes, count] => put(address, bytes.parse()?, count.parse()?),
        _ => Err("see the top of this program".into()),
    }
}

/// Owns the memory: serves one connection after another, until none has come for a while.
fn own(bytes: usize) -> Outcome<()> {
    let mut endpoint = Endpoint::bind("127.0.0.1:0", Options::default())?;
    println!("{}", endpoint.local_addr());
    let exported = ExportedRegion::new(Region::anonymous(bytes)?);
    let exported = exported.map_err(|_| "regions are page-aligned")?;
    while let Some(mut connection) = endpoint.accept(Some(Duration::from_secs(20)))? {
        connection.export_named("target", &exported, Rights::WRITE)?;
        while connection.wait(None).is_ok() {}
    }
    Ok(())
}

fn put(address: &str, bytes: usize, count: usize) -> Outcome<()> {
    let mut connection = Connection::connect(address, &Options::default())?;
    let target = connection.open_region("target", Rights::WRITE)?;
    let mut data = Region::anonymous(bytes)?;
    data.fill(7);
    for _ in 0..WARM_UP {
        connection.put(&target, 0, &data)?;
    }
    let start = Instant::now();
    for _ in 0..count {
        connection.put(&target, 0, &data)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("{:.3}", (bytes * count) as f64 * 8.0 / seconds / 1e9);
    connection.close()?;
    Ok(())
}
