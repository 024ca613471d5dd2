"""The load generator of the shared judges, and the servers that it is pointed at, for the scripts in tests/bench.

The judges lie outside of this repository (CONVOKE_JUDGES, default: `shared` beside it). Servers are started here on ports
of loopback and on folders below one that the caller names, and only those are signalled.
"""

import datetime
import json
import math
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from kafka import APIS, Closed, Connection

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
JUDGES = os.environ.get("CONVOKE_JUDGES") or os.path.join(ROOT, "..", "shared")
FOLDER = os.path.join(JUDGES, "loadgen")
TICKS = os.sysconf("SC_CLK_TCK")


def need_judges():
    if not os.path.exists(os.path.join(FOLDER, "loadgen")):
        raise SystemExit("skipped: no load generator at %s; set CONVOKE_JUDGES to the folder of the judges" % FOLDER)


def note(text):
    print("%s %s" % (time.strftime("%H:%M:%S"), text), file=sys.stderr, flush=True)


def git(*args):
    out = subprocess.run(["git", "-C", ROOT, *args], stdout=subprocess.PIPE, text=True)
    return out.stdout.strip()


def commit():
    """The commit of the sources, with a plus if they have changed since."""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "Cargo.toml", "Cargo.lock")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


def today():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M")


# ---------------------------------------------------------------- processes


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mib(pid):
    with open("/proc/%d/status" % pid) as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) / 1024


def running(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def answers(port):
    try:
        c = Connection(port, timeout=5)
        c.api_versions()
        c.close()
        return True
    except (Closed, ValueError):
        return False


def until(what, done, seconds=120):
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise SystemExit("%s: not within %d s" % (what, seconds))
        time.sleep(0.02)


class Convoke:
    """One server of ours on one folder, over any number of starts."""

    name = "convoke"

    def __init__(self, binary, folder, port, sync="always", settings=()):
        self.port, self.http, self.sync = port, port + 1, sync
        self.folder = os.path.join(folder, "convoke-%d" % port)
        self.bootstrap = "127.0.0.1:%d" % port
        self.durability = {"always": "fdatasync", "none": "none"}.get(sync, sync)
        self.pid = 0
        words = [binary, "serve", "--listen", self.bootstrap, "--http", "127.0.0.1:%d" % self.http]
        words += ["--data", os.path.join(self.folder, "data"), "--log-level", "warn"]
        for setting in ("group.initial.rebalance.delay.ms=0", "convoke.log.sync=" + sync, *settings):
            words += ["--set", setting]
        self.command = words

    def start(self):
        os.makedirs(self.folder, exist_ok=True)
        if answers(self.port):
            raise SystemExit("port %d is taken; choose others with --ports" % self.port)
        with open(os.path.join(self.folder, "server.log"), "ab") as log:
            started = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.pid = started.pid
        self._await(lambda: started.poll() is not None)
        return self

    def _await(self, ended):
        def up():
            if ended():
                with open(os.path.join(self.folder, "server.log"), errors="replace") as log:
                    raise SystemExit("the server ended at its start:\n%s" % "".join(log.readlines()[-10:]))
            return answers(self.port)

        until("the start of %s" % self.bootstrap, up)

    def fresh(self):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        return self.start()

    def restart_command(self):
        """A shell command that kills the server and starts it again; its last line is the new PID."""
        path, pid_file = os.path.join(self.folder, "restart.sh"), os.path.join(self.folder, "pid")
        with open(path, "w") as f:
            f.write("set -e\nkill -9 $LOADGEN_PID\n")
            # A process whose first thread is gone may still hold its sockets with the others.
            for port in (self.port, self.http):
                f.write("while (exec 3<>/dev/tcp/127.0.0.1/%d) 2>/dev/null; do sleep 0.01; done\n" % port)
            words = " ".join("'%s'" % w for w in self.command)
            f.write("setsid %s >>'%s/server.log' 2>&1 </dev/null &\necho $! | tee '%s'\n" % (words, self.folder, pid_file))
        return "bash '%s'" % path

    def adopt(self):
        """Takes over what the restart command has started."""
        with open(os.path.join(self.folder, "pid")) as f:
            self.pid = int(f.read())

    def stop(self, how=signal.SIGTERM):
        if self.pid and running(self.pid):
            os.kill(self.pid, how)
            try:
                until("the end of %s" % self.bootstrap, self._gone, 60)
            except SystemExit:
                os.kill(self.pid, signal.SIGKILL)
        self.pid = 0

    def _gone(self):
        try:
            os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            pass
        return not running(self.pid)

    def metrics(self):
        """The server's own counters: {name with labels: value}."""
        import urllib.request

        with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % self.http, timeout=30) as page:
            lines = page.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}


class Kafka:
    """The reference, by kafka-up."""

    name = "kafka"
    durability = "page cache"

    def __init__(self, port, heap="4g"):
        self.port, self.heap, self.pid = port, heap, 0
        self.bootstrap = "127.0.0.1:%d" % port
        self.words = [os.path.join(FOLDER, "kafka-up"), "--port", str(port), "--heap", heap]

    def _run(self, *args):
        out = subprocess.run([*self.words, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if out.returncode:
            raise SystemExit("kafka-up %s failed" % " ".join(args))
        return out.stdout

    def start(self):
        self.pid = int(self._run("start").split()[-1])
        until("the start of %s" % self.bootstrap, lambda: answers(self.port))
        return self

    def fresh(self):
        self.pid = int(self._run("fresh").split()[-1])
        until("the start of %s" % self.bootstrap, lambda: answers(self.port))
        return self

    def restart_command(self):
        return " ".join("'%s'" % w for w in self.words) + " --kill9 restart"

    def adopt(self):
        self.pid = int(self._run("pid").split()[-1])

    def stop(self):
        if self.pid:
            self._run("stop")
        self.pid = 0

    def libraries(self):
        """The folder of Kafka's jars."""
        return self._run("install").split()[-1]


# ---------------------------------------------------------------- the load generator


def loadgen(workload, args, server, pin="", quiet=True):
    """Runs a workload; returns its result as the load generator writes it."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        words = [os.path.join(FOLDER, "loadgen"), workload, "--bootstrap", server.bootstrap, "--pid", str(server.pid)]
        words += ["--durability", server.durability, "--label", server.name, "--json", out.name, *args]
        words += ["--pin", pin] if pin else []
        ran = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if quiet else None, text=True)
        lines = open(out.name).read().splitlines()
    if not lines:
        raise SystemExit("loadgen %s %s gave no result (exit code %d)\n%s" % (workload, " ".join(args), ran.returncode, ran.stdout))
    result = json.loads(lines[-1])
    if result["status"] != "ok":
        wrong = [c for c in result["checks"] if not c["ok"]]
        note("  %s on %s: %s %s" % (workload, server.name, result["status"], wrong))
    return result


def background(workload, args, server):
    """Starts a workload whose result does not matter."""
    words = [os.path.join(FOLDER, "loadgen"), workload, "--bootstrap", server.bootstrap, *args]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def figures(result):
    return {m["name"]: m["value"] for m in result["metrics"]} if result["status"] == "ok" else {}


def common_versions(a, b):
    """What caps the versions on both servers to those that both have, for --pin."""
    offered = [Connection(s.port).api_versions() for s in (a, b)]
    pins = []
    for name in ("OffsetCommit", "OffsetFetch", "JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup"):
        key = APIS[name][0]
        if all(key in o for o in offered):
            pins.append("%s=%d" % (name, min(o[key][1] for o in offered)))
    return ",".join(pins)


def disk(folder):
    """Microseconds of a 4 KiB write and fdatasync: (p50, p99)."""
    path = os.path.join(folder, "disk-probe")
    page, took = b"\x07" * 4096, []
    with open(path, "wb", buffering=0) as f:
        f.write(page * 1024)
        os.fsync(f.fileno())
        f.seek(0)
        for at in range(1000):
            f.seek(at % 1024 * 4096)
            f.write(page)
            begun = time.perf_counter()
            os.fdatasync(f.fileno())
            took.append((time.perf_counter() - begun) * 1e6)
    os.unlink(path)
    took.sort()
    return took[500], took[989]


# ---------------------------------------------------------------- words


def median(values):
    return statistics.median(values)


def plain(value, digits=3):
    """A number with as many digits as say something."""
    if value == 0 or math.isinf(value) or math.isnan(value):
        return "%g" % value
    if abs(value) >= 1000:
        return format(round(value), ",")
    return "%.*g" % (digits, value)


def parts(path, name):
    """A page: up to its mark `<!-- NAME: begin -->` and with it, what follows up to `<!-- NAME: end -->`, and the rest."""
    begin, end = "<!-- %s: begin -->" % name, "<!-- %s: end -->" % name
    page = open(path).read()
    head, mark, rest = page.partition(begin)
    text, closing, tail = rest.partition(end)
    if not mark or not closing:
        raise SystemExit("%s has no marks for %s" % (path, name))
    return head + mark, text.strip(), closing + tail


def block(path, name):
    """The text between the marks of a page."""
    return parts(path, name)[1]


def replace_block(path, name, text):
    """Writes the text between the marks of a page."""
    head, _, tail = parts(path, name)
    with open(path, "w") as f:
        f.write("%s\n\n%s\n\n%s" % (head, text.strip(), tail))


def table(head, rows):
    lines = ["| %s |" % " | ".join(head), "|%s" % ("---|" * len(head))]
    return "\n".join(lines + ["| %s |" % " | ".join(row) for row in rows])


def machine():
    model = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())
    memory = int(re.search(r"MemTotal:\s+(\d+)", open("/proc/meminfo").read()).group(1)) / 1024 / 1024
    return "%d × %s, %.0f GiB, Linux %s" % (
        os.cpu_count(),
        model.group(1).strip() if model else "an unnamed core",
        memory,
        os.uname().release.split("-")[0],
    )


def connections_left():
    """How many sockets this machine lets a client open from one address."""
    low, high = map(int, open("/proc/sys/net/ipv4/ip_local_port_range").read().split())
    return high - low


def free_base(count=8, start=21_000, stop=32_000):
    """The first of a few free ports in a row."""
    for base in range(start, stop, count):
        if all(_free(base + n) for n in range(count)):
            return base
    raise SystemExit("no free ports on 127.0.0.1 from %d on; name some with --ports" % start)


def _free(port):
    with socket.socket() as s:
        try:
            s.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False
