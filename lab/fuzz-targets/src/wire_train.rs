//! Fuzzes the assembler of trains with pieces: no panic, a train lies in front of its header, and room for another remains.

use zerolane_wire::{Assembled, Assembler, Flags, HEADER_LEN, Header, MAX_TRAIN, Op, Train};

const SEAL: usize = 24;
const MESSAGE: usize = 65_536;
const KEY: u32 = 7;

/// The next `N` bytes, zeros behind the end.
fn take<const N: usize>(input: &mut &[u8]) -> [u8; N] {
    let mut taken = [0; N];
    let len = N.min(input.len());
    let (head, rest) = input.split_at(len);
    taken[..len].copy_from_slice(head);
    *input = rest;
    taken
}

/// See the first lines of this file.
pub fn run(input: &[u8]) {
    let mut input = input;
    let mut assembler = Assembler::default();
    let mut buffer = vec![0; Assembler::BUFFER];
    while !input.is_empty() {
        let start = assembler.filled();
        assert!(start + MAX_TRAIN as usize <= buffer.len());
        let room = (buffer.len() - start).min(MESSAGE);
        let len = usize::from(u16::from_be_bytes(take(&mut input))).min(room);
        let datagram = usize::from(u16::from_be_bytes(take(&mut input)));
        let [kind] = take(&mut input);
        let end = start + len;
        buffer[start..end].fill(kind);
        // A header at the end of what comes: of a train, of one with anything set, or what the input says.
        if kind & 3 > 0 && len >= HEADER_LEN + SEAL {
            let train = Train {
                len: u32::from_be_bytes(take(&mut input)) >> (kind >> 3),
                padding: u16::from(kind & 4) >> 2,
            };
            let header = train.header(Header {
                d_key: KEY,
                ..Header::new(Op::Data)
            });
            let header = match kind & 3 {
                1 => header.emit(),
                2 => {
                    let bits = u16::from_be_bytes(take(&mut input));
                    let all = Flags::EAGER.with(Flags::FRAMES).with(Flags::MEMORY);
                    let flags = header.flags.with_if(all, bits & 1 > 0);
                    let (param, d_key) = (bits >> 8, KEY + u32::from(bits & 2));
                    Header {
                        flags,
                        param,
                        d_key,
                        ..header
                    }
                    .emit()
                }
                _ => take(&mut input),
            };
            buffer[end - HEADER_LEN - SEAL..][..HEADER_LEN].copy_from_slice(&header);
        }
        let owns = |header: &Header| header.d_key == KEY;
        match assembler.take(&buffer, (len, datagram), SEAL, owns) {
            Assembled::Train {
                header, payload, ..
            } => {
                let train = Train::of(&header).unwrap().expect("a train");
                assert!(owns(&header) && !payload.is_empty());
                assert_eq!(payload.len(), train.len as usize);
                let behind = payload.end + usize::from(train.padding);
                assert_eq!(behind + HEADER_LEN + SEAL, end);
                assert_eq!(buffer[behind..][..HEADER_LEN], header.emit());
                assert_eq!(assembler.filled(), 0);
            }
            // A shorter one at its end was left out.
            Assembled::Part => assert_eq!(assembler.filled(), end - len % datagram),
            Assembled::Incomplete => assert_eq!(assembler.filled(), 0),
            Assembled::Stray => assert_eq!(assembler.filled(), start),
        }
    }
}
