use std::collections::BTreeSet;

use super::*;

fn asset(path: &str) -> &'static Asset {
    let found = ASSETS.iter().find(|asset| asset.path == path);
    found.unwrap_or_else(|| panic!("no file {path}"))
}

fn text(asset: &Asset) -> &str {
    std::str::from_utf8(asset.body).unwrap()
}

fn ask(asset: &Asset, if_none_match: Option<&str>) -> Response {
    let tag = HeaderValue::try_from(asset.tag()).unwrap();
    let mut asked = HeaderMap::new();
    if let Some(value) = if_none_match {
        asked.insert(header::IF_NONE_MATCH, value.parse().unwrap());
    }
    asset.answer(&tag, &asked)
}

#[test]
fn a_file_comes_with_its_kind_its_tag_and_the_policy() {
    for asset in ASSETS {
        let response = ask(asset, None);
        assert_eq!(response.status(), StatusCode::OK);
        let headers = response.headers();
        assert_eq!(headers[header::CONTENT_TYPE], asset.kind);
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        assert_eq!(headers[header::CACHE_CONTROL], "no-cache");
        let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.contains("default-src 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}

#[test]
fn a_file_that_the_browser_has_is_not_sent_again() {
    let page = asset("/");
    let tag = page.tag();
    for known in [
        tag.clone(),
        format!("W/{tag}"),
        format!("\"x\", {tag}"),
        "*".to_owned(),
    ] {
        let response = ask(page, Some(&known));
        assert_eq!(response.status(), StatusCode::NOT_MODIFIED, "{known}");
        assert_eq!(response.headers()[header::ETAG], tag.as_str());
    }
    assert_eq!(ask(page, Some("\"other\"")).status(), StatusCode::OK);
}

#[test]
fn what_the_page_asks_for_is_served() {
    let page = text(asset("/"));
    let mut wanted: BTreeSet<&str> = page
        .split('"')
        .filter(|part| part.starts_with("/assets/"))
        .collect();
    for script in ASSETS.iter().filter(|asset| asset.kind == SCRIPT) {
        let imports = text(script)
            .lines()
            .filter(|line| line.contains(" from './"));
        for line in imports {
            let (_, file) = line.split_once("./").unwrap();
            let (file, _) = file.split_once('\'').unwrap();
            wanted.insert(file);
        }
    }
    let served = |name: &str| ASSETS.iter().any(|asset| asset.path.ends_with(name));
    for name in &wanted {
        assert!(served(name), "{name} is not served");
    }
    for asset in ASSETS.iter().filter(|asset| asset.path != "/") {
        let used = wanted.iter().any(|name| asset.path.ends_with(name));
        assert!(used, "nobody asks for {}", asset.path);
    }
}

/// Group ids and client ids are whatever a client sends: they may become text, never markup.
#[test]
fn nothing_on_the_page_makes_markup_or_script_of_text() {
    for asset in ASSETS {
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "DOMParser",
            "createContextualFragment",
            "eval(",
            "new Function",
            "setTimeout('",
            "javascript:",
            " onclick=",
            " onload=",
            " style=",
        ] {
            assert!(!text(asset).contains(word), "{} has {word}", asset.path);
        }
    }
}

#[test]
fn the_page_needs_no_other_host() {
    for asset in ASSETS {
        let body = text(asset).replace("http://www.w3.org/2000/svg", "");
        for word in ["http://", "https://", "@import", "url("] {
            assert!(!body.contains(word), "{} has {word}", asset.path);
        }
    }
}
