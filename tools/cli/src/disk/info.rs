//! Implements `zerolane disk info`: describes an image as a disk, or a disk of a host.

use std::path::PathBuf;

use anyhow::{Context, Result};
use indicatif::HumanBytes;

use super::image::Image;
use super::list::{as_json, line};
use super::remote::{Place, open};
use crate::console;
use crate::security::ClientArgs;

/// Bytes of a line of hexadecimal digits.
const LINE: usize = 32;

/// Arguments of `zerolane disk info`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
The image is opened for reading and nothing is changed. Its identity follows from this machine's identifier and the \
path without symbolic links, or from --serial alone: give it one if the image may move, so that initiators know it again.")]
pub(super) struct Args {
    /// A regular file or a block device, or a disk of a host: HOST[:PORT]/LUN. An argument that could be either is the
    /// file
    #[arg(value_name = "IMAGE|HOST/LUN")]
    image: PathBuf,
    /// Length of a logical block, bytes: 512, 1024, 2048 or 4096
    /// [default: 512, or a device's own if that is more]
    #[arg(long, value_name = "BYTES")]
    block_size: Option<u32>,
    /// Name that the identity is derived from, instead of machine and path
    #[arg(long, value_name = "NAME")]
    serial: Option<String>,
    /// Show this many allocated ranges, from the first
    #[arg(long, default_value_t = 16, value_name = "N")]
    ranges: usize,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    security: ClientArgs,
}

/// Prints the description.
pub(super) fn run(args: &Args) -> Result<()> {
    let place = args.image.to_str().and_then(|it| it.parse().ok());
    if let Some(place) = place.filter(|_| !args.image.exists()) {
        return of_host(&place, args);
    }
    let serial = args.serial.as_deref();
    let image = Image::of(&args.image, args.block_size, serial, args.ranges);
    let image = image.with_context(|| args.image.display().to_string())?;
    if args.json {
        console::say(serde_json::to_string_pretty(&image)?)
    } else {
        console::say(shown(&image))
    }
}

fn of_host(place: &Place, args: &Args) -> Result<()> {
    let queue = open(place, &args.security, Default::default())?;
    match args.json {
        true => console::say(as_json(queue.unit())),
        false => console::say(line(queue.unit())),
    }
}

fn shown(image: &Image) -> String {
    let mut lines = vec![
        format!(
            "{}, {} bytes ({})",
            image.kind,
            image.bytes,
            HumanBytes(image.bytes)
        ),
        format!(
            "{} of {} bytes",
            console::counted(image.blocks, "block"),
            image.block_bytes
        ),
    ];
    if image.unreachable_bytes > 0 {
        let left = console::counted(image.unreachable_bytes, "byte");
        lines.push(format!(
            "{left} behind the last whole block cannot be reached: disk serve needs --ignore-tail or --read-only for it"
        ));
    }
    let mapped = HumanBytes(image.mapped_bytes);
    lines.push(format!(
        "{mapped} are mapped, in {}",
        console::counted(image.mapped_ranges, "range")
    ));
    for range in &image.ranges {
        lines.push(format!("  from {} on, {} bytes", range.offset, range.bytes));
    }
    let left = image.mapped_ranges - image.ranges.len() as u64;
    if left > 0 {
        lines.push(format!("  and {left} more: --ranges shows more"));
    }
    let (serial, naa, from) = (&image.serial, &image.naa, image.identity_from);
    lines.push(format!("serial number {serial}, NAA {naa}, from {from}"));
    lines.push("\nINQUIRY".to_owned());
    lines.extend(digits(&image.inquiry));
    for page in &image.vital_product_data {
        lines.push(format!("INQUIRY, page {}h, {}", page.page, page.name));
        lines.extend(digits(&page.data));
    }
    lines.join("\n")
}

/// Splits hexadecimal digits into lines, byte by byte.
fn digits(text: &str) -> impl Iterator<Item = String> {
    let bytes: Vec<&str> = text
        .as_bytes()
        .chunks(2)
        .filter_map(|it| str::from_utf8(it).ok())
        .collect();
    let lines: Vec<String> = bytes
        .chunks(LINE)
        .map(|line| format!("  {}", line.join(" ")))
        .collect();
    lines.into_iter()
}
