//! Tests that operations in one datagram are carried out even if they land where other bytes were forecast.

use super::*;
use zerolane_core::ExportAs;
use zerolane_core::RemotePlace;

fn bytes_of(n: usize) -> Vec<u8> {
    content(64, 100 + n)
}

fn control_of(n: usize) -> Vec<u8> {
    content(32, 200 + n)
}

/// Puts 0 to 7, with messages between them, in one datagram.
fn send_frames(a: &mut End, to: RemotePlace) {
    let flags = WorkFlags::default();
    for n in 0..8 {
        let address = to.address + 128 * n as u64;
        let put = WorkRequest::Put {
            place: RemotePlace { address, ..to },
            immediate: None,
            flags,
        };
        a.post_inline(put, Report::default(), &bytes_of(n))
            .expect("room");
        if n % 2 == 0 {
            a.post_message(&control_of(n), None, flags, Report::default())
                .expect("room");
        }
    }
    a.turn(Step::Whole).expect("sent");
}

/// They come while a long get is expected. They are carried out from where they landed, and the get is intact.
#[test]
fn frames__that_land_where_something_else_was_forecast_are_done() {
    for options in [plain(), sealed()] {
        let (mut a, mut b) = join(None, &options);
        let theirs = ExportedRegion::new(region(&content(SIZE, 5))).expect("aligned");
        let theirs = a
            .export(theirs.exporting(), Rights::ALL, ExportAs::Handle)
            .expect("exported");
        let ours = Region::anonymous(1 << 16).expect("memory");
        let ours = ExportedRegion::new(ours).expect("aligned");
        let exported = b
            .export(ours.exporting(), Rights::ALL, ExportAs::Handle)
            .expect("exported");
        for _ in 0..4 {
            b.post_message_receive(Report::default(), None)
                .expect("posted");
        }
        // Expected from now on, although it is not requested before the next turn.
        let place = Region::anonymous(SIZE).expect("memory");
        let start = place.as_ptr();
        let get = WorkRequest::Get {
            place: theirs.start,
            flags: WorkFlags::default(),
        };
        b.post_target(get, Report::default(), place)
            .expect("posted");
        send_frames(&mut a, exported.start);
        while !b.has_completion() {
            b.turn(Step::Whole).expect("received");
        }
        // SAFETY: the region belongs to the driver until it completes, and is written in the driver's turns only.
        let landed = unsafe { std::slice::from_raw_parts(start, 1000) };
        // All of them: a second datagram would have overwritten the first one's landing.
        for n in 0..8 {
            let there = landed.windows(64).any(|it| it == bytes_of(n));
            assert!(there, "put {n} did not land where the get was forecast");
        }
        for n in [0, 2, 4, 6] {
            let message = b.next_completion().expect("a message");
            assert!(message.control[..] == control_of(n), "control {n}");
        }
        for n in 0..8 {
            let mut there = [0; 64];
            ours.read(n * 128, &mut there);
            assert!(there[..] == bytes_of(n), "put {n}");
        }
        drive(&mut a, &mut b, |_, b| b.has_completion());
        verify(b.next_completion(), &content(SIZE, 5));
    }
}
