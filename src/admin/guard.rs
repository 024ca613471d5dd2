//! Who may do what over HTTP. A page of somebody else's in an operator's browser may neither read nor change anything:
//! the `Host` must be one of ours (DNS rebinding), and what changes state must not come from another site. Beyond
//! loopback, whoever changes state shows a token.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;

/// The shortest token that is taken: 16 characters are beyond guessing over a network.
const TOKEN_BYTES_MIN: usize = 16;
/// The longest file that a token is read from.
const TOKEN_BYTES_MAX: usize = 4096;

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token for HTTP from {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// What it holds cannot be a token.
    #[error(
        "{} holds no token for HTTP: write {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} visible ASCII characters on one line, for example by: openssl rand -hex 32",
        path.display()
    )]
    Form {
        /// The file.
        path: PathBuf,
    },
}

/// What whoever changes state has to show.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Reads a file with a token on its only line.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let text = std::fs::read_to_string(path).map_err(|source| TokenError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text).ok_or_else(|| TokenError::Form {
            path: path.to_owned(),
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let token = text.trim();
        let long = (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len());
        let visible = token.bytes().all(|byte| byte.is_ascii_graphic());
        (long && visible).then(|| Self(token.into()))
    }

    /// The token, to show it to a server.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Takes as long whatever the first difference is.
    fn is(&self, shown: &str) -> bool {
        let (mine, shown) = (self.0.as_bytes(), shown.as_bytes());
        let differences = mine.iter().zip(shown).fold(0, |all, (a, b)| all | (a ^ b));
        mine.len() == shown.len() && std::hint::black_box(differences) == 0
    }
}

/// Who may come in.
#[derive(Clone, Debug, Default)]
pub struct Door {
    /// Names besides addresses and `localhost` that a `Host` header may have.
    pub hosts: Vec<String>,
    /// What whoever changes state has to show.
    pub token: Option<Token>,
    /// Whether others than this machine can connect. Without a token nobody may change state then.
    pub is_open: bool,
}

impl Door {
    fn check(&self, request: &Request) -> Result<(), Problem> {
        let path = request.uri().path();
        // What only tells how the server is, to probes that come by any name.
        if matches!(path, "/healthz" | "/readyz") {
            return Ok(());
        }
        let headers = request.headers();
        let host = self.check_host(request)?;
        if matches!(
            *request.method(),
            Method::GET | Method::HEAD | Method::OPTIONS
        ) {
            return Ok(());
        }
        check_site(headers, host)?;
        self.check_token(headers)
    }

    /// A page whose name was made to lead here shows itself by the name.
    fn check_host<'a>(&self, request: &'a Request) -> Result<&'a str, Problem> {
        let host = request.headers().get(header::HOST);
        let host = match (host, request.uri().authority()) {
            (Some(host), _) => host.to_str().unwrap_or_default(),
            (None, Some(authority)) => authority.as_str(),
            (None, None) => "",
        };
        let name = without_port(host);
        let known = |known: &String| known == "*" || known.eq_ignore_ascii_case(name);
        if is_address(name)
            || name.eq_ignore_ascii_case("localhost")
            || (!name.is_empty() && self.hosts.iter().any(known))
        {
            return Ok(host);
        }
        Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            format!(
                "this server is not known as {name:?}: use its address or localhost, or add the name to convoke.http.hosts"
            ),
        ))
    }

    fn check_token(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(token) = &self.token else {
            if self.is_open {
                return Err(Problem::new(
                    StatusCode::FORBIDDEN,
                    "HTTP listens beyond loopback without a token, so nothing can be changed: start the server with --http-token-file FILE",
                ));
            }
            return Ok(());
        };
        let shown = headers.get(header::AUTHORIZATION);
        let shown = shown.and_then(|shown| shown.to_str().ok());
        let shown = shown.and_then(|shown| {
            let (scheme, shown) = shown.split_once(' ')?;
            scheme
                .eq_ignore_ascii_case("bearer")
                .then_some(shown.trim())
        });
        match shown {
            Some(shown) if token.is(shown) => Ok(()),
            Some(_) => Err(Problem::new(
                StatusCode::UNAUTHORIZED,
                "this is not the server's token",
            )),
            None => Err(Problem::new(
                StatusCode::UNAUTHORIZED,
                "whoever changes something shows the server's token: Authorization: Bearer TOKEN",
            )),
        }
    }
}

/// A browser says where a request comes from; programs say nothing.
fn check_site(headers: &HeaderMap, host: &str) -> Result<(), Problem> {
    let site = headers.get("sec-fetch-site");
    let site_fits = site.is_none_or(|site| site == "same-origin" || site == "none");
    let origin_fits = headers.get_all(header::ORIGIN).iter().all(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        let origin = origin
            .strip_prefix("http://")
            .or_else(|| origin.strip_prefix("https://"));
        origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host))
    });
    if site_fits && origin_fits {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::FORBIDDEN,
        "another site's page must not change anything here",
    ))
}

/// The host of `HOST:PORT`, `HOST` or `[IPV6]:PORT`.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|byte| byte.is_ascii_digit())
                && (!name.contains(':') || name.ends_with(']')) =>
        {
            name
        }
        _ => host,
    }
}

fn is_address(name: &str) -> bool {
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    match bare {
        Some(bare) => bare.parse::<std::net::Ipv6Addr>().is_ok(),
        None => name.parse::<IpAddr>().is_ok(),
    }
}

/// Lets in who may come in, and tells browsers what not to do with the answer.
pub(super) async fn guard(State(door): State<Arc<Door>>, request: Request, next: Next) -> Response {
    let mut answer = match door.check(&request) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        let headers = answer.headers_mut();
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(method: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = Request::builder().method(method).uri("/v1/groups");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::empty()).unwrap()
    }

    fn status(door: &Door, method: &str, headers: &[(&str, &str)]) -> u16 {
        match door.check(&request(method, headers)) {
            Ok(()) => 200,
            Err(problem) => problem.into_response().status().as_u16(),
        }
    }

    #[test]
    fn only_addresses_and_known_names_lead_here() {
        let mut door = Door::default();
        for (host, wanted) in [
            ("127.0.0.1:9644", 200),
            ("127.0.0.1", 200),
            ("[::1]:9644", 200),
            ("[::1]", 200),
            ("10.1.2.3:1", 200),
            ("localhost:9644", 200),
            ("LOCALHOST", 200),
            ("evil.example:9644", 421),
            ("127.0.0.1.evil.example", 421),
            ("localhost.evil.example", 421),
            ("[evil]:1", 421),
            ("", 421),
        ] {
            assert_eq!(status(&door, "GET", &[("host", host)]), wanted, "{host}");
        }
        assert_eq!(status(&door, "GET", &[]), 421);
        door.hosts = vec!["Convoke.Internal".to_owned()];
        assert_eq!(
            status(&door, "GET", &[("host", "convoke.internal:9644")]),
            200
        );
        assert_eq!(
            status(&door, "GET", &[("host", "other.internal:9644")]),
            421
        );
    }

    #[test]
    fn another_sites_page_changes_nothing() {
        let door = Door::default();
        let host = ("host", "127.0.0.1:9644");
        for (name, value, wanted) in [
            ("origin", "http://127.0.0.1:9644", 200),
            ("origin", "https://127.0.0.1:9644", 200),
            ("origin", "http://127.0.0.1:9645", 403),
            ("origin", "http://evil.example", 403),
            ("origin", "null", 403),
            ("origin", "", 403),
            ("sec-fetch-site", "same-origin", 200),
            ("sec-fetch-site", "none", 200),
            ("sec-fetch-site", "same-site", 403),
            ("sec-fetch-site", "cross-site", 403),
        ] {
            for method in ["POST", "PUT", "DELETE"] {
                let answered = status(&door, method, &[host, (name, value)]);
                assert_eq!(answered, wanted, "{method} {name}: {value}");
            }
            assert_eq!(status(&door, "GET", &[host, (name, value)]), 200);
        }
    }

    #[test]
    fn beyond_loopback_a_change_needs_the_token() {
        let host = ("host", "10.0.0.1:9644");
        let mut door = Door {
            is_open: true,
            ..Door::default()
        };
        assert_eq!(status(&door, "GET", &[host]), 200);
        assert_eq!(status(&door, "POST", &[host]), 403);
        door.token = Token::parse("0123456789abcdef\n");
        for (shown, wanted) in [
            ("Bearer 0123456789abcdef", 200),
            ("bearer 0123456789abcdef", 200),
            ("Bearer 0123456789abcdeF", 401),
            ("Bearer 0123456789abcdef0", 401),
            ("Bearer ", 401),
            ("Basic 0123456789abcdef", 401),
        ] {
            let answered = status(&door, "POST", &[host, ("authorization", shown)]);
            assert_eq!(answered, wanted, "{shown}");
        }
        assert_eq!(status(&door, "DELETE", &[host]), 401);
        assert_eq!(status(&door, "GET", &[host]), 200);
        // A token that is set is asked for on loopback, too.
        door.is_open = false;
        assert_eq!(status(&door, "POST", &[host]), 401);
    }

    #[test]
    fn a_token_is_one_long_word() {
        for bad in [
            "",
            "short",
            "0123456789abcde",
            "0123456789 abcdef",
            "0123456789abcdé",
        ] {
            assert!(Token::parse(bad).is_none(), "{bad:?}");
        }
        assert!(Token::parse(&"x".repeat(TOKEN_BYTES_MAX + 1)).is_none());
        let token = Token::parse(" 0123456789abcdef\r\n").unwrap();
        assert_eq!(token.expose(), "0123456789abcdef");
        assert!(!format!("{token:?}").contains('0'));
    }
}
