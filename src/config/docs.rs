//! The table of keys as text: Markdown for docs/operations.md, a properties file for
//! `convoke config`.

use std::fmt::Write as _;

use super::{Config, FAMILIES, FOREIGN, Foreign, KEYS, Key};

/// All keys as Markdown tables, a chapter each, and what becomes of Kafka's other keys.
pub fn markdown() -> String {
    let mut out = String::new();
    for chapter in KEYS.chunk_by(|a, b| a.section == b.section) {
        let _ = write!(out, "### {}\n\n", chapter[0].section);
        out.push_str("| key | type | default | allowed | meaning |\n|---|---|---|---|---|\n");
        for key in chapter {
            let _ = writeln!(
                out,
                "| `{}` | {} | {} | {} | {} |",
                key.name,
                key.kind,
                default_cell(key),
                key.rule,
                key.about()
            );
        }
        out.push('\n');
    }
    foreign(&mut out);
    out
}

fn default_cell(key: &Key) -> String {
    match key.default {
        "" => "not set".to_owned(),
        text => format!("`{}`", text.replace(',', ", ")),
    }
}

fn foreign(out: &mut String) {
    let all = || {
        let families = FAMILIES
            .iter()
            .map(|(prefix, foreign)| (format!("{prefix}*"), *foreign));
        FOREIGN
            .iter()
            .map(|(name, foreign)| ((*name).to_owned(), *foreign))
            .chain(families)
    };
    out.push_str("### Kafka's other keys\n\nOther names:");
    for (name, foreign) in all() {
        if let Foreign::Alias(to) = foreign {
            let _ = write!(out, " `{name}` is `{to}`;");
        }
    }
    out.pop();
    out.push_str(".\n\n| read over, with a warning | because |\n|---|---|\n");
    reasons(
        out,
        all().filter_map(|(name, foreign)| match foreign {
            Foreign::Ignored(reason) => Some((reason, name)),
            _ => None,
        }),
    );
    out.push_str("\n| refused | because |\n|---|---|\n");
    reasons(
        out,
        all().filter_map(|(name, foreign)| match foreign {
            Foreign::Refused(reason) => Some((reason, name)),
            _ => None,
        }),
    );
}

/// One row for each reason.
fn reasons(out: &mut String, pairs: impl Iterator<Item = (&'static str, String)>) {
    let mut rows: Vec<(&'static str, Vec<String>)> = Vec::new();
    for (reason, name) in pairs {
        let name = format!("`{name}`");
        match rows.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(name),
            None => rows.push((reason, vec![name])),
        }
    }
    for (reason, names) in rows {
        let _ = writeln!(out, "| {} | {reason} |", names.join(", "));
    }
}

/// A properties file with every key, its meaning in a comment above it; keys at their default
/// are commented out.
pub fn properties_file(config: &Config) -> String {
    let mut out = String::new();
    for chapter in KEYS.chunk_by(|a, b| a.section == b.section) {
        let _ = write!(out, "######## {}\n\n", chapter[0].section);
        for key in chapter {
            let value = config.value(key.name).unwrap_or_default();
            let mark = if value == key.default { "#" } else { "" };
            let allowed = key.rule.to_string();
            let allowed = if allowed.is_empty() {
                allowed
            } else {
                format!(" Allowed: {allowed}.")
            };
            for line in wrap(&format!("{}{allowed}", key.about()), 94) {
                let _ = writeln!(out, "# {line}");
            }
            let _ = write!(
                out,
                "{mark}{}={}\n\n",
                key.name,
                value.replace('\\', "\\\\")
            );
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
