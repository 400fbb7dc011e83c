//! Draws horizontal bars, side by side or stacked.

use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::scale::{Scale, sum};
use super::theme::{FONT, GRID, INK, LETTER, colour, text};
use super::{WIDTH, drawing};
use crate::figure::{Chart, digits};

/// Height of a bar of several side by side.
const BAR: i32 = 17;
/// Height of a stacked one.
const STACKED: i32 = 26;
/// Between categories.
const BETWEEN: i32 = 14;
const TOP: i32 = 8;
const BOTTOM: i32 = 46;
/// Most of the width that names of categories take; longer ones stand above their bars.
const NAMES: i32 = 150;
/// What stands behind a bar.
const VALUE: i32 = 52;

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Height of a chart of bars side by side.
pub(super) fn height(chart: &Chart) -> u32 {
    let bars: usize = (0..chart.categories.len())
        .map(|it| shown(chart, it).count())
        .sum();
    total(chart, bars as i32 * BAR)
}

/// Height of a chart of stacked bars.
pub(super) fn stack_height(chart: &Chart) -> u32 {
    total(chart, chart.categories.len() as i32 * STACKED)
}

fn total(chart: &Chart, bars: i32) -> u32 {
    let categories = chart.categories.len() as i32;
    let each = if left(chart).is_none() {
        BETWEEN + FONT as i32 + 6
    } else {
        BETWEEN
    };
    (TOP + bars + categories * each + BOTTOM).unsigned_abs()
}

/// The series that have a bar at a category.
fn shown(chart: &Chart, category: usize) -> impl Iterator<Item = usize> {
    let series = chart.series.iter().enumerate();
    series
        .filter(move |it| it.1.points.get(category).is_some_and(Option::is_some))
        .map(|it| it.0)
}

/// Room for the names at the left, if they are short enough to stand there.
fn left(chart: &Chart) -> Option<i32> {
    let longest = chart.categories.iter().map(|it| it.chars().count()).max();
    let room = (longest.unwrap_or_default() as f64 * LETTER) as i32 + 12;
    (room <= NAMES).then_some(room)
}

/// The plane of a chart of bars.
struct Plane<'a> {
    area: Area<'a>,
    scale: Scale,
    left: i32,
    y: i32,
    above: bool,
}

impl<'a> Plane<'a> {
    /// With the axis and its lines.
    fn new(chart: &Chart, backend: SVGBackend<'a>, height: u32) -> Result<Plane<'a>> {
        let plane = Plane {
            area: backend.into_drawing_area(),
            scale: Scale::of(chart),
            left: left(chart).unwrap_or(4),
            y: TOP,
            above: left(chart).is_none(),
        };
        let bottom = height as i32 - BOTTOM;
        for (share, word) in plane.scale.lines() {
            let x = plane.x(share);
            let style = if share == 0.0 { INK } else { GRID };
            plane.line([(x, TOP), (x, bottom)], style.stroke_width(1))?;
            plane.text(&word, (x, bottom + 5), HPos::Center, VPos::Top)?;
        }
        let head = format!("{}, {}", chart.axis.label, chart.axis.unit);
        let middle = i32::midpoint(plane.left, WIDTH as i32);
        plane.text(&head, (middle, bottom + 24), HPos::Center, VPos::Top)?;
        Ok(plane)
    }

    fn x(&self, share: f64) -> i32 {
        let width = WIDTH as i32 - self.left - VALUE;
        self.left + (share * f64::from(width)).round() as i32
    }

    fn line(&self, ends: [(i32, i32); 2], style: ShapeStyle) -> Result<()> {
        self.area
            .draw(&PathElement::new(ends, style))
            .map_err(drawing)
    }

    fn text(&self, words: &str, at: (i32, i32), h: HPos, v: VPos) -> Result<()> {
        let style = text().pos(Pos::new(h, v));
        self.area
            .draw(&Text::new(words, at, style))
            .map_err(drawing)
    }

    fn bar(&self, x: [i32; 2], height: i32, style: ShapeStyle) -> Result<()> {
        let corners = [(x[0], self.y), (x[1], self.y + height)];
        self.area
            .draw(&Rectangle::new(corners, style))
            .map_err(drawing)
    }

    /// The name of a category whose bars are so high together.
    fn name(&mut self, name: &str, height: i32) -> Result<()> {
        if self.above {
            self.text(name, (self.left + 2, self.y + 2), HPos::Left, VPos::Top)?;
            self.y += FONT as i32 + 6;
            return Ok(());
        }
        let at = (self.left - 8, self.y + height / 2);
        self.text(name, at, HPos::Right, VPos::Center)
    }
}

pub(super) fn draw(chart: &Chart, backend: SVGBackend<'_>) -> Result<()> {
    let mut plane = Plane::new(chart, backend, height(chart))?;
    for (category, name) in chart.categories.iter().enumerate() {
        plane.y += BETWEEN / 2;
        let bars = shown(chart, category).count() as i32;
        plane.name(name, bars * BAR)?;
        for series in shown(chart, category) {
            let Some(point) = chart.series[series].points[category] else {
                continue;
            };
            let x = |value| plane.x(plane.scale.at(value));
            let colour = colour(series);
            let ends = [plane.left, x(point.median)];
            if chart.series[series].of_paper {
                plane.bar(ends, BAR - 3, colour.mix(0.35).filled())?;
                plane.bar(ends, BAR - 3, colour.stroke_width(1))?;
            } else {
                plane.bar(ends, BAR - 3, colour.filled())?;
            }
            let middle = plane.y + (BAR - 3) / 2;
            if x(point.min) != x(point.max) {
                let ink = INK.stroke_width(1);
                let (low, high) = (x(point.min), x(point.max));
                plane.line([(low, middle), (high, middle)], ink)?;
                for x in [low, high] {
                    plane.line([(x, middle - 3), (x, middle + 3)], ink)?;
                }
            }
            let end = x(point.max).max(x(point.median)) + 5;
            plane.text(
                &digits(point.median),
                (end, middle),
                HPos::Left,
                VPos::Center,
            )?;
            plane.y += BAR;
        }
        plane.y += BETWEEN / 2;
    }
    plane.area.present().map_err(drawing)
}

pub(super) fn draw_stack(chart: &Chart, backend: SVGBackend<'_>) -> Result<()> {
    let mut plane = Plane::new(chart, backend, stack_height(chart))?;
    for (category, name) in chart.categories.iter().enumerate() {
        plane.y += BETWEEN / 2;
        plane.name(name, STACKED)?;
        let mut from = 0.0;
        for series in shown(chart, category) {
            let Some(point) = chart.series[series].points[category] else {
                continue;
            };
            let to = from + point.median.max(0.0);
            let x = [from, to].map(|it| plane.x(plane.scale.at(it)));
            plane.bar(x, STACKED - 4, colour(series).filled())?;
            from = to;
        }
        let all = sum(chart, category);
        let at = (plane.x(plane.scale.at(all)) + 5, plane.y + STACKED / 2 - 2);
        plane.text(&digits(all), at, HPos::Left, VPos::Center)?;
        plane.y += STACKED + BETWEEN / 2;
    }
    plane.area.present().map_err(drawing)
}
