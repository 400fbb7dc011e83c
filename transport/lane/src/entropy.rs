//! Draws the random numbers of a new connection.

use std::io;
use zerolane_core::Entropy;

/// Most keys drawn for one connection: thousands of the 2^32 keys are taken.
const MAX_DRAWS: u32 = 16;

/// Draws the keys and the port of a connection.
///
/// # Errors
/// The system gives no random numbers.
pub(crate) fn draw() -> io::Result<Entropy> {
    let mut bytes = [0; 10];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    let [a, b, c, d, e, f, g, h, i, j] = bytes;
    Ok(Entropy {
        // Frames of neighbour discovery have 0 in its place.
        key: u32::from_le_bytes([a, b, c, d]).max(1),
        sync: u32::from_le_bytes([e, f, g, h]),
        port: u16::from_le_bytes([i, j]).max(1),
    })
}

/// The result of `draw`, with a key that is not `taken` by another connection.
///
/// # Errors
/// Those of `draw`; or it keeps returning keys in use.
pub(crate) fn distinct(
    mut draw: impl FnMut() -> io::Result<Entropy>,
    taken: impl Fn(u32) -> bool,
) -> io::Result<Entropy> {
    for _ in 0..MAX_DRAWS {
        let drawn = draw()?;
        if !taken(drawn.key) {
            return Ok(drawn);
        }
    }
    Err(io::Error::other("the system's random numbers repeat"))
}
