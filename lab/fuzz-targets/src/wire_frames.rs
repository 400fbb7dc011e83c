//! Fuzzes Data datagrams and trains of frames: no panic; an accepted datagram has the same meaning when sent again.

use zerolane_wire::{
    Flags, FrameFields, FrameHead, Frames, HEADER_LEN, Header, MAX_FRAME_HEAD_LEN, MAX_FRAMES,
    MAX_TRAIN_FRAMES, Op, Train,
};

/// See the first lines of this file.
pub fn run(datagram: &[u8]) {
    let Ok(header) = Header::parse(datagram) else {
        return;
    };
    let header = Header {
        op: Op::Data,
        flags: header.flags.with(Flags::FRAMES),
        ..header
    };
    let Ok(frames) = Frames::parse(&header, &datagram[HEADER_LEN..]) else {
        return;
    };
    let count = frames.len();
    let read: Vec<_> = frames.collect();
    let is_train = header.flags.contains(Flags::TRAIN);
    let most = if is_train {
        MAX_TRAIN_FRAMES
    } else {
        MAX_FRAMES
    };
    assert!(read.len() == count && (1..=most).contains(&count));
    let mut again = vec![];
    let mut before = None;
    for (it, payload) in &read {
        assert!(it.op == Op::Data && it.d_id >> 31 == 1 && !it.flags.contains(Flags::FRAMES));
        assert_eq!(it.d_key, header.d_key);
        // The first one has its place and identifier from the header that is made of it.
        let fields = FrameFields::of(it);
        let mut place = [0; MAX_FRAME_HEAD_LEN];
        let len = FrameHead::new(before, fields, payload.len() as u16).emit_into(&mut place);
        again.extend_from_slice(&place[..len]);
        again.extend_from_slice(payload);
        before = Some(fields);
    }
    let asks = header.flags.contains(Flags::SEND_STATE);
    let (first, _) = &read[0];
    let first = Header {
        flags: Flags::NONE.with_if(Flags::SEND_STATE, asks),
        ..*first
    };
    let (len, padding) = (again.len() as u32, 0);
    let shared = match is_train {
        true => Frames::train_header(&first, Train { len, padding }),
        false => Frames::header(&first),
    };
    let read_again = Frames::parse(&shared, &again).expect("what was accepted");
    assert!(read_again.eq(read.iter().copied()));
    assert!(again.len() <= datagram.len() - HEADER_LEN);
}
