//! Tests that bytes posted inline may change at once, and leave no completion if they are not signalled.

use crate::content;
use crate::drive::{PATIENCE, both};
use crate::path::Pair;
use std::time::{Duration, Instant};
use zerolane::request::{MessageInline, Output, PutInline, ReceiveMessage};
use zerolane::{ExportedRegion, Region, Rights};

/// Lengths of the payload of messages, and of puts.
const LENGTHS: [usize; 4] = [0, 1, 100, 256];
/// Lengths of the control of messages.
const CONTROLS: [usize; 3] = [0, 5, 128];
const ROUNDS: u64 = 8;

/// What is posted: seed, control and payload.
fn messages() -> impl Iterator<Item = (u64, usize, usize)> {
    let lengths = CONTROLS.map(|control| LENGTHS.map(|payload| (control, payload)));
    let lengths = lengths.concat();
    (0..ROUNDS).flat_map(move |round| {
        let seeds = round * lengths.len() as u64..;
        let all = seeds.zip(lengths.clone());
        all.map(|(seed, (control, payload))| (seed, control, payload))
    })
}

/// The bytes are overwritten as soon as they are posted. Every third request is signalled, the others leave nothing.
pub fn may_change_at_once(mut pair: Pair) {
    let memory = ExportedRegion::new(Region::anonymous(1 << 16).expect("memory"));
    let memory = memory.expect("page-aligned");
    let key = pair.b.export(&memory, Rights::WRITE).expect("exported");
    both(
        &mut pair,
        |a| {
            let (mut control, mut payload) = ([0; 128], [0; 256]);
            let mut signalled = 0;
            for (seed, control_len, payload_len) in messages() {
                let (control, payload) = (&mut control[..control_len], &mut payload[..payload_len]);
                content::fill(seed, control);
                content::fill(seed + 1, payload);
                let tells = seed.is_multiple_of(3);
                signalled += 2 * usize::from(tells);
                let put = PutInline::new(&key, seed * 256, &*payload).signalled(tells);
                a.post(put).expect("room");
                let message = MessageInline::new(&*control, &*payload).signalled(tells);
                a.post(message).expect("room");
                control.fill(0xff);
                payload.fill(0xff);
            }
            for _ in 0..signalled {
                let completion = a.wait(Some(PATIENCE)).expect("open").got().expect("over");
                completion.result.expect("done");
                let nothing = matches!(
                    completion.output,
                    Output::Put { memory: None } | Output::Message { payload: None }
                );
                assert!(nothing, "{completion:?}");
            }
            // The last messages are not signalled.
            let until = Instant::now() + PATIENCE;
            while a.in_flight() > 0 {
                assert!(Instant::now() < until, "{} never end", a.in_flight());
                let more = a.wait(Some(Duration::from_millis(1))).expect("open").got();
                assert!(more.is_none(), "{more:?}");
            }
        },
        |b| {
            for (seed, control_len, payload_len) in messages() {
                let place = Region::anonymous(256).expect("memory");
                let receive = ReceiveMessage::new().payload(place);
                b.post(receive).expect("room");
                let completion = b.wait(Some(PATIENCE)).expect("open").got();
                let completion = completion.expect("it came");
                assert_eq!(completion.result, Ok(payload_len), "{seed}");
                let control = completion.control().expect("a message");
                assert_eq!(control.len(), control_len);
                content::verify(seed, control);
                let payload = completion.into_region().expect("a region");
                content::verify(seed + 1, &payload[..payload_len]);
                // The put is before the message.
                let mut put = vec![0; payload_len];
                memory.read(seed as usize * 256, &mut put);
                content::verify(seed + 1, &put);
            }
        },
    );
}
