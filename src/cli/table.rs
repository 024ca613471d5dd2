//! Tables for people: columns two spaces apart, numbers to the right, nothing in a cell that a terminal would obey.

use std::fmt::Write as _;

use serde_json::Value;

/// A table with a head.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(head: &[&str]) -> Self {
        let head = head.iter().map(|name| (*name).to_owned()).collect();
        Self { rows: vec![head] }
    }

    /// Adds a row with a cell for each column.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows
            .push(cells.into_iter().map(|cell| plain(&cell)).collect());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows[0].len();
        let cell =
            |row: &'_ Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let width = |column| {
            self.rows
                .iter()
                .map(|row| cell(row, column).chars().count())
                .max()
        };
        let widths: Vec<usize> = (0..columns)
            .map(|column| width(column).unwrap_or(0))
            .collect();
        let is_number = |text: &str| text == "-" || text.parse::<i64>().is_ok();
        let right: Vec<bool> = (0..columns)
            .map(|column| {
                self.rows[1..]
                    .iter()
                    .all(|row| is_number(&cell(row, column)))
            })
            .collect();
        for row in &self.rows {
            let mut line = String::new();
            for column in 0..columns {
                let (text, width) = (cell(row, column), widths[column]);
                let _ = if right[column] {
                    write!(line, "{text:>width$}  ")
                } else {
                    write!(line, "{text:<width$}  ")
                };
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The text with what a terminal would obey written out. Names are a client's and may be anything.
pub(super) fn plain(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control()
            || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            safe.extend(c.escape_default());
        } else {
            safe.push(c);
        }
    }
    safe
}

/// What stands at a place, for a cell: `-` for nothing.
pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        other => other.to_string(),
    }
}

/// A time in a cell.
pub(super) fn time(value: &Value) -> String {
    value
        .as_i64()
        .map_or_else(|| "-".to_owned(), super::moment::show)
}

/// A span of milliseconds in a cell, as people say it.
pub(super) fn span(value: &Value) -> String {
    let Some(ms) = value.as_i64() else {
        return "-".to_owned();
    };
    match ms {
        ..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        60_000..3_600_000 => format!("{} min", ms / 60_000),
        3_600_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} d", ms / 86_400_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right_and_nothing_trails() {
        let mut table = Table::new(&["GROUP", "LAG", "STATE"]);
        table.row(["a".to_owned(), "5".to_owned(), "Stable".to_owned()]);
        table.row(["long-name".to_owned(), "-".to_owned(), "Empty".to_owned()]);
        let shown = table.to_string();
        assert_eq!(
            shown,
            "GROUP      LAG  STATE\na            5  Stable\nlong-name    -  Empty\n"
        );
    }

    #[test]
    fn a_name_cannot_move_the_cursor() {
        let mut table = Table::new(&["GROUP"]);
        table.row(["\u{1b}[2Jx\n\u{202e}y".to_owned()]);
        assert_eq!(table.to_string(), "GROUP\n\\u{1b}[2Jx\\n\\u{202e}y\n");
    }

    #[test]
    fn spans_are_said_in_one_unit() {
        for (ms, said) in [
            (5, "5 ms"),
            (1550, "1.5 s"),
            (61_000, "1 min"),
            (7_200_000, "2 h"),
            (200_000_000, "2 d"),
        ] {
            assert_eq!(span(&Value::from(ms)), said);
        }
        assert_eq!(span(&Value::Null), "-");
    }
}
