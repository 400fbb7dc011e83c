//! Tests that results are not trusted: a file may be of another version, truncated, or forged.

use serde_json::{Value, json};

use crate::{html, printed, report_of};

/// Values that no command prints there.
fn wrong() -> [Value; 7] {
    [
        Value::Null,
        json!([]),
        json!("<script>alert(1)</script>"),
        json!({"rows": [null, 1, "x", []], "sizes": [{}], "cells": [{"results": [{}]}], "points": [{}]}),
        json!({"rows": [{"contender": "</svg><script>alert(1)</script>", "figures": {"gbps": 1.0}, "sink": "\"'<&", "size": 1}]}),
        json!({"zerolane": {"gbps": {"min": -1e308, "median": 1e308, "max": 1e-320}}, "tcp": {"gbps": []}}),
        json!({"rows": [{"contender": "tcp", "mtu": u64::MAX, "size": u64::MAX, "figures": {"gbps": [1e308, -5, 0]}}]}),
    ]
}

#[test]
fn page__of_garbled_results_is_safe_and_whole() {
    for value in wrong() {
        let mut all = printed();
        for it in all.values_mut() {
            *it = value.clone();
        }
        let page = html(&report_of(all));
        assert!(!page.contains("<script"), "{value}");
        assert!(page.ends_with("</html>"), "{value}");
        assert!(!page.contains("NaN") && !page.contains("inf\""), "{value}");
    }
}

/// Every value of every result replaced, one after the other.
#[test]
fn page__with_any_value_missing_is_a_page() {
    let all = printed();
    for name in all.keys() {
        let mut paths = Vec::new();
        collect(&all[name], String::new(), &mut paths);
        // Lists repeat themselves: some of each result are enough.
        let every = paths.len() / 20 + 1;
        for path in paths.iter().step_by(every) {
            for wrong in [Value::Null, json!("x"), json!(-1), json!([{}])] {
                let mut changed = serde_json::Map::new();
                let mut value = all[name].clone();
                *value.pointer_mut(path).unwrap() = wrong;
                changed.insert(name.clone(), value);
                assert!(
                    html(&report_of(changed)).ends_with("</html>"),
                    "{name}{path}"
                );
            }
        }
    }
}

fn collect(value: &Value, at: String, paths: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = key.replace('~', "~0").replace('/', "~1");
                collect(value, format!("{at}/{key}"), paths);
            }
        }
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                collect(value, format!("{at}/{index}"), paths);
            }
        }
        _ => {}
    }
    paths.push(at);
}
