//! A running server, spoken to over its HTTP: one request, one answer, errors in the server's own words.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

use crate::admin::{Token, TokenError};

/// How long a server may take to accept. An answer may take as long as members take to let go.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The longest answer that is read: all groups of a large server fit.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// Which server, and how its answers are shown.
#[derive(Debug, Args)]
pub(super) struct Server {
    /// Where the server's HTTP is.
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:9644",
        global = true
    )]
    http: String,
    /// The file with the server's token, for what changes something.
    #[arg(long, value_name = "FILE", global = true)]
    http_token_file: Option<PathBuf>,
    /// Print the server's answer as JSON.
    #[arg(long, global = true)]
    pub(super) json: bool,
}

/// Why there is no good answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("--http {text}: write http://HOST:PORT; there is no encryption")]
    Address { text: String },
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(
        "cannot reach the server's HTTP on {address}: {source}; is it running, and with --http?"
    )]
    Connect {
        address: String,
        source: std::io::Error,
    },
    #[error("{address} took longer than {} s to accept", CONNECT_MAX.as_secs())]
    ConnectTimeout { address: String },
    #[error(
        "the exchange with {address} broke: {why}; if it was an action, look whether it was done"
    )]
    Broken { address: String, why: String },
    #[error("{detail}")]
    Refused { status: u16, detail: String },
    #[error("cannot run: {0}")]
    System(#[from] std::io::Error),
}

impl Error {
    /// 2 for what the caller has to correct, 3 for what is not there, 4 for what cannot be in this state or may not be
    /// done, 1 for what went wrong.
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Address { .. } | Self::Token(_) => 2,
            Self::Refused { status, .. } => match status {
                400 | 405 | 413 | 415 | 421 | 422 => 2,
                404 => 3,
                401 | 403 | 409 | 429 => 4,
                _ => 1,
            },
            _ => 1,
        }
    }
}

/// A connection's far end.
#[derive(Debug)]
pub(super) struct Remote {
    address: String,
    token: Option<Token>,
}

impl Server {
    pub(super) fn remote(&self) -> Result<Remote, Error> {
        let address = self.http.strip_prefix("http://").unwrap_or(&self.http);
        let address = address.trim_end_matches('/');
        if address.is_empty() || address.contains(['/', '@', ' ', '?', '#']) {
            let text = self.http.clone();
            return Err(Error::Address { text });
        }
        let has_port = address.rfind(':') > address.rfind(']');
        let port = if has_port { "" } else { ":9644" };
        let token = self.http_token_file.as_deref().map(Token::read);
        Ok(Remote {
            address: format!("{address}{port}"),
            token: token.transpose()?,
        })
    }
}

impl Remote {
    /// Reads what stands at a path.
    pub(super) fn get(&self, path: &str) -> Result<Value, Error> {
        self.ask("GET", path, None)
    }

    /// Asks and waits for the answer, however long it takes.
    pub(super) fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(self.exchange(method, path, body))
    }

    async fn exchange(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        let address = || self.address.clone();
        let broken = |why: String| Error::Broken {
            address: address(),
            why,
        };
        let connecting = tokio::time::timeout(CONNECT_MAX, TcpStream::connect(&self.address));
        let stream = connecting
            .await
            .map_err(|_| Error::ConnectTimeout { address: address() })?
            .map_err(|source| Error::Connect {
                address: address(),
                source,
            })?;
        let text = body.map(Value::to_string).unwrap_or_default();
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.address)
            .header(header::ACCEPT, "application/json");
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        let request = request.body(Full::new(Bytes::from(text)));
        let request = request.map_err(|error| broken(error.to_string()))?;

        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(error.to_string()))?;
        // What ends the connection ends the exchange too, which tells.
        tokio::spawn(connection);
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| broken(error.to_string()))?;
        let status = answer.status();
        let bytes = Limited::new(answer.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await;
        let bytes = bytes.map_err(|error| broken(error.to_string()))?.to_bytes();
        let value: Result<Value, _> = serde_json::from_slice(&bytes);
        match value {
            Ok(value) if status.is_success() => Ok(value),
            Ok(value) => Err(Error::Refused {
                status: status.as_u16(),
                detail: match value["detail"].as_str() {
                    Some(detail) => detail.to_owned(),
                    None => format!("the server answers {status}"),
                },
            }),
            Err(_) => Err(broken(format!(
                "it answers {status}, and no JSON: this is no Convoke"
            ))),
        }
    }
}

/// A name as a part of a path.
pub(super) fn part(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~') {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(http: &str) -> Result<String, u8> {
        let server = Server {
            http: http.to_owned(),
            http_token_file: None,
            json: false,
        };
        let remote = server.remote().map_err(|error| error.exit_code())?;
        Ok(remote.address)
    }

    #[test]
    fn an_address_has_a_port() {
        assert_eq!(remote("http://127.0.0.1:1/"), Ok("127.0.0.1:1".to_owned()));
        assert_eq!(remote("localhost"), Ok("localhost:9644".to_owned()));
        assert_eq!(remote("http://[::1]"), Ok("[::1]:9644".to_owned()));
        assert_eq!(remote("https://h:1"), Err(2));
        assert_eq!(remote("http://h:1/v1"), Err(2));
    }

    #[test]
    fn a_name_stays_one_part_of_a_path() {
        assert_eq!(part("a-b_c~1"), "a-b_c~1");
        assert_eq!(part("../é?#%"), "%2E%2E%2F%C3%A9%3F%23%25");
    }
}
