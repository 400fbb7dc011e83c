//! Charts as SVG that stands in the page: the page's style sheet decides the colours, so that one image serves light, dark
//! and print.
//!
//! | module | what it draws |
//! |---|---|
//! | `lines` | a line for each series |
//! | `bars` | bars side by side, and stacked ones |
//! | `scale` | the axis of values |
//! | `theme` | colours and fonts |

mod bars;
mod lines;
mod scale;
mod theme;

use anyhow::{Result, anyhow};

use crate::figure::{Chart, Kind};

/// Width of every chart, in the units of its `viewBox`. On a phone it is shown at about three quarters.
const WIDTH: u32 = 460;

/// A chart as an `<svg>` element with a title and a description.
///
/// # Errors
/// The library cannot draw it.
pub fn svg(chart: &Chart) -> Result<String> {
    let mut image = String::new();
    let height = match chart.kind {
        Kind::Lines => lines::HEIGHT,
        Kind::Bars => bars::height(chart),
        Kind::Stack => bars::stack_height(chart),
    };
    let backend = plotters::backend::SVGBackend::with_string(&mut image, (WIDTH, height));
    match chart.kind {
        Kind::Lines => lines::draw(chart, backend)?,
        Kind::Bars => bars::draw(chart, backend)?,
        Kind::Stack => bars::draw_stack(chart, backend)?,
    }
    let (_, inside) = image
        .split_once('>')
        .ok_or_else(|| anyhow!("no image of {}", chart.id))?;
    let id = escaped(&chart.id);
    Ok(format!(
        "<svg class=\"chart\" id=\"{id}\" role=\"img\" viewBox=\"0 0 {WIDTH} {height}\" aria-labelledby=\"{id}-t {id}-d\">\
         <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{}</desc>{}",
        escaped(&chart.title),
        escaped(&description(chart)),
        theme::by_style_sheet(inside)
    ))
}

/// What the chart shows in words: the figures stand in the table below it.
fn description(chart: &Chart) -> String {
    let names: Vec<_> = chart.series.iter().map(|it| it.name.as_str()).collect();
    let kind = match chart.kind {
        Kind::Lines => "Line chart",
        Kind::Bars => "Bar chart",
        Kind::Stack => "Stacked bars",
    };
    let bounds = match chart.kind {
        Kind::Stack => "",
        _ => " Marks reach from the least to the most of the runs.",
    };
    format!(
        "{kind} of {} ({}) over {}: {}.{bounds} The figures are in the table below.",
        chart.axis.label,
        chart.axis.unit,
        chart.over,
        names.join(", ")
    )
}

fn escaped(text: &str) -> String {
    let mut safe = String::new();
    for char in text.chars() {
        match char {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            char => safe.push(char),
        }
    }
    safe
}

/// An error of the library, which borrows from its backend.
fn drawing(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw a chart: {error}")
}
