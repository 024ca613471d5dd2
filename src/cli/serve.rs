//! `convoke serve`: a server from its start to a signal, with HTTP beside it.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;

use super::Error;
use crate::admin::{self, ClosedShard, Door, Looking, Progress, Shards, Sources, Standing, Token};
use crate::config::{Config, HttpListen, LogSync, Storage};
use crate::server::{Observer, Server};

/// Runs a server until a signal comes or it fails.
pub(super) async fn serve(config: Config) -> Result<(), Error> {
    let mut signals = Signals::listen()?;
    raise_open_files();
    let looking = Looking::default();
    let (stop_http, stopped) = watch::channel(false);
    // HTTP first: a long start can be watched, and a taken port is told before any work.
    let http = Http::open(&config, &looking, stopped).await?;

    let starting = Server::builder().config(config.clone()).start();
    let server = tokio::select! {
        started = starting => started.map_err(Error::Start)?,
        () = signals.next() => {
            tracing::info!("stopped before the start was complete");
            return Ok(());
        }
    };
    let _ = looking.set(server.observer());
    banner(&config, &server, http.as_ref());
    warn_if_open(&config);

    let failure = run(&server, &mut signals).await;
    let stopped = tokio::select! {
        stopped = server.stop() => stopped.map_err(Error::Stop),
        () = signals.next() => Err(Error::SecondSignal),
    };
    stop_http.send_replace(true);
    if let Some(reason) = failure {
        return Err(Error::Failed { reason });
    }
    stopped.inspect(|()| tracing::info!("stopped; everything acknowledged is stored"))
}

/// Waits for the end. `Some` is why the server has failed.
async fn run(server: &Server, signals: &mut Signals) -> Option<String> {
    let ready = async {
        server.ready().await;
        tracing::info!("ready: every group is loaded");
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = signals.next() => {
            tracing::info!("stopping: no new connections, waiting requests are answered (a second signal ends at once)");
            None
        }
        reason = server.failed() => Some(reason),
        () = ready => None,
    }
}

/// HTTP, where it is on.
struct Http {
    address: String,
}

impl Http {
    async fn open(
        config: &Config,
        looking: &Looking,
        mut stopped: watch::Receiver<bool>,
    ) -> Result<Option<Self>, Error> {
        let HttpListen::At(wanted) = &config.http_listen else {
            return Ok(None);
        };
        let token = config.http_token_file.as_deref().map(Token::read);
        let token = token.transpose()?;
        let host = if wanted.host.is_empty() {
            "0.0.0.0"
        } else {
            &wanted.host
        };
        let refused = |source| Error::Http {
            address: wanted.to_string(),
            source,
        };
        let socket = TcpListener::bind((host, wanted.port))
            .await
            .map_err(refused)?;
        let address = socket.local_addr().map_err(refused)?;
        let is_open = !address.ip().is_loopback();
        if is_open {
            let changes = match &token {
                Some(_) => "whoever has the token changes groups",
                None => "nothing can be changed without --http-token-file",
            };
            tracing::warn!(
                "HTTP on {address} is open to the network, without encryption: everybody reads, {changes}"
            );
        }
        let mut hosts = config.http_hosts.clone();
        hosts.push(wanted.host.clone());
        let door = Door {
            hosts,
            token,
            is_open,
        };
        let sources = sources(config, looking, door);
        let stop = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        tokio::spawn(async move {
            if let Err(error) = admin::serve(socket, sources, stop).await {
                tracing::error!("HTTP on {address} has ended: {error}");
            }
        });
        Ok(Some(Self {
            address: address.to_string(),
        }))
    }
}

fn sources(config: &Config, looking: &Looking, door: Door) -> Sources {
    let (for_metrics, for_standing) = (looking.clone(), looking.clone());
    Sources {
        metrics: Arc::new(move || {
            let observer = for_metrics.get().cloned();
            Box::pin(async move {
                match observer {
                    Some(observer) => observer.scrape().await,
                    None => String::new(),
                }
            })
        }),
        standing: Arc::new(move || for_standing.get().map_or_else(opening, standing)),
        looking: looking.clone(),
        door,
        lag_groups_max: usize::try_from(config.metrics_lag_groups_max).unwrap_or(0),
    }
}

fn opening() -> Standing {
    Standing {
        phase: "opening",
        ..Standing::default()
    }
}

fn standing(observer: &Observer) -> Standing {
    let report = observer.readiness();
    let stopping = observer.is_stopping();
    let phase = match &report {
        _ if report.failed.is_some() => "failed",
        _ if stopping => "stopping",
        _ if report.ready => "serving",
        _ if report.loading > 0 => "loading",
        _ => "degraded",
    };
    let closed = report.closed.into_iter();
    let closed: Vec<_> = closed
        .map(|(shard, reason)| ClosedShard { shard, reason })
        .collect();
    Standing {
        ready: report.ready && !stopping && report.failed.is_none(),
        phase,
        shards: Shards {
            total: report.shards,
            loaded: report.shards.saturating_sub(report.loading + closed.len()),
            closed,
        },
        log: Progress {
            read_bytes: report.loaded_bytes.0,
            total_bytes: report.loaded_bytes.1,
        },
        reloads: report.panics,
        failed: report.failed,
    }
}

/// Says on stdout what an operator needs to know now.
fn banner(config: &Config, server: &Server, http: Option<&Http>) {
    let mut text = format!("convoke {}\n", env!("CARGO_PKG_VERSION"));
    for address in server.addresses() {
        let _ = writeln!(
            text,
            "  listener   {}://{}, clients dial {}",
            address.listener, address.local, address.advertised
        );
    }
    let _ = writeln!(text, "  data       {}", data(config));
    let _ = match http {
        Some(http) => writeln!(
            text,
            "  http       http://{}/ (page, /v1, healthz, readyz, metrics)",
            http.address
        ),
        None => writeln!(text, "  http       off"),
    };
    let _ = writeln!(
        text,
        "  cluster    {}, node {}",
        server.cluster_id(),
        config.node_id
    );
    let several = server.addresses().len() > 1;
    for address in server.addresses() {
        let of = if several {
            format!(" (listener {})", address.listener)
        } else {
            String::new()
        };
        let _ = write!(
            text,
            "For a client's configuration{of}:\n  bootstrap.servers={}\n",
            address.advertised
        );
    }
    // Nobody has to read it.
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn data(config: &Config) -> String {
    if config.storage == Storage::Memory {
        return "in memory: gone when the process ends".to_owned();
    }
    let folder = std::path::absolute(&config.data_dir).unwrap_or_else(|_| config.data_dir.clone());
    let sync = match config.log_sync {
        LogSync::Always => "group log synced before every reply".to_owned(),
        LogSync::Interval { interval_ms } => format!(
            "group log synced every {interval_ms} ms: a power cut may lose what was acknowledged since"
        ),
        LogSync::None => {
            "group log not synced: a power cut may lose what was acknowledged".to_owned()
        }
    };
    format!("{} ({sync})", folder.display())
}

/// Decision of the house: until there are TLS and SASL, whoever opens a port is told.
fn warn_if_open(config: &Config) {
    for listener in config.endpoints().unwrap_or_default() {
        if !listener.bind.is_loopback() {
            tracing::warn!(
                "listener {} on {} is open to the network, without encryption or login: whoever reaches it can read and change everything",
                listener.name,
                listener.bind
            );
        }
    }
}

/// Each connection and each file of topic data is an open file. Shells give 1,024 and let a process
/// ask for more, which a JVM does without a word.
#[cfg(unix)]
pub(super) fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};

    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_none() || limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        let current = getrlimit(Resource::Nofile).current;
        tracing::warn!(
            "no more than {current:?} files can be open: {error}; raise it with ulimit -n"
        );
    }
}

#[cfg(not(unix))]
pub(super) fn raise_open_files() {}

/// SIGTERM and Ctrl-C.
struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    #[cfg(unix)]
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    #[cfg(unix)]
    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    #[cfg(not(unix))]
    fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    #[cfg(not(unix))]
    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
