//! The command line: arguments to actions, errors to exit codes. What an action does is done in the
//! rooms below; running a server from start to signal stands in `serve.rs`.

mod bench;
mod groups;
mod logging;
mod moment;
mod remote;
mod serve;
mod simulate;
mod table;
mod topics;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use self::logging::Logging;
use crate::admin;
use crate::config::{self, Config, Loader, Place};
use crate::server;

/// A Kafka-protocol-compatible group coordinator: consumer groups, offsets and topics in one
/// process.
#[derive(Debug, Parser)]
#[command(name = "convoke", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a server until SIGTERM or Ctrl-C.
    #[command(after_help = "`convoke config` lists every key with its default, range and meaning.")]
    Serve(Serve),
    /// What groups there are, why they rebalance, who commits, and what can be done to them.
    ///
    /// Speaks to a running server's HTTP. Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no such group, member or
    /// topic, 4 refused as things are or without the token, 5 not confirmed.
    Groups(groups::Groups),
    /// What topics there are, and who consumes them.
    Topics(topics::Topics),
    /// Print a shell's completions of this command.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print every key of the configuration, as a file to start from.
    ///
    /// Values given by --config or --set are printed as they are; keys at their default are
    /// commented out.
    Config(Sources),
    /// Hold the coordinator to its rules in simulated worlds: same seed, same world.
    ///
    /// A world has its own clock, network, disk and clients, and everything that can go wrong does. A seed that
    /// fails prints the command that repeats it.
    Simulate(simulate::Simulate),
    /// Measure heartbeats, commits and rebalances of any server that speaks the Kafka protocol.
    ///
    /// Makes a topic and groups of its own and removes them again. What it measures it checks: the last acknowledged
    /// commits are read back, assignments are disjoint. A check that fails is exit code 1.
    #[command(args_override_self = true)]
    Bench(bench::Bench),
}

/// Where values come from. A flag of its own overrides --set, and --set overrides the file.
#[derive(Debug, Args)]
struct Sources {
    /// A properties file with Kafka's keys.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A single key; may be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

#[derive(Debug, Args)]
struct Serve {
    #[command(flatten)]
    sources: Sources,
    /// Where to listen: HOST:PORT or NAME://HOST:PORT; may be given several times. Port 0 is any
    /// free port. [default: 127.0.0.1:9092]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Vec<String>,
    /// What clients are told to dial: HOST, HOST:PORT or NAME://HOST:PORT; may be given several
    /// times. Without a port it is the one that was bound. [default: as --listen]
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Vec<String>,
    /// The data folder. [default: convoke-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Keep everything in memory, for a server to throw away.
    #[arg(long, conflicts_with = "data")]
    memory: bool,
    /// Where to serve the page, its API, health and metrics over HTTP, or `off`. [default: 127.0.0.1:9644]
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// A file with the token that whoever changes something over HTTP has to show; needed beyond loopback.
    #[arg(long, value_name = "FILE")]
    http_token_file: Option<PathBuf>,
    #[command(flatten)]
    logging: Logging,
}

/// Why the command ends without success.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Config(#[from] config::Error),
    #[error(transparent)]
    Logging(#[from] logging::Error),
    #[error("--advertise {text}: there are several listeners; write --advertise NAME://HOST:PORT")]
    AdvertiseWhich { text: String },
    #[error("cannot serve HTTP on {address}: {source}; choose another with --http, or --http off")]
    Http {
        address: String,
        source: std::io::Error,
    },
    #[error(transparent)]
    Token(#[from] admin::TokenError),
    #[error("cannot start: {0}")]
    Start(#[source] server::Error),
    #[error("stopped with an error: {0}")]
    Stop(#[source] server::Error),
    #[error("the server has failed and was stopped: {reason}")]
    Failed { reason: String },
    #[error("stopped at once by a second signal")]
    SecondSignal,
    #[error(transparent)]
    Bench(#[from] bench::Error),
    #[error(transparent)]
    Remote(#[from] remote::Error),
    #[error("{text}")]
    Usage { text: String },
    #[error("not confirmed; nothing was done")]
    NotConfirmed,
    #[error("{failed} of {seeds} worlds fail")]
    Simulated { failed: u64, seeds: u64 },
    #[error("cannot run: {0}")]
    System(#[from] std::io::Error),
}

impl Error {
    /// 2 for what the caller has to correct, 1 for what went wrong; what a server refuses has codes of its own.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Remote(error) => error.exit_code(),
            Self::NotConfirmed => 5,
            Self::Usage { .. } => 2,
            Self::Config(_)
            | Self::Logging(_)
            | Self::AdvertiseWhich { .. }
            | Self::Token(_)
            | Self::Start(server::Error::Config(_)) => 2,
            _ => 1,
        }
    }
}

/// Runs the command of this process and gives its exit code: 0 success, 1 failure, 2 wrong usage
/// or configuration. Errors are told on stderr.
pub fn run() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve_command(&args),
        Command::Config(sources) => config_command(&sources),
        Command::Simulate(args) => args.run(),
        Command::Bench(args) => args.run().map_err(Error::from),
        Command::Groups(args) => args.run(),
        Command::Topics(args) => args.run(),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "convoke", &mut text);
            let _ = std::io::stdout().write_all(&text);
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn serve_command(args: &Serve) -> Result<(), Error> {
    let (config, warnings) = args.load()?;
    args.logging.start()?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("convoke")
        .enable_all()
        .build()?;
    let done = runtime.block_on(serve::serve(config));
    // What still reads or writes files must not hold up the end: it is durable, or was never
    // acknowledged.
    runtime.shutdown_background();
    done
}

fn config_command(sources: &Sources) -> Result<(), Error> {
    let mut loader = Loader::new();
    sources.load(&mut loader)?;
    let (config, warnings) = loader.finish()?;
    let mut text = config::properties_file(&config);
    for warning in warnings {
        let _ = writeln!(text, "# {warning}");
    }
    // A closed pipe (`| head`) is no failure.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

impl Sources {
    fn load(&self, loader: &mut Loader) -> Result<(), Error> {
        if let Some(file) = &self.config {
            loader.file(file)?;
        }
        for assignment in &self.set {
            loader.set(assignment)?;
        }
        Ok(())
    }
}

impl Serve {
    fn load(&self) -> Result<(Config, Vec<String>), Error> {
        let mut loader = Loader::new();
        self.sources.load(&mut loader)?;
        if !self.listen.is_empty() {
            loader.assign("listeners", &self.listen.join(","), Place::Flag("--listen"))?;
        }
        if !self.advertise.is_empty() {
            let advertised = self.advertised(&loader)?;
            loader.assign(
                "advertised.listeners",
                &advertised,
                Place::Flag("--advertise"),
            )?;
        }
        if let Some(folder) = &self.data {
            let folder = folder.to_string_lossy();
            loader.assign("convoke.data.dir", &folder, Place::Flag("--data"))?;
            loader.assign("convoke.storage", "disk", Place::Flag("--data"))?;
        }
        if self.memory {
            loader.assign("convoke.storage", "memory", Place::Flag("--memory"))?;
        }
        if let Some(http) = &self.http {
            loader.assign("convoke.http.listen", http, Place::Flag("--http"))?;
        }
        if let Some(file) = &self.http_token_file {
            let place = Place::Flag("--http-token-file");
            loader.assign("convoke.http.token.file", &file.to_string_lossy(), place)?;
        }
        Ok(loader.finish()?)
    }

    /// The addresses with a port and the name of their listener each.
    fn advertised(&self, loader: &Loader) -> Result<String, Error> {
        let listeners = loader.listener_names();
        let mut whole = Vec::new();
        for text in &self.advertise {
            let (name, address) = match (text.split_once("://"), listeners.as_slice()) {
                (Some((name, address)), _) => (name, address),
                (None, [only]) => (only.as_str(), text.as_str()),
                (None, _) => return Err(Error::AdvertiseWhich { text: text.clone() }),
            };
            let has_port = address.rfind(':') > address.rfind(']');
            let port = if has_port { "" } else { ":0" };
            whole.push(format!("{name}://{address}{port}"));
        }
        Ok(whole.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(args: &[&str]) -> Result<Config, String> {
        let cli = Cli::try_parse_from(["convoke", "serve"].iter().chain(args));
        match cli.map_err(|e| e.to_string())?.command {
            Command::Serve(serve) => serve
                .load()
                .map(|(config, _)| config)
                .map_err(|e| e.to_string()),
            _ => Err("another command".to_owned()),
        }
    }

    #[test]
    fn the_arguments_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_override_assignments() {
        let config = load(&[
            "--set",
            "listeners=A://127.0.0.1:1",
            "--listen",
            "127.0.0.1:2",
        ])
        .unwrap();
        assert_eq!(config.endpoints().unwrap()[0].bind.port, 2);
        let config = load(&["--memory", "--http", "off", "--set", "num.partitions=3"]).unwrap();
        assert_eq!(config.storage, config::Storage::Memory);
        assert_eq!(config.http_listen, config::HttpListen::Off);
        assert_eq!(config.num_partitions, 3);
    }

    #[test]
    fn an_advertised_address_takes_its_listeners_name_and_port() {
        for (listen, advertise, told) in [
            ("0.0.0.0:9092", "convoke", "convoke:0"),
            ("OUT://0.0.0.0:9092", "convoke:19092", "convoke:19092"),
            ("[::]:0", "[fd00::1]", "[fd00::1]:0"),
            ("OUT://:9092", "OUT://[fd00::1]:7", "[fd00::1]:7"),
        ] {
            let config = load(&["--listen", listen, "--advertise", advertise]).unwrap();
            let endpoints = config.endpoints().unwrap();
            assert_eq!(
                endpoints[0].advertised.to_string(),
                told,
                "{listen} {advertise}"
            );
        }
        let text = load(&[
            "--listen",
            "A://h:1",
            "--listen",
            "B://h:2",
            "--advertise",
            "h:3",
        ]);
        assert!(text.unwrap_err().contains("--advertise NAME://HOST:PORT"));
    }

    #[test]
    fn a_listener_on_every_interface_must_be_advertised() {
        let text = load(&["--listen", "0.0.0.0:9092"]).unwrap_err();
        assert!(text.contains("--advertise HOST:PORT"), "{text}");
    }
}
