use zerolane::{Connection, Options};

fn main() -> zerolane::Result<()> {
    let mut connection = Connection::connect("192.0.2.1:9183", &Options::default())?;
    connection.send(b"hello")?;
    let mut answer = [0; 4096];
    let length = connection.recv_into(&mut answer)?;
    println!("{}", answer[..length].escape_ascii());
    connection.close()
}
