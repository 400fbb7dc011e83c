//! Defines colours and fonts. While drawing, each colour is a number; in the page it is a variable of the style sheet.

use plotters::style::{FontDesc, FontFamily, FontStyle, RGBColor, TextStyle};

/// Colours of series in the style sheet.
pub(super) const COLOURS: u8 = 10;

/// The size of all text, in units of the `viewBox`.
pub(super) const FONT: f64 = 14.0;

/// How wide a letter is on average, for the room that labels need.
pub(super) const LETTER: f64 = 8.2;

/// Text and axes.
pub(super) const INK: RGBColor = RGBColor(1, 1, 0xf0);
/// Lines behind everything.
pub(super) const GRID: RGBColor = RGBColor(1, 1, 0xf1);

/// The colour of a series by its number.
pub(super) fn colour(series: usize) -> RGBColor {
    RGBColor(1, 1, (series % usize::from(COLOURS)) as u8)
}

pub(super) fn text() -> TextStyle<'static> {
    let font = FontDesc::new(FontFamily::SansSerif, FONT, FontStyle::Normal);
    TextStyle::from(font).color(&INK)
}

/// The image with variables in place of the numbers.
pub(super) fn by_style_sheet(image: &str) -> String {
    let mut image = image
        .replace("#0101F0", "var(--ink)")
        .replace("#0101F1", "var(--grid)");
    for series in 0..COLOURS {
        image = image.replace(&format!("#0101{series:02X}"), &format!("var(--s{series})"));
    }
    // What is the default anyway.
    for default in [
        " opacity=\"1\"",
        " stroke=\"none\" stroke-width=\"1\"",
        " stroke=\"none\"",
    ] {
        image = image.replace(default, "");
    }
    // Plotters' size of a font, with fewer digits.
    let size = FONT / 1.24;
    image = image.replace(&size.to_string(), &format!("{size:.1}"));
    // The page's own font.
    image.replace(" font-family=\"sans-serif\"", "")
}
