//! Answers Prometheus over HTTP: one request a connection, one connection at a time, with limits on size and time.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Most bytes of a request. Prometheus sends a few hundred.
const REQUEST_BYTES: usize = 4096;
/// Time for a client to send its request and read the answer, while other clients wait.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause between attempts to accept if the system has no descriptor or memory left.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers GET of `/metrics` with `text`. Never returns.
pub(super) fn serve(listener: &TcpListener, text: &dyn Fn() -> String) {
    loop {
        match listener.accept() {
            // A client that disconnects gets no answer.
            Ok((client, _)) => drop(answer(client, text)),
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn answer(mut client: TcpStream, text: &dyn Fn() -> String) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let request = read_request(&mut client, deadline)?;
    let (status, body) = match first_line(&request) {
        Some(("GET", "/metrics")) => ("200 OK", text()),
        Some(("GET", _)) => ("404 Not Found", "There is only /metrics here.\n".into()),
        Some(_) => ("405 Method Not Allowed", "Only GET.\n".into()),
        None => ("400 Bad Request", "Not a request of HTTP.\n".into()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    // The answer fits the socket's buffer, unless the client has not even read its beginning.
    client.set_write_timeout(Some(PATIENCE))?;
    client.write_all((head + &body).as_bytes())
}

/// Reads up to the empty line, or up to the limit.
fn read_request(client: &mut TcpStream, deadline: Instant) -> io::Result<Vec<u8>> {
    let mut request = vec![0; REQUEST_BYTES];
    let mut len = 0;
    while len < REQUEST_BYTES && !request[..len].windows(4).any(|it| it == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        match client.read(&mut request[len..])? {
            0 => break,
            more => len += more,
        }
    }
    request.truncate(len);
    Ok(request)
}

/// The method and path of a request; `None` if it is malformed or too long.
fn first_line(request: &[u8]) -> Option<(&str, &str)> {
    let end = request.windows(4).position(|it| it == b"\r\n\r\n")?;
    let line = std::str::from_utf8(&request[..end]).ok()?.lines().next()?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let is_http = words.next()?.starts_with("HTTP/1.") && words.next().is_none();
    let path = target.split('?').next()?;
    is_http.then_some((method, path))
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;

    #[test]
    fn first_line__of_requests_and_of_anything_else() {
        for (request, expected) in [
            (
                "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
                Some(("GET", "/metrics")),
            ),
            (
                "GET /metrics?a=b HTTP/1.0\r\n\r\n",
                Some(("GET", "/metrics")),
            ),
            ("POST / HTTP/1.1\r\n\r\n", Some(("POST", "/"))),
            ("GET /metrics HTTP/1.1\r\n", None),
            ("GET /metrics\r\n\r\n", None),
            ("GET /metrics HTTP/2\r\n\r\n", None),
            ("GET / HTTP/1.1 x\r\n\r\n", None),
            ("\r\n\r\n", None),
            ("", None),
        ] {
            assert_eq!(first_line(request.as_bytes()), expected, "{request:?}");
        }
        assert_eq!(first_line(b"\xff\xff / HTTP/1.1\r\n\r\n"), None);
    }
}
