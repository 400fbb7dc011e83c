//! Draws charts as inline SVG. The page's style sheet sets the colours, so one image serves light mode, dark mode and print.
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
use plotters::backend::SVGBackend;

use crate::figure::{Chart, Kind};

/// Width of every chart, in the units of its `viewBox`. On a phone it is shown at about three quarters.
const WIDTH: u32 = 460;

/// A chart as an `<svg>` element with a title and a description.
///
/// # Errors
/// The library cannot draw it.
pub fn svg(chart: &Chart) -> Result<String> {
    let (height, inside) = drawn(chart)?;
    let id = escaped(&chart.id);
    Ok(format!(
        "<svg class=\"chart\" id=\"{id}\" role=\"img\" viewBox=\"0 0 {WIDTH} {height}\" aria-labelledby=\"{id}-t {id}-d\">\
         <title id=\"{id}-t\">{}</title><desc id=\"{id}-d\">{} The figures are in the table below.</desc>{inside}</svg>\n",
        escaped(&chart.title),
        escaped(&description(chart)),
    ))
}

/// Room above a line chart in a file of its own: the title and the key.
const HEAD: u32 = 52;
/// Room at its left and right.
const MARGIN: u32 = 8;

/// Line charts, one below the other, as an SVG file that needs no page: with their titles, their keys, a background, and
/// colours for both schemes.
///
/// # Errors
/// The library cannot draw it.
pub fn file(charts: &[Chart]) -> Result<String> {
    let (mut body, mut bottom) = (String::new(), 0);
    for chart in charts {
        let (height, inside) = drawn(chart)?;
        let key = image((WIDTH, HEAD), |backend| lines::key(chart, backend))?;
        let lines = format!("{key}<g transform=\"translate(0 {HEAD})\">{inside}</g>\n");
        match bottom {
            0 => body.push_str(&lines),
            _ => body.push_str(&format!(
                "<g transform=\"translate(0 {bottom})\">{lines}</g>\n"
            )),
        }
        bottom += height + HEAD;
    }
    let words = |of: fn(&Chart) -> String| charts.iter().map(of).collect::<Vec<_>>().join(" ");
    // The page's variables; what follows them is about its elements.
    let style = include_str!("../../templates/report.css");
    let (variables, _) = style.split_once("\n* {").unwrap_or((style, ""));
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" viewBox=\"-{MARGIN} 0 {} {}\">\n\
         <title>{}</title>\n<desc>{}</desc>\n\
         <style>\n{variables}\nsvg {{ font-family: system-ui, -apple-system, \"Segoe UI\", \"Liberation Sans\", Arial, sans-serif; }}\n</style>\n\
         <rect x=\"-{MARGIN}\" width=\"100%\" height=\"100%\" rx=\"6\" fill=\"var(--card)\"/>\n\
         {body}</svg>\n",
        WIDTH + 2 * MARGIN,
        bottom,
        escaped(&words(|it| it.title.clone())),
        escaped(&words(description)),
    ))
}

/// The elements of a chart, and its height.
fn drawn(chart: &Chart) -> Result<(u32, String)> {
    let height = match chart.kind {
        Kind::Lines => lines::HEIGHT,
        Kind::Bars => bars::height(chart),
        Kind::Stack => bars::stack_height(chart),
    };
    let inside = image((WIDTH, height), |backend| match chart.kind {
        Kind::Lines => lines::draw(chart, backend),
        Kind::Bars => bars::draw(chart, backend),
        Kind::Stack => bars::draw_stack(chart, backend),
    });
    Ok((height, inside?))
}

/// The elements that `draw` makes, with variables for colours.
fn image(size: (u32, u32), draw: impl FnOnce(SVGBackend<'_>) -> Result<()>) -> Result<String> {
    let mut image = String::new();
    draw(SVGBackend::with_string(&mut image, size))?;
    let (_, inside) = image.split_once('>').unwrap_or_default();
    Ok(theme::by_style_sheet(
        inside.trim_end().trim_end_matches("</svg>"),
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
    let mut points = chart
        .series
        .iter()
        .flat_map(|it| it.points.iter().flatten());
    let spread = chart.kind != Kind::Stack && points.any(|it| it.min < it.max);
    let bounds = if spread {
        " Marks reach from the minimum to the maximum of the runs."
    } else {
        ""
    };
    format!(
        "{kind} of {} ({}) over {}: {}.{bounds}",
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
