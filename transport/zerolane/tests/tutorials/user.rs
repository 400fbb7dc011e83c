use zerolane::{Connection, Options, Rights};

fn main() -> zerolane::Result<()> {
    let mut connection = Connection::connect("192.0.2.1:9182", &Options::default())?;
    let table = connection.open_region("table", Rights::ALL)?;
    connection.put(&table, 4096, b"placed in the owner's memory")?;
    let mut back = [0; 6];
    connection.get(&table, 4096, &mut back)?;
    let before = connection.fetch_add(&table, 0, 1)?;
    println!("{}, and {before} others came before", back.escape_ascii());
    connection.close()
}
