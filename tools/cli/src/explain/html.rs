//! Formats the explanation as one self-contained HTML page.

use std::fmt::Write as _;

use zerolane_explain::Explanation;

use super::report::{Rows, Section, percent, sections};

const HEAD: &str = r#"<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<style>
:root { --ink: #1c2330; --paper: #fff; --line: #d5dae2; --bar: #3b76c4; }
@media (prefers-color-scheme: dark) { :root { --ink: #e2e6ee; --paper: #14181f; --line: #39414f; --bar: #6fa5ec; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 60rem; margin: 0 auto; padding: 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem .25rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
.number { text-align: right; white-space: nowrap; }
.bar { width: 12rem; min-width: 5rem; }
.bar i { display: block; height: .9rem; margin-top: .3rem; background: var(--bar); print-color-adjust: exact; }
</style>
"#;

/// Formats the page; `subject` names what was explained.
pub(super) fn page(subject: &str, explanation: &Explanation) -> String {
    let subject = escaped(subject);
    let mut page = format!(
        "{HEAD}<title>{subject} explained</title>\n<h1>Where the time went</h1>\n<p><code>{subject}</code></p>\n"
    );
    for section in sections(explanation) {
        add_section(&mut page, &section);
    }
    page.push_str("</html>\n");
    page
}

fn add_section(page: &mut String, section: &Section) {
    page.push_str("<section>\n");
    if let Some(table) = &section.table {
        add_table(page, table);
    }
    for words in &section.words {
        // Writing to a string does not fail.
        let _ = writeln!(page, "<p>{}</p>", escaped(words));
    }
    page.push_str("</section>\n");
}

fn add_table(page: &mut String, table: &Rows) {
    let class = |column: usize| match column < table.name_columns {
        true => "name",
        false => "number",
    };
    page.push_str("<div class=\"scroll\"><table>\n<tr>");
    for (column, title) in table.titles.iter().enumerate() {
        let _ = write!(
            page,
            "<th class=\"{}\">{}</th>",
            class(column),
            escaped(title)
        );
    }
    if !table.shares.is_empty() {
        page.push_str("<th></th>");
    }
    page.push_str("</tr>\n");
    for (at, row) in table.rows.iter().enumerate() {
        page.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(
                page,
                "<td class=\"{}\">{}</td>",
                class(column),
                escaped(cell)
            );
        }
        if let Some(share) = table.shares.get(at) {
            // The row shows the number beside the bar.
            let width = percent(*share).replace(' ', "");
            let _ = write!(
                page,
                "<td class=\"bar\" aria-hidden=\"true\"><i style=\"width:{width}\"></i></td>"
            );
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

/// Escapes names of programs, functions and interfaces, which are untrusted.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for it in text.chars() {
        match it {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            it => escaped.push(it),
        }
    }
    escaped
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use zerolane_explain::{HardwareCounts, Unexplained};

    #[test]
    fn page__names_are_no_markup() {
        let hostile = "<script>alert(1)</script>";
        let explanation = Explanation {
            unexplained: vec![Unexplained {
                symbol: hostile.into(),
                seconds: 1.0,
                share: 1.0,
            }],
            missing: vec![hostile.into()],
            ..Explanation::default()
        };
        let page = page(hostile, &explanation);
        assert!(!page.contains("<script"), "{page}");
        assert_eq!(page.matches("&lt;script&gt;alert").count(), 4);
    }

    #[test]
    fn page__has_what_each_cpu_counted() {
        let counts = HardwareCounts {
            cpu: 7,
            cycles: 4_000_000,
            instructions: 10_000_000,
            cache_misses: 12_345,
        };
        let explanation = Explanation {
            hardware: Some(vec![counts]),
            ..Explanation::default()
        };
        let page = page("x", &explanation);
        let cells = [">7<", ">4000000<", ">10000000<", ">2.50<", ">12345<"];
        assert!(cells.iter().all(|it| page.contains(it)), "{page}");
    }
}
