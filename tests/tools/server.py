"""Starts, kills and stops the server under test for the scripts in tests/scripts.

A server command is a list of words in which {port}, {http} and {data} are replaced, for example
`target/debug/convoke serve --listen 127.0.0.1:{port} --http 127.0.0.1:{http} --data {data}`.
Only processes started here are ever signalled.
"""

import os
import random
import signal
import socket
import subprocess
import tempfile
import time

from kafka import Closed, Connection


def free_port():
    """A free port below the range the kernel gives to outgoing connections, so that it stays free."""
    for _ in range(200):
        port = random.randrange(21_000, 32_000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise SystemExit("no free port on 127.0.0.1")


class Server:
    """One server on one data folder and one port, over any number of starts."""

    def __init__(self, command, wrapper=(), start_seconds=60):
        self.folder = tempfile.TemporaryDirectory(prefix="convoke-test-")
        self.port, self.http, self.start_seconds = free_port(), free_port(), start_seconds
        self.data = os.path.join(self.folder.name, "data")
        words = dict(port=self.port, http=self.http, data=self.data)
        self.command = list(wrapper) + [c.format(**words) for c in command]
        self.log_path = os.path.join(self.folder.name, "server.log")
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        self.folder.cleanup()

    def start(self):
        """Starts it and waits until it answers ApiVersions."""
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + self.start_seconds
        while True:
            try:
                c = Connection(self.port, timeout=5)
                c.api_versions()
                c.close()
                return
            except (Closed, ValueError):
                pass
            if self.process.poll() is not None:
                raise SystemExit("the server ended with %s at its start:\n%s" % (self.process.returncode, self.tail()))
            if time.monotonic() > end:
                self.kill()
                raise SystemExit("no answer after %d s:\n%s" % (self.start_seconds, self.tail()))
            time.sleep(0.02)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """SIGKILL to the server and all that it started, as a crash would be."""
        if self.process is not None:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.process.wait()

    def stop(self, seconds=30):
        """SIGTERM to the server and what wraps it; returns the exit code, or None if it had to be killed."""
        if self.process is None or self.process.poll() is not None:
            return self.process and self.process.returncode
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def tail(self, count=15):
        with open(self.log_path, "rb") as f:
            return b"\n".join(f.read().splitlines()[-count:]).decode(errors="replace")

    def resident_bytes(self, field="VmRSS"):
        """Resident memory now; with `VmHWM` the most there has been."""
        try:
            with open("/proc/%d/status" % self.process.pid) as f:
                for line in f:
                    if line.startswith(field + ":"):
                        return int(line.split()[1]) * 1024
        except OSError:
            pass  # it has just ended
        return 0

    def descriptors(self):
        """Open file descriptors."""
        try:
            return len(os.listdir("/proc/%d/fd" % self.process.pid))
        except OSError:
            return 0

    def data_bytes(self):
        """What the data folder takes on disk."""
        total = 0
        for folder, _, names in os.walk(self.data):
            for name in names:
                try:
                    total += os.lstat(os.path.join(folder, name)).st_blocks * 512
                except OSError:
                    pass  # removed meanwhile
        return total


def await_topic(port, topic, partitions, seconds=30):
    """Makes the topic, and returns once each of its partitions has a leader and groups have a coordinator."""
    end = time.monotonic() + seconds
    c = Connection(port)
    c.create_topic(topic, partitions)
    while True:
        leaders = c.leaders(topic)
        if len(leaders) == partitions and all(v >= 0 for v in leaders.values()) and c.find_coordinator(topic) == 0:
            c.close()
            return
        if time.monotonic() > end:
            raise SystemExit("topic %s or its coordinator is not ready after %d s: leaders %s" % (topic, seconds, leaders))
        time.sleep(0.05)
