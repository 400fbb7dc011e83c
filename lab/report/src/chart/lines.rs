//! Draws a line for each series over equidistant categories.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::scale::Scale;
use super::theme::{FONT, GRID, INK, LETTER, colour, text};
use super::{WIDTH, drawing};
use crate::figure::Chart;

pub(super) const HEIGHT: u32 = 300;

/// Room around the lines: of the axes' words.
const TOP: i32 = 34;
const RIGHT: i32 = 18;
const BOTTOM: i32 = 52;

/// Where things are, in units of the image.
struct Plane {
    left: i32,
    steps: i32,
}

impl Plane {
    fn x(&self, category: usize) -> i32 {
        let width = WIDTH as i32 - self.left - RIGHT;
        let half = width / (2 * self.steps);
        self.left + half + category as i32 * (width - 2 * half) / (self.steps - 1).max(1)
    }

    fn y(&self, share: f64) -> i32 {
        let height = HEIGHT as i32 - TOP - BOTTOM;
        HEIGHT as i32 - BOTTOM - (share * f64::from(height)).round() as i32
    }
}

pub(super) fn draw(chart: &Chart, backend: SVGBackend<'_>) -> Result<()> {
    let area = backend.into_drawing_area();
    let scale = Scale::of(chart);
    let lines = scale.lines();
    let longest = lines.iter().map(|it| it.1.len()).max().unwrap_or_default();
    let plane = Plane {
        left: (longest as f64 * LETTER) as i32 + 16,
        steps: chart.categories.len().max(1) as i32,
    };
    let right = WIDTH as i32 - RIGHT;
    let at = |h, v| text().pos(Pos::new(h, v));
    for (share, word) in &lines {
        let y = plane.y(*share);
        let style = if *share == 0.0 { INK } else { GRID };
        area.draw(&PathElement::new([(plane.left, y), (right, y)], style))
            .map_err(drawing)?;
        let place = (plane.left - 7, y);
        area.draw(&Text::new(
            word.as_str(),
            place,
            at(HPos::Right, VPos::Center),
        ))
        .map_err(drawing)?;
    }
    let head = format!("{}, {}", chart.axis.label, chart.axis.unit);
    area.draw(&Text::new(head, (2, 2), at(HPos::Left, VPos::Top)))
        .map_err(drawing)?;
    // As many categories as fit get their name.
    let widest = chart.categories.iter().map(|it| it.chars().count()).max();
    let room = f64::from(right - plane.left) / f64::from(plane.steps);
    let needed = widest.unwrap_or_default() as f64 * LETTER + 8.0;
    let every = (needed / room).ceil().max(1.0) as usize;
    for (index, category) in chart.categories.iter().enumerate() {
        let place = (plane.x(index), plane.y(0.0));
        let tick = [place, (place.0, place.1 + 5)];
        area.draw(&PathElement::new(tick, INK)).map_err(drawing)?;
        if index % every == 0 {
            let place = (place.0, place.1 + 9);
            area.draw(&Text::new(
                category.as_str(),
                place,
                at(HPos::Center, VPos::Top),
            ))
            .map_err(drawing)?;
        }
    }
    let place = (
        i32::midpoint(plane.left, right),
        HEIGHT as i32 - FONT as i32 - 6,
    );
    area.draw(&Text::new(
        chart.over.as_str(),
        place,
        at(HPos::Center, VPos::Top),
    ))
    .map_err(drawing)?;
    for (index, series) in chart.series.iter().enumerate() {
        let points = series.points.iter().enumerate();
        let points: Vec<_> = points
            .filter_map(|(category, it)| Some((plane.x(category), (*it)?)))
            .map(|(x, it)| {
                // Beside each other, so that spreads of the same category can be told apart.
                let x = x + (index as i32 * 2 - chart.series.len() as i32 + 1) * 2;
                let y = |value| plane.y(scale.at(value));
                (x, [y(it.min), y(it.median), y(it.max)])
            })
            .collect();
        let colour = colour(index);
        let line: Vec<_> = points.iter().map(|it| (it.0, it.1[1])).collect();
        if series.of_paper {
            let dashed = DashedLineSeries::new(line.iter().copied(), 6, 5, colour.stroke_width(2));
            for element in dashed {
                area.draw(&element).map_err(drawing)?;
            }
        } else {
            area.draw(&PathElement::new(line, colour.stroke_width(2)))
                .map_err(drawing)?;
        }
        for (x, [low, middle, high]) in points {
            if low != high {
                for [from, to] in [
                    [(x, low), (x, high)],
                    [(x - 4, low), (x + 4, low)],
                    [(x - 4, high), (x + 4, high)],
                ] {
                    area.draw(&PathElement::new([from, to], colour.stroke_width(1)))
                        .map_err(drawing)?;
                }
            }
            mark(&area, index, (x, middle), series.of_paper)?;
        }
    }
    area.present().map_err(drawing)
}

/// The title of a chart, and below it the mark and the name of each series.
pub(super) fn key(chart: &Chart, backend: SVGBackend<'_>) -> Result<()> {
    let area = backend.into_drawing_area();
    let title = text().pos(Pos::new(HPos::Left, VPos::Top));
    area.draw(&Text::new(chart.title.as_str(), (2, 6), title))
        .map_err(drawing)?;
    let mut x = 7;
    for (index, series) in chart.series.iter().enumerate() {
        let y = 38;
        mark(&area, index, (x, y), series.of_paper)?;
        let name = text().pos(Pos::new(HPos::Left, VPos::Center));
        area.draw(&Text::new(series.name.as_str(), (x + 9, y), name))
            .map_err(drawing)?;
        x += 9 + (series.name.chars().count() as f64 * LETTER) as i32 + 22;
    }
    area.present().map_err(drawing)
}

/// A mark of its own for each series, so that colour is not all that tells them apart.
fn mark(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    series: usize,
    at: (i32, i32),
    of_paper: bool,
) -> Result<()> {
    let colour = colour(series);
    let style = if of_paper {
        colour.stroke_width(2)
    } else {
        colour.filled()
    };
    let (x, y) = at;
    match series % 4 {
        0 => area.draw(&Circle::new(at, 4, style)),
        1 => area.draw(&Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], style)),
        2 => area.draw(&TriangleMarker::new(at, 5, style)),
        _ => {
            let points = [(x - 5, y), (x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y)];
            if of_paper {
                area.draw(&PathElement::new(points, style))
            } else {
                area.draw(&Polygon::new(points, style))
            }
        }
    }
    .map_err(drawing)
}
