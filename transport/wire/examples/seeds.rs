//! Writes the seeds of the fuzz target `wire_packet`: one file for each form of each operation.
//!
//! `cargo run -p zerolane-wire --example seeds -- fuzz/corpus/wire_packet`

#[path = "../tests/specimens/mod.rs"]
mod specimens;

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let Some(folder) = env::args_os().nth(1).map(PathBuf::from) else {
        return Err(io::Error::other("usage: seeds FOLDER"));
    };
    fs::create_dir_all(&folder)?;
    for (name, packet) in specimens::packets() {
        let (bytes, len) = packet.emit();
        fs::write(folder.join(name), &bytes[..len])?;
    }
    let (announcement, offset) = specimens::eager();
    let eager = announcement.eager(offset).emit();
    fs::write(folder.join("data_eager"), eager)?;
    fs::write(folder.join("data"), specimens::data().emit())
}
