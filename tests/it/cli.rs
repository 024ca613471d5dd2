//! The real binary: arguments, banner, HTTP, signals, exit codes.
#![cfg(unix)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// Longer than anything here takes; what takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// `convoke serve` in the background. Killed when the test ends before it does.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
    banner: String,
    /// Lines of stderr as they come.
    lines: Receiver<String>,
    /// Those that were read.
    log: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn convoke(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoke"));
    command.args(args).env_remove("RUST_LOG");
    command
}

/// Ends by itself, with an error.
fn refused(args: &[&str]) -> (Option<i32>, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = convoke(args).output().unwrap();
    assert!(stdout.is_empty(), "{}", String::from_utf8_lossy(&stdout));
    (status.code(), String::from_utf8(stderr).unwrap())
}

impl Running {
    fn start(args: &[&str]) -> Self {
        let ports = ["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
        let mut child = convoke(&ports)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut banner = String::new();
        while !banner.contains("bootstrap.servers=") {
            let read = stdout.read_line(&mut banner).unwrap();
            assert_ne!(read, 0, "the server ended after\n{banner}");
        }
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            while stderr.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                let _ = sender.send(std::mem::take(&mut line));
            }
        });
        let log = String::new();
        Self {
            child,
            stdout,
            banner,
            lines,
            log,
        }
    }

    /// What stands between two texts of the banner.
    fn between(&self, before: &str, after: &str) -> String {
        let (_, rest) = self
            .banner
            .split_once(before)
            .unwrap_or_else(|| panic!("{}", self.banner));
        rest.split_once(after)
            .unwrap_or_else(|| panic!("{}", self.banner))
            .0
            .to_owned()
    }

    fn bootstrap(&self) -> String {
        self.between("bootstrap.servers=", "\n")
    }

    /// Status line and body.
    fn get(&self, path: &str) -> (String, String) {
        let mut socket = TcpStream::connect(self.between("http://", "/")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    fn until_logged(&mut self, text: &str) {
        while !self.log.contains(text) {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => self.log += &line,
                Err(_) => panic!("{text:?} is not in\n{}", self.log),
            }
        }
    }

    fn until_ready(&mut self) {
        self.until_logged("ready: every group is loaded");
    }

    fn signal(&self) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Exit code and what was logged.
    fn terminate(self) -> (Option<i32>, String) {
        self.signal();
        self.end()
    }

    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        let code = self.child.wait().unwrap().code();
        let log = self
            .lines
            .iter()
            .fold(std::mem::take(&mut self.log), |log, line| log + &line);
        (code, log)
    }
}

/// ApiVersions, version 0; the reply begins with the correlation id.
fn is_kafka(address: &str) -> bool {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
        .write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 255, 255])
        .unwrap();
    let mut reply = [0; 10];
    socket.read_exact(&mut reply).unwrap();
    reply[4..] == [0, 0, 0, 7, 0, 0]
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_banner_names_real_ports_and_sigterm_ends_with_0() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Running::start(&["--data", text(folder.path())]);
    let bootstrap = server.bootstrap();
    assert!(!bootstrap.ends_with(":0"), "{}", server.banner);
    assert!(is_kafka(&bootstrap));
    let told = format!("PLAINTEXT://{bootstrap}, clients dial {bootstrap}\n");
    assert!(server.banner.contains(&told), "{}", server.banner);
    assert!(
        server
            .banner
            .contains("(group log synced before every reply)"),
        "{}",
        server.banner
    );
    server.until_ready();
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("everything acknowledged is stored"), "{log}");
    assert!(!log.contains("WARN"), "{log}");
}

#[test]
fn each_listener_has_its_line_and_an_open_one_a_warning() {
    let server = Running::start(&[
        "--memory",
        "--listen",
        "OUTSIDE://0.0.0.0:0",
        "--advertise",
        "OUTSIDE://kafka.example",
        "--log-format",
        "json",
    ]);
    let inside = server.bootstrap();
    assert!(is_kafka(&inside));
    let outside = server.between("OUTSIDE://0.0.0.0:", ",");
    let told = format!("clients dial kafka.example:{outside}\n");
    assert!(server.banner.contains(&told), "{}", server.banner);
    assert!(is_kafka(&format!("127.0.0.1:{outside}")));
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
    assert!(
        log.lines()
            .all(|line| line.starts_with('{') && line.ends_with('}')),
        "{log}"
    );
    assert!(
        log.contains("listener OUTSIDE on 0.0.0.0:0 is open to the network"),
        "{log}"
    );
}

#[test]
fn health_readiness_and_metrics_are_served() {
    let mut server = Running::start(&["--memory"]);
    server.until_ready();
    let (status, body) = server.get("/readyz");
    assert!(status.contains(" 200 "), "{status}");
    assert!(
        body.contains(r#""ready":true,"phase":"serving","shards":{"total":50,"loaded":50,"#),
        "{body}"
    );
    assert_eq!(server.get("/healthz").1, r#"{"status":"ok"}"#);
    assert!(is_kafka(&server.bootstrap()));
    let (status, body) = server.get("/metrics");
    assert!(status.contains(" 200 "), "{status}");
    assert!(
        body.contains(r#"convoke_requests_total{api="ApiVersions",version="0"} 1"#),
        "{body}"
    );
    assert!(server.get("/nowhere").0.contains(" 404 "));
}

#[test]
fn a_wrong_configuration_ends_with_2_and_says_what_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("server.properties");
    std::fs::write(&file, "# ours\ngroup.max.size=0\n").unwrap();
    for (args, says) in [
        (
            &["--set", "group.initial.rebalance.delay=0"][..],
            "error: --set: unknown key group.initial.rebalance.delay; did you mean group.initial.rebalance.delay.ms?",
        ),
        (&["--set", "group.max.size"], "write --set KEY=VALUE"),
        (
            &["--config", text(&file)],
            "server.properties, line 2: group.max.size=0 is not allowed; expected at least 1",
        ),
        (
            &["--config", "/nowhere.properties"],
            "cannot read the configuration file /nowhere.properties",
        ),
        (&["--listen", "0.0.0.0:0"], "--advertise HOST:PORT"),
        (&["--http", "nowhere"], "HOST:PORT, or off"),
        (&["--log-level", "loud"], "error, warn, info, debug, trace"),
        (&["--memory", "--data", "x"], "cannot be used with"),
        (&["--sett", "a=b"], "unexpected argument"),
    ] {
        let (code, log) = refused(&[&["serve"], args].concat());
        assert_eq!(code, Some(2), "{args:?}: {log}");
        assert!(log.contains(says), "{args:?}: {log}");
    }
}

#[test]
fn a_data_folder_in_use_is_refused_and_free_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = Running::start(&["--data", text(folder.path())]);
    first.until_ready();
    let args = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--http",
        "off",
        "--data",
        text(folder.path()),
    ];
    let (code, log) = refused(&args);
    assert_eq!(code, Some(1), "{log}");
    assert!(
        log.contains(text(folder.path())) && log.contains("in use"),
        "{log}"
    );
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    let mut second = Running::start(&["--data", text(folder.path())]);
    second.until_ready();
    assert_eq!(second.terminate().0, Some(0));
}

#[test]
fn a_taken_port_is_told_with_its_flag() {
    let server = Running::start(&["--memory"]);
    let http = server.between("http://", "/");
    let (code, log) = refused(&[
        "serve",
        "--memory",
        "--listen",
        "127.0.0.1:0",
        "--http",
        &http,
    ]);
    assert_eq!(code, Some(1), "{log}");
    assert!(
        log.contains(&format!("cannot serve HTTP on {http}")),
        "{log}"
    );
    let bootstrap = server.bootstrap();
    let (code, log) = refused(&["serve", "--memory", "--listen", &bootstrap, "--http", "off"]);
    assert_eq!(code, Some(1), "{log}");
    assert!(
        log.contains(&format!("cannot listen on {bootstrap}")),
        "{log}"
    );
}

#[test]
fn the_printed_configuration_is_one_to_start_from() {
    let output = convoke(&["config", "--set", "num.partitions=7"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.contains("\nnum.partitions=7\n"), "{printed}");
    assert!(
        printed.contains("\n#group.initial.rebalance.delay.ms=3000\n"),
        "{printed}"
    );
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("printed.properties");
    std::fs::write(&file, &printed).unwrap();
    let again = convoke(&["config", "--config", text(&file)])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8(again.stdout).unwrap(), printed);
}

/// A client that sends and never reads: in the end the server waits for it.
fn deaf_client(address: &str) -> TcpStream {
    let mut socket = TcpStream::connect(address).unwrap();
    socket
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let api_versions = [0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 255, 255];
    let many = api_versions.repeat(10_000);
    while socket.write_all(&many).is_ok() {}
    socket
}

#[test]
fn a_second_signal_ends_at_once() {
    let mut server = Running::start(&["--memory", "--set", "convoke.shutdown.grace.ms=3600000"]);
    let _deaf = deaf_client(&server.bootstrap());
    server.signal();
    server.until_logged("stopping: ");
    server.signal();
    let (code, log) = server.end();
    assert_eq!(code, Some(1), "{log}");
    assert!(
        log.contains("error: stopped at once by a second signal"),
        "{log}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn the_soft_limit_of_open_files_is_raised() {
    let binary = env!("CARGO_BIN_EXE_convoke");
    let script =
        format!("ulimit -Sn 128 && exec {binary} serve --memory --listen 127.0.0.1:0 --http off");
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    // The banner comes when the server is up.
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let mut numbers = files.split_whitespace().skip(3);
    assert_eq!(numbers.next(), numbers.next(), "{files}");
}

#[test]
fn simulate_tells_how_worlds_end() {
    let run = |args: &[&str]| {
        let output = convoke(&[&["simulate"], args].concat()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, told, _) = run(&["--seed", "7", "--steps", "50"]);
    assert_eq!(code, Some(0));
    assert!(told.starts_with("seed 7: trace "), "{told}");
    // The story ends with the line that is told without it.
    let (code, story, _) = run(&["--seed", "7", "--steps", "50", "--trace"]);
    assert_eq!(code, Some(0));
    assert!(story.contains("server  loaded up to 0"), "{story}");
    assert!(story.ends_with(&told), "{story}");
    // Many of them: how far it is goes to the other stream.
    let many = ["--seeds", "120", "--steps", "5", "--faults", "crashes,disk"];
    let (code, told, progress) = run(&many);
    assert_eq!(code, Some(0), "{told}{progress}");
    assert_eq!(told, "120 seeds of 5 steps, 0 failed\n");
    assert_eq!(progress, "100 of 120 seeds\n");
    let (code, _, error) = run(&["--faults", "rain"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("there are: crashes, disk"), "{error}");
}
