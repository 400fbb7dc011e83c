//! Serves a file as LUN 0 to every initiator that can reach the address: a target in a few lines.
//!
//! ```sh
//! cargo run --release -p zerolane-disk --example serve -- IMAGE 127.0.0.1:9183 [plain]
//! ```

use std::path::Path;
use std::sync::Arc;

use zerolane::{Options, Security};
use zerolane_block::store::FileStore;
use zerolane_block::{Disk, Identity, Lun};
use zerolane_disk::target::{Server, Settings};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, address, rest @ ..] = &arguments[..] else {
        return Err("IMAGE and an address are wanted".into());
    };
    let store = FileStore::open(Path::new(image), false)?;
    let disk = Disk::of(&store, 512, Identity::of_image(Path::new(image))?)?;
    let mut server = Server::new(Settings::default())?;
    let lun = Lun::new(0).ok_or("zero is a LUN")?;
    server.add_unit(lun, "disk0", disk, Arc::new(store))?;
    let security = match rest.iter().any(|it| it == "plain") {
        true => Security::plain(),
        false => Security::default(),
    };
    let options = Options::default().with(|it| it.security = security);
    server.listen(address.parse()?, options)?;
    Ok(server.serve(|| false, |news| eprintln!("{news:?}"))?)
}
