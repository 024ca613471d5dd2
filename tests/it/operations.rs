//! The tables of docs/operations.md are what the code says. `UPDATE=1` writes them anew.

use convoke::{config, server::metrics};

#[test]
fn the_page_on_operations_has_the_tables_of_keys_and_metrics() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md");
    let page = std::fs::read_to_string(path).unwrap();
    let page_with = |page: &str, mark: &str, table: &str| {
        let (begin, end) = (
            format!("<!-- {mark}: begin -->\n"),
            format!("<!-- {mark}: end -->"),
        );
        let (head, rest) = page.split_once(&begin).expect("the page has the mark");
        let (_, tail) = rest.split_once(&end).expect("the page has the mark");
        format!("{head}{begin}\n{}\n\n{end}{tail}", table.trim())
    };
    let right = page_with(&page, "keys", &config::markdown());
    let right = page_with(&right, "metrics", &metrics::markdown());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, right).unwrap();
    } else {
        assert!(
            page == right,
            "run UPDATE=1 cargo test --test it the_page_on_operations"
        );
    }
}
