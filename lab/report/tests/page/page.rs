//! Tests that the page shows all of `report.json`, and loads nothing from elsewhere.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use zerolane_report::results::Outcome;

use crate::{html, printed, report, report_of, run};

#[test]
fn page__has_every_chart_of_the_report() {
    let report = report_of(printed());
    let page = html(&report);
    let charts: Vec<_> = report.sections.iter().flat_map(|it| &it.charts).collect();
    assert!(charts.len() >= 25, "{} charts", charts.len());
    let ids: BTreeSet<_> = charts.iter().map(|it| &it.id).collect();
    assert_eq!(ids.len(), charts.len(), "two charts of one name");
    for chart in charts {
        assert!(
            page.contains(&format!("id=\"{}\"", chart.id)),
            "{}",
            chart.id
        );
        assert!(!chart.axis.unit.is_empty() && !chart.over.is_empty());
        for series in &chart.series {
            assert!(page.contains(&series.name), "{}: {}", chart.id, series.name);
        }
    }
    let sections: Vec<_> = report.sections.iter().map(|it| it.id.as_str()).collect();
    for id in sections {
        assert!(page.contains(&format!("<section id=\"{id}\">")), "{id}");
        assert!(page.contains(&format!("href=\"#{id}\"")), "{id}");
    }
}

#[test]
fn page__needs_nothing_else_and_runs_nothing() {
    let page = html(&report_of(printed()));
    for attribute in [
        "src=",
        "url(",
        "@import",
        "<script",
        "onload",
        "<link rel=\"stylesheet",
        "xmlns",
    ] {
        assert!(!page.contains(attribute), "{attribute}");
    }
    for reference in page.split("href=\"").skip(1) {
        assert!(
            reference.starts_with('#') || reference.starts_with("data:,"),
            "{}",
            &reference[..40]
        );
    }
    assert!(!page.contains("http://") && !page.contains("https://"));
}

/// Every element that is opened is closed, in order.
#[test]
fn page__is_well_formed() {
    const VOID: [&str; 4] = ["meta", "link", "br", "!DOCTYPE"];
    let page = html(&report_of(printed()));
    let mut open: Vec<&str> = Vec::new();
    let mut elements = 0;
    for tag in page.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag that does not end");
        let name = tag.trim_start_matches('/');
        let name = name.split([' ', '\n', '/']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "after {elements} elements");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
        elements += 1;
    }
    assert!(open.is_empty(), "{open:?}");
    assert!(elements > 1000);
}

#[test]
fn found__is_five_sentences_with_figures() {
    let report = report_of(printed());
    assert_eq!(report.found.len(), 5);
    for sentence in &report.found {
        assert!(
            sentence.ends_with('.') && !sentence.contains("not measured"),
            "{sentence}"
        );
        assert!(
            sentence.contains(|it: char| it.is_ascii_digit()),
            "{sentence}"
        );
    }
    assert!(report.found[0].contains("36.8 Gb/s"), "{}", report.found[0]);
}

#[test]
fn gaps__say_which_run_failed_and_why() {
    let failed = run("loss", Outcome::Error("no right to make namespaces".into()));
    let report = report(vec![failed]);
    let page = html(&report);
    assert_eq!(report.found.len(), 5);
    assert!(
        report.found[2].contains("no right to make namespaces"),
        "{}",
        report.found[2]
    );
    let gap = report.gaps.iter().find(|it| it.what == "loss").unwrap();
    assert_eq!(gap.why, "no right to make namespaces");
    assert!(page.contains("<strong>loss</strong>: no right to make namespaces"));
    let gap = report
        .gaps
        .iter()
        .find(|it| it.what == "bulk-1MiB")
        .unwrap();
    assert_eq!(gap.why, "was not run (--only)");
}

#[test]
fn page__of_nothing_is_a_page() {
    let report = report_of(Map::new());
    let page = html(&report);
    assert!(page.ends_with("</html>") && report.runs.is_empty());
    // The papers' own figures are there all the same.
    for figure in [
        "12 745",
        "about 37 us",
        "about 20.5 us",
        "44 % more",
        "926 Mb/s",
        "falls as it grows",
        "write with immediate",
        "about 80 %",
    ] {
        assert!(page.contains(figure), "{figure}");
    }
}

#[test]
fn figures__of_the_run_stand_in_the_page() {
    let report = report_of(printed());
    let bulk = report.sections.iter().find(|it| it.id == "bulk").unwrap();
    let chart = bulk.find("bulk-goodput").unwrap();
    let spread = chart.at("Zerolane", "1 MiB").unwrap();
    assert!(spread.min < spread.median && spread.median < spread.max);
    assert_eq!(chart.table().rows.len(), 3);
    let page = html(&report);
    assert!(page.contains("36.8 (22.0 to 37.4)"));
}

#[test]
fn sections__are_those_of_the_list_of_figures_and_tables() {
    let document = include_str!("../../../../docs/papers.md");
    let (_, list) = document.split_once("## Figures and tables").unwrap();
    let last_cells = list
        .lines()
        .filter_map(|line| line.trim_end_matches(" |").rsplit_once('|'));
    let listed: BTreeSet<_> = last_cells
        .flat_map(|(_, cell)| cell.split('`').skip(1).step_by(2))
        .collect();
    let sections = report_of(Map::new()).sections;
    let sections: BTreeSet<_> = sections.iter().map(|it| it.id.as_str()).collect();
    assert_eq!(listed, sections);
}

/// Runs over emulated links that failed, and contenders that this machine has not.
#[test]
fn page__what_failed_over_a_link_is_a_gap() {
    let mut all = printed();
    let loss = &mut all["loss"];
    loss["left_out"] = json!([{"contender": "bbr", "why": "no such control"}]);
    let classic = &mut loss["cells"][0]["results"][0];
    classic["failures"] = json!(["no such core"]);
    classic["mbps"] = Value::Null;
    all["incast"]["results"][0]["failure"] = json!("peer gone");
    let report = report_of(all);
    let gaps = |id: &str| {
        let mut sections = report.sections.iter();
        let section = sections.find(|it| it.id == id).unwrap();
        let gaps = section.gaps.iter();
        gaps.map(|it| format!("{}: {}", it.what, it.why))
            .collect::<Vec<_>>()
    };
    let classic = "a run of Zerolane, classic profile";
    assert_eq!(
        gaps("loss"),
        [
            "TCP, BBR: no such control".to_owned(),
            format!("{classic} at 0 %: no such core")
        ]
    );
    assert_eq!(gaps("incast"), [format!("{classic}: peer gone")]);
    let loss = report.sections.iter().find(|it| it.id == "loss").unwrap();
    let chart = loss.find("loss-goodput").unwrap();
    assert!(chart.at("Zerolane, classic profile", "0 %").is_none());
    assert!(chart.at("TCP, CUBIC", "0 %").is_some());
    let page = html(&report);
    assert!(page.contains("no such control") && page.contains("no such core"));
}

/// A share of several runs is told with the least and the most of them, that of one run is not.
#[test]
fn found__what_losses_cost_has_its_spread() {
    let mut all = printed();
    let sentence = |all: Map<String, Value>| report_of(all).found[2].clone();
    assert!(!sentence(all.clone()).contains('('));
    let mut cells = all["loss"]["cells"].as_array_mut().unwrap().iter_mut();
    let cell = cells.find(|it| it["link"] == "loss 0.1 %").unwrap();
    let mut results = cell["results"].as_array_mut().unwrap().iter_mut();
    let own = results.find(|it| it["contender"] == "extended").unwrap();
    own["mbps"] = json!({"min": 487.9, "median": 878.2, "max": 975.8});
    let sentence = sentence(all);
    assert!(sentence.contains("90.0 (50.0 to 100"), "{sentence}");
}
