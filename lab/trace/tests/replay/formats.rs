//! Tests that capture files of every format are read, also truncated or damaged, and that other files are refused.

use crate::support::{Capture, MSS, ends, traced};
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use zerolane_trace::{Error, Format, Input, Options, Report, Trace};

/// Two pages of one flow and a few packets of another: every kind of count occurs.
fn sample() -> Capture {
    let mut capture = Capture::default();
    let (data, other) = (ends(1, 9), ends(2, 9));
    capture.syn(data, 99);
    for index in [0, 1, 2, 4, 3, 5] {
        capture.tcp(data, 100 + index * MSS, MSS);
    }
    capture.udp(other, 40);
    for piece in Capture::fragments(other, 7, 3000) {
        capture.push(piece);
    }
    // What is recorded of a packet is its headers.
    capture.snapped(66)
}

/// A capture in all formats that are read: file name and content.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let capture = sample();
    vec![
        ("micro-le.pcap", capture.pcap_as(false, false, 1)),
        ("micro-be.pcap", capture.pcap_as(true, false, 1)),
        ("nano-le.pcap", capture.pcap_as(false, true, 1)),
        ("nano-be.pcap", capture.pcap_as(true, true, 1)),
        ("micro.pcapng", capture.pcapng(&[(1, 6)])),
        ("nano.pcapng", capture.pcapng(&[(1, 9)])),
        (
            "two-clocks.pcapng",
            capture.pcapng(&[(1, 6), (1, 0x80 | 30)]),
        ),
        (
            "packet-blocks-le.pcapng",
            capture.pcapng_of_packet_blocks(&[(1, 6), (1, 9)], false),
        ),
        (
            "packet-blocks-be.pcapng",
            capture.pcapng_of_packet_blocks(&[(1, 6), (1, 9)], true),
        ),
    ]
}

/// A report without the names and kinds of its files.
fn without_inputs(mut report: Report) -> Report {
    report.inputs.clear();
    report
}

#[test]
fn read__the_same_of_every_format() {
    let expected = without_inputs(traced(&files()[0].1));
    assert_eq!(expected.seen.packets, 11);
    assert_eq!(expected.sum.rules.pages.potential, 2);
    for (name, file) in files() {
        let report = traced(&file);
        let kind = match name.ends_with("ng") {
            true => Format::PcapNg,
            false => Format::Pcap,
        };
        assert_eq!(
            report.inputs,
            [Input {
                name: "made".to_owned(),
                format: kind,
                packets: 11,
                ended: None,
            }]
        );
        let mut report = without_inputs(report);
        // Not every clock has whole microseconds.
        assert!(
            (report.seen.seconds - expected.seen.seconds).abs() < 1e-8,
            "{name}"
        );
        report.seen.seconds = expected.seen.seconds;
        assert_eq!(report, expected, "{name}");
    }
}

#[test]
fn read__of_many_times_what_is_buffered() {
    // Frames that fill the buffer with nothing left over, each time: more of them than it may ever grow to.
    let mut capture = Capture::default();
    (0..17_000).for_each(|_| capture.udp(ends(1, 9), 2048 - 16 - 42));
    let mut fewer = capture.clone();
    fewer.frames.truncate(3_000);
    for (file, packets) in [(capture.pcap(), 17_000), (fewer.pcapng(&[(1, 9)]), 3_000)] {
        let report = traced(&file);
        assert_eq!(report.inputs[0].ended, None);
        assert_eq!(report.seen.packets, packets);
        assert_eq!(report.sum.rules.pairs.hits, packets - 1);
    }
}

#[test]
fn files__committed_are_those_made_here() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    let mut bytes = 0;
    for (name, made) in files() {
        let path = directory.join(name);
        if std::env::var_os("ZEROLANE_WRITE_CAPTURES").is_some() {
            fs::write(&path, &made).unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), made, "{name}");
        bytes += made.len();
    }
    assert!(bytes < 20 << 10, "{bytes}");
}

#[test]
fn several_files__go_on_with_one_another() {
    let mut capture = Capture::default();
    for index in 0..12 {
        capture.tcp(ends(1, 9), index * MSS, MSS);
    }
    let mut rest = capture.clone();
    rest.frames.drain(..5);
    let mut first = capture.clone();
    first.frames.truncate(5);
    let mut trace = Trace::new(&Options::default());
    trace.read("first", &first.pcap()[..]).unwrap();
    trace.read("rest", &rest.pcapng(&[(1, 9)])[..]).unwrap();
    let both = trace.finish();
    assert_eq!(
        both.inputs.iter().map(|it| it.packets).collect::<Vec<_>>(),
        [5, 7]
    );
    assert_eq!(
        without_inputs(both),
        without_inputs(traced(&capture.pcap()))
    );
}

#[test]
fn cut_off__anywhere_is_told_and_what_came_before_is_counted() {
    for (name, file) in files() {
        let whole = traced(&file).seen.packets;
        let mut most = 0;
        let mut told = 0;
        for len in 0..file.len() {
            let mut trace = Trace::new(&Options::default());
            let Ok(()) = trace.read(name, &file[..len]) else {
                assert_eq!(most, 0, "{name}: an error behind packets, at {len}");
                continue;
            };
            let report = trace.finish();
            let packets = report.seen.packets;
            assert!(
                packets >= most && packets < whole,
                "{name}: {packets} of {len} bytes"
            );
            most = packets;
            told += u64::from(report.inputs[0].ended.is_some());
        }
        assert_eq!(most, whole - 1, "{name}");
        // All but those that end where a packet does, or a block without one.
        assert!(told > file.len() as u64 - 60, "{name}: {told}");
    }
    let (_, file) = &files()[0];
    let report = traced(&file[..file.len() - 1]);
    let at = file.len() - 16 - 66;
    let told = format!("cut off in the packet that begins at byte {at}");
    assert_eq!(report.inputs[0].ended, Some(told));
}

#[test]
fn damaged__any_byte_is_no_panic_and_no_endless_loop() {
    for (_, file) in files() {
        for at in 0..file.len() {
            for value in [0, 0x7f, 0xff] {
                let mut damaged = file.clone();
                damaged[at] = value;
                let mut trace = Trace::new(&Options::default());
                let _ = trace.read("damaged", &damaged[..]);
                assert!(trace.finish().seen.packets < 100);
            }
        }
    }
}

#[test]
fn damaged__a_length_of_4_GiB_takes_no_memory() {
    let mut file = sample().pcap();
    let end = file.len();
    file.extend([[0; 4], [0; 4], [0xff; 4], [0xff; 4]].concat());
    // More than would be buffered.
    let input = file.chain(io::repeat(7).take(64 << 20));
    let mut trace = Trace::new(&Options::default());
    trace.read("long", input).unwrap();
    let report = trace.finish();
    assert_eq!(report.seen.packets, 11);
    let told = format!("damaged at byte {end}");
    assert_eq!(report.inputs[0].ended, Some(told));
}

#[test]
fn damaged__a_block_shorter_than_its_frame() {
    let file = sample().pcapng(&[(1, 9)]);
    let told = format!("damaged at byte {}", file.len());
    // Every type of the format, custom and unknown ones, process information.
    let types = (1..=12).chain([0x0a0d_0d0a, 0xbad, 0x4000_0bad, 0x8000_0001, 0xffff_ffff]);
    for kind in types {
        for length in 0..12_u32 {
            let mut file = file.clone();
            file.extend([u32::to_le_bytes(kind), length.to_le_bytes()].concat());
            file.resize(file.len() + 64, 0);
            let report = traced(&file);
            let ended = (report.inputs[0].ended.as_ref(), report.seen.packets);
            assert_eq!(ended, (Some(&told), 11), "{kind:#x} of {length}");
        }
    }
}

#[test]
fn cut_off__in_a_packet_that_is_longer_than_the_buffer() {
    let mut file = sample().pcap();
    let end = file.len();
    file.extend([[0; 4], [0; 4], 200_000_u32.to_le_bytes(), [0; 4]].concat());
    for more in [0, 10, 150_000] {
        let mut file = file.clone();
        file.resize(file.len() + more, 0);
        let told = format!("cut off in the packet that begins at byte {end}");
        assert_eq!(traced(&file).inputs[0].ended, Some(told), "{more}");
    }
    file.resize(file.len() + 200_000, 0);
    let report = traced(&file);
    assert_eq!((&report.inputs[0].ended, report.seen.packets), (&None, 12));
}

/// A file whose first bytes are those of `self`.
trait ChainBytes {
    fn chain(self, rest: impl Read) -> impl Read;
}

impl ChainBytes for Vec<u8> {
    fn chain(self, rest: impl Read) -> impl Read {
        io::Cursor::new(self).chain(rest)
    }
}

#[test]
fn no_capture__is_refused_by_what_it_is() {
    let refused = |bytes: &[u8]| {
        let mut trace = Trace::new(&Options::default());
        trace.read("other", bytes).unwrap_err().to_string()
    };
    for (bytes, words) in [
        (&b""[..], "not a capture: it is empty"),
        (
            b"\x1f\x8b\x08\0",
            "not a capture: compressed by gzip: decompress it with `zcat`, and read `-` here",
        ),
        (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
        (b"PK\x03\x04", "zip"),
        (b"snoop\0\0\0\0\0\0\x02", "snoop"),
        (b"#!/bin/sh\n", "not a capture: it is text"),
        (
            &[0, 1, 2, 3, 4],
            "not a capture: it begins with 00 01 02 03, which is neither pcap nor pcapng",
        ),
        (
            &[0xd4, 0xc3, 0xb2, 0xa1, 2, 0],
            "a capture whose header is cut off or damaged",
        ),
        (&[0xa1, 0xb2, 0xcd, 0x34, 2, 0], "neither pcap nor pcapng"),
    ] {
        let said = refused(bytes);
        assert!(said.contains(words), "{said}");
    }
}

/// Gives a byte at a time, then fails.
struct Failing<'a>(&'a [u8]);

impl Read for Failing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.split_first() {
            Some((&byte, rest)) => {
                buffer[0] = byte;
                self.0 = rest;
                Ok(1)
            }
            None => Err(io::Error::other("no more")),
        }
    }
}

#[test]
fn read__by_bytes_and_up_to_an_error() {
    for (name, file) in files() {
        let mut trace = Trace::new(&Options::default());
        let failed = trace.read(name, Failing(&file));
        assert!(matches!(failed, Err(Error::Io(_))), "{name}: {failed:?}");
        assert_eq!(trace.finish().seen.packets, 11, "{name}");
    }
}
