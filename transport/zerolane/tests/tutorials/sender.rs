use zerolane::{Connection, Options};

fn main() -> zerolane::Result<()> {
    let mut connection = Connection::connect("192.0.2.1:9181", &Options::default())?;
    connection.send(&vec![7; 1 << 20])?; // returns when the peer has all of it
    connection.close()
}
