//! Defines the parts of a report, sections with charts and tables, as `report.json` stores them.

use serde::Serialize;

/// A figure with its spread over the runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The least of the runs.
    pub min: f64,
    /// The median of the runs.
    pub median: f64,
    /// The most of the runs.
    pub max: f64,
}

impl Spread {
    /// A single figure without a known spread.
    pub fn single(value: f64) -> Spread {
        Spread {
            min: value,
            median: value,
            max: value,
        }
    }

    /// Multiplies all three values by `factor`, which must not be negative.
    pub fn times(self, factor: f64) -> Spread {
        Spread {
            min: self.min * factor,
            median: self.median * factor,
            max: self.max * factor,
        }
    }
}

/// How a chart shows its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A line for each series over categories with an order, equally far apart.
    Lines,
    /// Bars side by side for each category.
    Bars,
    /// One bar for each category, of which each series is a part.
    Stack,
}

/// The quantity on the axis of values.
#[derive(Clone, Debug, Serialize)]
pub struct Axis {
    /// What it is, such as `goodput`.
    pub label: String,
    /// Its unit, such as `Gb/s`.
    pub unit: String,
    /// Whether equal distances are equal ratios.
    pub logarithmic: bool,
}

impl Axis {
    /// Equal distances are equal differences.
    pub fn linear(label: &str, unit: &str) -> Axis {
        Axis {
            label: label.into(),
            unit: unit.into(),
            logarithmic: false,
        }
    }

    /// Equal distances are equal ratios.
    pub fn logarithmic(label: &str, unit: &str) -> Axis {
        Axis {
            logarithmic: true,
            ..Axis::linear(label, unit)
        }
    }
}

/// One line, or the bars of one colour.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// What it is called in the key.
    pub name: String,
    /// Whether these are a paper's own figures.
    pub of_paper: bool,
    /// One for each category of the chart; `None` where nothing was measured.
    pub points: Vec<Option<Spread>>,
}

/// A chart. Its image is drawn from this alone.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// Its name in the page and in `report.json`, unique in a report.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// How.
    pub kind: Kind,
    /// What the categories are, with their unit.
    pub over: String,
    /// The categories.
    pub categories: Vec<String>,
    /// The axis of values.
    pub axis: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
}

impl Chart {
    /// A chart without categories and series.
    pub fn new(id: &str, title: &str, kind: Kind, over: &str, axis: Axis) -> Chart {
        Chart {
            id: id.into(),
            title: title.into(),
            kind,
            over: over.into(),
            categories: Vec::new(),
            axis,
            series: Vec::new(),
        }
    }

    /// Sets the value of a series of ours at a category; both are added if they are new.
    pub fn put(&mut self, series: &str, category: &str, value: Spread) {
        self.set(series, category, value, false);
    }

    /// Like the above, for a paper's figure.
    pub fn put_of_paper(&mut self, series: &str, category: &str, value: f64) {
        self.set(series, category, Spread::single(value), true);
    }

    fn set(&mut self, series: &str, category: &str, value: Spread, of_paper: bool) {
        if !(value.min.is_finite() && value.median.is_finite() && value.max.is_finite()) {
            return;
        }
        let at = self.category(category);
        let known = self.series.iter().position(|it| it.name == series);
        let index = known.unwrap_or_else(|| {
            self.series.push(Series {
                name: series.into(),
                of_paper,
                points: Vec::new(),
            });
            self.series.len() - 1
        });
        let points = &mut self.series[index].points;
        points.resize(points.len().max(at + 1), None);
        points[at] = Some(value);
    }

    /// The index of a category, which is added if it is new.
    pub fn category(&mut self, name: &str) -> usize {
        let known = self.categories.iter().position(|it| it == name);
        known.unwrap_or_else(|| {
            self.categories.push(name.into());
            self.categories.len() - 1
        })
    }

    /// Sorts the series by `names`; series that are not listed come last.
    pub fn sort(&mut self, names: &[&str]) {
        let place = |it: &Series| names.iter().position(|name| *name == it.name);
        self.series
            .sort_by_key(|it| place(it).unwrap_or(names.len()));
    }

    /// Whether there is anything to draw.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// The value of a series at a category.
    pub fn at(&self, series: &str, category: &str) -> Option<Spread> {
        let at = self.categories.iter().position(|it| it == category)?;
        let series = self.series.iter().find(|it| it.name == series)?;
        *series.points.get(at)?
    }

    /// The figures of the chart as a table: a row for each category, a column for each series.
    pub fn table(&self) -> Table {
        let unit = &self.axis.unit;
        let mut table = Table::new(
            &format!("{}, {unit}: median (min to max)", self.axis.label),
            &[&self.over],
        );
        let names = self.series.iter().map(|it| it.name.clone());
        table.columns.extend(names);
        for (at, category) in self.categories.iter().enumerate() {
            let cells = self.series.iter().map(|series| {
                let point = series.points.get(at).copied().flatten();
                point.map_or_else(|| "–".to_owned(), with_spread)
            });
            table
                .rows
                .push([category.clone()].into_iter().chain(cells).collect());
        }
        table
    }
}

/// Formats a number with its significant digits.
pub fn digits(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if size == 0.0 => "0".into(),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 0.1 => format!("{value:.2}"),
        _ if size >= 0.001 => format!("{value:.4}"),
        _ => format!("{value:.1e}"),
    }
}

/// A figure with its spread, if it has one.
pub fn with_spread(value: Spread) -> String {
    let Spread { min, median, max } = value;
    if min == max {
        digits(median)
    } else {
        format!("{} ({} to {})", digits(median), digits(min), digits(max))
    }
}

/// A table. The first column names the row; the others are right-aligned.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// What it holds, with units that the columns do not say.
    pub caption: String,
    /// The heads of the columns.
    pub columns: Vec<String>,
    /// The rows, as many cells each as there are columns.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(caption: &str, columns: &[&str]) -> Table {
        Table {
            caption: caption.into(),
            columns: columns.iter().map(|&it| it.into()).collect(),
            rows: Vec::new(),
        }
    }

    /// Whether a column holds words, that is, its cells begin with letters.
    pub fn is_of_words(&self, column: &usize) -> bool {
        let cells = self.rows.iter().filter_map(|it| it.get(*column));
        let words = |it: &String| it.starts_with(char::is_alphabetic);
        cells.filter(|it| words(it)).count() * 2 > self.rows.len()
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

/// A gap in the report, with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// What is missing.
    pub what: String,
    /// Why.
    pub why: String,
}

/// One experiment of the papers, repeated.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// Its anchor in the page.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// Which figures and tables of which papers it redraws.
    pub papers: String,
    /// What is shown, what differs from the paper's experiment, and what the paper found.
    pub text: Vec<String>,
    /// Whether the shape of the paper's figures holds, by the figures of this report.
    pub shape: Vec<String>,
    /// Its charts.
    pub charts: Vec<Chart>,
    /// Its tables.
    pub tables: Vec<Table>,
    /// The commands that make its figures.
    pub commands: Vec<String>,
    /// What is missing of it.
    pub gaps: Vec<Gap>,
}

impl Section {
    /// An empty section.
    pub fn new(id: &str, title: &str, papers: &str, text: &[&str]) -> Section {
        Section {
            id: id.into(),
            title: title.into(),
            papers: papers.into(),
            text: text.iter().map(|&it| it.into()).collect(),
            shape: Vec::new(),
            charts: Vec::new(),
            tables: Vec::new(),
            commands: Vec::new(),
            gaps: Vec::new(),
        }
    }

    /// Adds a chart if it has something to show.
    pub fn chart(&mut self, chart: Chart) {
        if !chart.is_empty() {
            self.charts.push(chart);
        }
    }

    /// Adds a table if it has rows.
    pub fn table(&mut self, table: Table) {
        if !table.rows.is_empty() {
            self.tables.push(table);
        }
    }

    /// States whether what a paper claims holds here, and by which figures. Says nothing without figures.
    pub fn shape(&mut self, claim: &str, found: Option<(bool, String)>) {
        if let Some((holds, figures)) = found {
            let verdict = if holds { "holds" } else { "does not hold" };
            self.shape
                .push(format!("{claim}: {verdict} here ({figures})."));
        }
    }

    /// Notes a gap.
    pub fn gap(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.gaps.push(Gap {
            what: what.into(),
            why: why.into(),
        });
    }

    /// The chart of that name.
    pub fn find(&self, id: &str) -> Option<&Chart> {
        self.charts.iter().find(|it| it.id == id)
    }
}
