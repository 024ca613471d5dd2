//! Parts of the docs are made from the code: each stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->`, and
//! these tests hold it to what the code says. With `UPDATE=1` in the environment they write it anew.

use std::fmt::Write as _;
use std::path::Path;

use convoke::wire::api::{APIS, Answers, NEVER};
use convoke::{config, server::metrics};

fn assert_block(path: &str, name: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let page = std::fs::read_to_string(&path).expect("the page");
    let (begin, end) = (
        format!("<!-- {name}: begin -->\n"),
        format!("<!-- {name}: end -->"),
    );
    let (head, rest) = page.split_once(&begin).expect("the page has the mark");
    let (_, tail) = rest.split_once(&end).expect("the page has the mark");
    let right = format!("{head}{begin}\n{}\n\n{end}{tail}", wanted.trim());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, right).expect("write the page");
    } else {
        assert!(
            page == right,
            "{name}: run UPDATE=1 cargo test --test it docs::"
        );
    }
}

#[test]
fn operations_lists_the_keys_of_the_configuration() {
    assert_block("docs/operations.md", "keys", &config::markdown());
}

#[test]
fn operations_lists_the_metrics() {
    assert_block("docs/operations.md", "metrics", &metrics::markdown());
}

/// A dashboard or an alert on a metric that does not exist never shows anything, and nobody notices.
#[test]
fn dashboards_and_alerts_name_metrics_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect(path);
    let operations = read("docs/operations.md");
    let known: Vec<&str> = operations
        .lines()
        .filter_map(|line| line.strip_prefix("| `convoke_"))
        .filter_map(|rest| rest.split('`').next())
        .collect();
    for path in ["docs/grafana/dashboard.json", "docs/grafana/alerts.yml"] {
        let text = read(path);
        let mut count = 0;
        for rest in text.split("convoke_").skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let name = &rest[..end.unwrap_or(rest.len())];
            let histogram = name
                .strip_suffix("_bucket")
                .filter(|name| name.ends_with("_seconds"));
            let exists = known.contains(&histogram.unwrap_or(name));
            assert!(
                exists,
                "{path}: docs/operations.md knows no metric convoke_{name}"
            );
            count += 1;
        }
        assert!(count > 10, "{path} names {count} metrics");
    }
    let dashboard = read("docs/grafana/dashboard.json");
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    assert_eq!(dashboard["title"], "Convoke");
}

#[test]
fn protocol_lists_the_table_of_apis() {
    let mut table = String::from(
        "| key | API | versions | flexible from | answered by |\n| ---: | --- | --- | --- | --- |\n",
    );
    for api in APIS.iter().filter(|api| api.advertised) {
        let flexible = match api.flexible_from {
            NEVER => "never".to_owned(),
            version => version.to_string(),
        };
        let answered_by = match api.answers {
            Answers::Shard => "the group's shard",
            Answers::DataPlane => "the data plane",
            Answers::Here => "the connection",
        };
        let note = if api.decode_from > api.min {
            format!(" (served from {})", api.decode_from)
        } else {
            String::new()
        };
        writeln!(
            table,
            "| {} | {} | {}–{}{note} | {flexible} | {answered_by} |",
            api.key, api.name, api.min, api.max
        )
        .expect("writing to a string");
    }
    assert_block("docs/protocol.md", "apis", &table);
}
