//! States the findings in five sentences. Each says what is missing if its figures are.

use crate::figure::{Section, digits};
use crate::results::{Results, list, size, text};

/// The five sentences of the first screen.
pub fn sentences(results: &Results, sections: &[Section]) -> [String; 5] {
    [
        bulk(results),
        latency(sections),
        loss(sections),
        time(results),
        ladder_and_model(results),
    ]
}

fn missing(what: &str, run: &str, results: &Results) -> String {
    match results.get(run) {
        Err(why) => format!("{what} was not measured: {why}."),
        Ok(_) => format!("{what} is missing in the output of {run}."),
    }
}

fn bulk(results: &Results) -> String {
    let found = results.get("bulk-1MiB").ok().and_then(|it| {
        Some((
            it["zerolane"]["gbps"]["median"].as_f64()?,
            it["ratio_vs_tcp"].as_f64()?,
            it["plain_ratio_vs_tcp"].as_f64(),
            it["placed_fraction"].as_f64(),
        ))
    });
    let Some((gbps, ratio, plain, placed)) = found else {
        return missing("Goodput from memory to memory", "bulk-1MiB", results);
    };
    let plain = plain.map_or_else(String::new, |it| {
        format!(", and without encryption {} times", digits(it))
    });
    let placed = placed.map_or_else(String::new, |it| {
        format!(
            "; {} % of its payload reached its place without a copy in user space",
            digits(it * 100.0)
        )
    });
    format!(
        "Buffers of 1 MiB go from memory to memory at {} Gb/s, encrypted: {} times what plain TCP moves here{plain}{placed}.",
        digits(gbps),
        digits(ratio)
    )
}

fn latency(sections: &[Section]) -> String {
    let section = sections.iter().find(|it| it.id == "latency");
    let chart = section.and_then(|it| it.find("latency-poll"));
    let found = chart.and_then(|chart| {
        let category = chart.categories.first()?;
        let of = |series| chart.at(series, category).map(|it| it.median);
        Some((category, of("Zerolane")?, of("TCP"), of("UDP")))
    });
    let Some((category, own, tcp, udp)) = found else {
        let gap = section.and_then(|it| it.gaps.first());
        let why = gap.map_or("missing in its output", |it| it.why.as_str());
        return format!("One-way latency was not measured: {why}.");
    };
    let others: Vec<_> = [("TCP", tcp), ("bare UDP", udp)]
        .into_iter()
        .filter_map(|(name, us)| Some(format!("{} with {name}", digits(us?))))
        .collect();
    format!(
        "A message of {category} takes {} us one way while both ends poll, {}; the papers had 20.5 with TCP and 5.5 to 7.5 with RDMA.",
        digits(own),
        others.join(", ")
    )
}

fn loss(sections: &[Section]) -> String {
    let section = sections.iter().find(|it| it.id == "loss");
    let chart = section.and_then(|it| it.find("loss-shape"));
    let found = chart.and_then(|chart| {
        let percent = |series| {
            let share = chart.at(series, "0.1 %")?;
            let percent = |share: f64| digits(share * 100.0);
            let spread = match share.min < share.max {
                true => format!(" ({} to {})", percent(share.min), percent(share.max)),
                false => String::new(),
            };
            Some(format!("{}{spread}", percent(share.median)))
        };
        Some((
            percent("Zerolane")?,
            percent("Zerolane, classic profile")?,
            percent("TCP, CUBIC")?,
        ))
    });
    let Some((own, classic, tcp)) = found else {
        let gap = section.and_then(|it| it.gaps.first());
        let why = gap.map_or("missing in its output", |it| it.why.as_str());
        return format!("The cost of losses was not measured: {why}.");
    };
    format!(
        "With 0.1 % of packets lost on a link of 1 Gb/s, Zerolane keeps {own} % of its goodput, TCP {tcp} %, and the \
         thesis's rule {classic} %; the thesis's own protocol kept 1.8 %."
    )
}

fn time(results: &Results) -> String {
    let Ok(found) = results.get("explain-encrypted") else {
        return missing("Where the CPU time goes", "explain-encrypted", results);
    };
    let share = |cause: &str| {
        let rows = list(found, "causes").iter();
        let row = rows.into_iter().find(|it| text(it, "cause") == cause);
        row.and_then(|it| it["share"].as_f64()).unwrap_or_default() * 100.0
    };
    if list(found, "causes").is_empty() {
        return missing("Where the CPU time goes", "explain-encrypted", results);
    }
    let explained = found["explained_fraction"].as_f64().unwrap_or_default();
    format!(
        "An encrypted transfer spends {} % of its CPU time on copying payload, {} % on encryption and {} % on memory \
         management; {} % of all samples have a known cause.",
        digits(share("payload_copy")),
        digits(share("encryption")),
        digits(share("memory")),
        digits(explained * 100.0)
    )
}

fn ladder_and_model(results: &Results) -> String {
    let found = results.get("ladder").ok().and_then(|it| {
        let points = list(it, "points");
        let last = &points.last()?["size"];
        let of = |rung: &str| {
            let mut points = points.iter();
            let point = points.find(|it| text(it, "rung") == rung && &it["size"] == last)?;
            point["figures"]["gbps"]["median"].as_f64()
        };
        Some((size(last), of("bottom")?, of("trains")?))
    });
    let Some((size, bottom, top)) = found else {
        return missing("The ladder of overheads", "ladder", results);
    };
    let model = results.get("model").ok();
    let error = model.and_then(|it| it["median_error"].as_f64());
    let model = match error {
        Some(error) => format!(
            "; the model predicts the measurements with a median error of {} %",
            digits(error * 100.0)
        ),
        None => "; the model was not run".into(),
    };
    format!(
        "Removing overheads one by one raises messages of {size} from {} to {} Gb/s{model}.",
        digits(bottom),
        digits(top)
    )
}
