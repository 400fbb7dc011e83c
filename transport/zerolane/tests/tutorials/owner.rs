use zerolane::worker::Worker;
use zerolane::{ExportedRegion, Options, Region, Rights};

fn main() -> zerolane::Result<()> {
    let table = ExportedRegion::new(Region::anonymous(8192)?).expect("page-aligned");
    let worker = Worker::new()?.spawn()?;
    let endpoint = worker.listen("0.0.0.0:9182", Options::default()).wait()?;
    endpoint.export("table", &table, Rights::ALL).wait()?;
    loop {
        std::thread::park(); // the worker's thread serves the table
    }
}
