use zerolane::{Endpoint, Options};

fn main() -> zerolane::Result<()> {
    let mut endpoint = Endpoint::bind("0.0.0.0:9181", Options::default())?;
    let mut connection = endpoint.accept(None)?.expect("no timeout");
    let mut buffer = vec![0; 1 << 20];
    let length = connection.recv_into(&mut buffer)?; // one send fills one receive
    println!("{length} bytes");
    connection.close()
}
