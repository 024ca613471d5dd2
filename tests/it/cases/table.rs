//! The table of cases in docs/testing.md names exactly the tests that there are.

use std::collections::BTreeSet;
use std::path::Path;

/// The words among these that are names of case tests: `c`, two digits and more.
fn cases<'a>(words: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    words
        .filter(|word| {
            matches!(word.as_bytes(), [b'c', a, b, b'_', ..] if a.is_ascii_digit() && b.is_ascii_digit())
        })
        .collect()
}

fn sources(dir: &Path, text: &mut String) {
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => sources(&path, text),
            path => text.push_str(&std::fs::read_to_string(path).unwrap()),
        }
    }
}

#[test]
fn the_table_of_cases_names_every_test_of_a_case() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut code = String::new();
    sources(&root.join("tests/it/cases"), &mut code);
    let docs = std::fs::read_to_string(root.join("docs/testing.md")).unwrap();
    let (_, table) = docs.split_once("<!-- cases: begin -->").unwrap();
    let functions = code.split("fn ").filter_map(|rest| rest.split_once('('));
    let functions = cases(functions.map(|(name, _)| name));
    assert_eq!(cases(table.split('`')), functions);
    for case in 1..=78 {
        assert!(
            table.contains(&format!("| C{case:02} |")),
            "C{case:02} is missing"
        );
    }
}
