//! Combines unit costs of several rounds into their medians.

use anyhow::{Context, Result};
use serde_json::{Map, Value};
use zerolane_model::UnitCosts;

/// For each cost, the median of the medians, and the least and largest values.
pub(crate) fn middle(rounds: &[UnitCosts]) -> Result<UnitCosts> {
    let rounds: Vec<Value> = rounds
        .iter()
        .map(serde_json::to_value)
        .collect::<Result<_, _>>()?;
    Ok(serde_json::from_value(middle_of(&rounds)?)?)
}

/// Combines values of the same shape, entry by entry. Fields that are not costs are equal in all of them.
fn middle_of(rounds: &[Value]) -> Result<Value> {
    let first = rounds.first().context("no rounds to combine")?;
    match first {
        Value::Object(cost) if cost.contains_key("median") => {
            let of = |key: &str| {
                let mut values: Vec<f64> =
                    rounds.iter().filter_map(|it| it[key].as_f64()).collect();
                values.sort_by(f64::total_cmp);
                values
            };
            let (least, medians, largest) = (of("min"), of("median"), of("max"));
            Ok(serde_json::json!({
                "min": least.first(),
                "median": medians.get(medians.len() / 2),
                "max": largest.last(),
            }))
        }
        Value::Object(entries) => {
            let of = |key: &String| {
                let below: Vec<Value> = rounds.iter().map(|it| it[key].clone()).collect();
                Ok((key.clone(), middle_of(&below)?))
            };
            let entries: Result<Map<_, _>> = entries.keys().map(of).collect();
            Ok(entries?.into())
        }
        Value::Array(entries) => {
            let of = |at| {
                let below: Vec<Value> = rounds.iter().map(|it| it[at].clone()).collect();
                middle_of(&below)
            };
            let entries: Result<Vec<_>> = (0..entries.len()).map(of).collect();
            Ok(entries?.into())
        }
        other => Ok(other.clone()),
    }
}

#[cfg(test)]
#[allow(non_snake_case)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn middle_of__each_cost_by_itself() {
        let round = |call: [f64; 3], copy: [f64; 3]| {
            let cost =
                |[min, median, max]: [f64; 3]| json!({"min": min, "median": median, "max": max});
            json!({"caches": {"own": 4}, "call": cost(call), "memory": [{"bytes": 64, "copy": cost(copy)}]})
        };
        let rounds = [
            round([2.0, 4.0, 5.0], [7.0, 9.0, 10.0]),
            round([3.0, 3.0, 9.0], [7.0, 8.0, 11.0]),
            round([1.0, 8.0, 8.0], [6.0, 7.0, 9.0]),
        ];
        let expected = round([1.0, 4.0, 9.0], [6.0, 8.0, 11.0]);
        assert_eq!(middle_of(&rounds).unwrap(), expected);
        assert!(middle_of(&[]).is_err());
    }
}
