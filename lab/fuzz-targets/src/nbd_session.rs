//! Fuzzes an NBD session with a client's bytes, whole and in pieces: no panic, the same events and answers for both, no
//! accepted request beyond the end of the disk, no answers out of proportion.

use zerolane_nbd::session::{Errno, Event, Export, Offence, Session};

const BYTES: u64 = 1 << 20;

/// Events, answers and the end.
type Said = (Vec<Event>, Vec<u8>, Option<Offence>);

fn said(input: &[u8], piece: usize, read_only: bool) -> Said {
    let export = Export {
        bytes: BYTES,
        block_bytes: 512,
        read_only,
        thin: true,
    };
    let (mut out, mut events) = (Vec::new(), Vec::new());
    let mut session = Session::new(export, &mut out);
    let (mut from, mut end, mut payload) = (0, 0, 0);
    while end < input.len() {
        end = (end + piece).min(input.len());
        loop {
            let skipped = payload.min(end - from);
            (from, payload) = (from + skipped, payload - skipped);
            if payload > 0 {
                break;
            }
            let (taken, event) = match session.take(&input[from..end], &mut out) {
                Ok(it) => it,
                Err(offence) => return (events, out, Some(offence)),
            };
            from += taken;
            let Some(event) = event else {
                break;
            };
            events.push(event);
            if let Event::Request(request) = event {
                payload = request.payload() as usize;
                out.extend(session.done(&request));
                out.extend(session.failed(&request, Errno::IO));
                out.extend(session.extents(&request, &[(512, true)]));
                let end = request.at.checked_add(request.bytes.into());
                assert!(request.refused.is_some() || end.is_some_and(|it| it <= BYTES));
                assert!(request.refused.is_some() || !read_only || !request.writes());
            }
        }
    }
    (events, out, None)
}

/// See the first lines of this file.
pub fn run(input: &[u8]) {
    let Some((&first, rest)) = input.split_first() else {
        return;
    };
    let read_only = first & 1 == 1;
    let whole = said(rest, rest.len().max(1), read_only);
    assert!(whole.1.len() <= 200 + 10 * rest.len());
    let pieces = said(rest, usize::from(first >> 1) + 1, read_only);
    assert_eq!(whole, pieces);
}
