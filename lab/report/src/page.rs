//! Renders the page. All its figures are in `report.json`, too; the template only lays them out.

use anyhow::Result;
use askama::Template;

use crate::Report;
use crate::chart;
use crate::figure::{Chart, Section, Table};
use crate::plan::Extent;

/// The template's view of a report.
#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    report: &'a Report,
    sections: Vec<Shown<'a>>,
    style: &'static str,
}

/// A section with its charts drawn.
struct Shown<'a> {
    section: &'a Section,
    charts: Vec<Drawn<'a>>,
}

struct Drawn<'a> {
    chart: &'a Chart,
    svg: String,
    table: Table,
}

/// The report as one page that needs nothing else.
///
/// # Errors
/// A chart cannot be drawn.
pub fn render(report: &Report) -> Result<String> {
    let mut sections = Vec::new();
    for section in &report.sections {
        let mut charts = Vec::new();
        for chart in &section.charts {
            charts.push(Drawn {
                chart,
                svg: chart::svg(chart)?,
                table: chart.table(),
            });
        }
        sections.push(Shown { section, charts });
    }
    let page = Page {
        report,
        sections,
        style: include_str!("../templates/report.css"),
    };
    Ok(page.render()?)
}
