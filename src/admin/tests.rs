use std::sync::Mutex;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::*;

/// Asks a router over a real socket; head and body come back.
async fn ask(standing: Standing, request: &str) -> (String, String) {
    let sources = Sources {
        metrics: Arc::new(|| Box::pin(async { "a_metric 1\n".to_owned() })),
        standing: Arc::new(move || standing.clone()),
        looking: Looking::default(),
        door: Door::default(),
        lag_groups_max: 10,
    };
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let done = async {
        let _ = stopped.await;
    };
    let server = tokio::spawn(serve(socket, sources, done));
    let mut stream = TcpStream::connect(address).await.unwrap();
    let text = format!("{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    stop.send(()).unwrap();
    server.await.unwrap().unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

fn loading() -> Standing {
    Standing {
        phase: "loading",
        shards: Shards {
            total: 50,
            loaded: 12,
            closed: Vec::new(),
        },
        log: Progress {
            read_bytes: 10,
            total_bytes: 40,
        },
        ..Standing::default()
    }
}

#[tokio::test]
async fn readiness_tells_how_far_loading_has_come() {
    let (head, body) = ask(loading(), "GET /readyz").await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert_eq!(
        body,
        r#"{"ready":false,"phase":"loading","shards":{"total":50,"loaded":12,"closed":[]},"log":{"read_bytes":10,"total_bytes":40},"reloads":0,"failed":null}"#
    );
    let (head, _) = ask(
        Standing {
            ready: true,
            ..loading()
        },
        "GET /readyz",
    )
    .await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

#[tokio::test]
async fn health_is_about_the_process_not_about_loading() {
    let (head, body) = ask(loading(), "GET /healthz").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert_eq!(body, r#"{"status":"ok"}"#);
    let failed = Standing {
        failed: Some("a sync failed".to_owned()),
        ..loading()
    };
    let (head, body) = ask(failed, "GET /healthz").await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert_eq!(body, r#"{"status":"failed","reason":"a sync failed"}"#);
}

#[tokio::test]
async fn metrics_come_in_the_text_format() {
    let (head, body) = ask(loading(), "GET /metrics").await;
    assert!(
        head.contains("content-type: text/plain; version=0.0.4"),
        "{head}"
    );
    assert_eq!(body, "a_metric 1\n");
}

#[tokio::test]
async fn errors_are_problem_documents() {
    let (head, body) = ask(loading(), "GET /nowhere").await;
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    assert!(head.contains("application/problem+json"), "{head}");
    assert_eq!(
        body,
        r#"{"title":"Not Found","status":404,"detail":"there is no page /nowhere; see /"}"#
    );
    let (head, body) = ask(loading(), "POST /readyz").await;
    assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
    assert!(body.contains("does not know this method"), "{body}");
}

#[tokio::test]
async fn the_standing_is_asked_for_anew_each_time() {
    let count = Arc::new(Mutex::new(0));
    let counted = count.clone();
    let sources = Sources {
        metrics: Arc::new(|| Box::pin(async { String::new() })),
        standing: Arc::new(move || {
            *counted.lock().unwrap() += 1;
            Standing::default()
        }),
        looking: Looking::default(),
        door: Door::default(),
        lag_groups_max: 10,
    };
    let (_, stopped) = watch::channel(false);
    let board = Board {
        api: Api::new(sources.looking.clone(), stopped),
        sources: Arc::new(sources),
    };
    let _ = readyz(State(board.clone())).await;
    let _ = healthz(State(board)).await;
    assert_eq!(*count.lock().unwrap(), 2);
}
