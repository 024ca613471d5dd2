"""Real clients as members: how they are had, started, and heard.

Each client has one small program under tests/clients that is one member. It takes `name=value` words: bootstrap, group,
topic, client (the client id), protocol (eager, cooperative, consumer), session_ms, rebalance_ms, and commits:

    sync      synchronously after each poll, before the next one
    revoke    asynchronously after each poll, and synchronously when partitions are revoked
    auto      as the library does it by itself, every 200 ms
    none      only when it is told to

With `instance=NAME` it is a static member, with `parts=0,1` it is in assign mode. It tells what it does as JSON lines, `t` in microseconds since the epoch:

    {"ev": "assigned", "t": …, "p": [0, 1], "member": "its id"}, {"ev": "revoked", …}, {"ev": "lost", …}   in the callbacks
    {"ev": "read", "t": …, "m": [[partition, offset, value], …]}     before any of it is committed
    {"ev": "commit", "t": …, "ok": false, "err": "ILLEGAL_GENERATION", "msg": …}
    {"ev": "error", "t": …, "err": …, "msg": …}                      by itself, the same one once

and obeys, each with a line {"ev": "done", "ok": …}: `close`; `hold MS`: says {"ev": "holds", …}, then works so long on
what it has read, and polls nothing; `commit PARTITION OFFSET …`: synchronously, before it polls again, unless
it has been told meanwhile that it has lost one of them (err LOST), as an application should; `insist …`: the same
whatever it has been told, as some do; `config KEY VALUE`: sets a GROUP config and reads it back.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
CLIENTS = os.path.join(HERE, "..", "clients")
# What waits for an event waits so long; nothing is concluded from it but that the event does not come.
WAIT_SECONDS = 60


class Failed(Exception):
    """A check does not hold."""


class Missing(Exception):
    """What a client needs is not to be had here."""


def until(what, holds, seconds=WAIT_SECONDS):
    """Waits until `holds()` is true; returns what it returned."""
    end = time.monotonic() + seconds
    while True:
        value = holds()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed("after %d s still not: %s" % (seconds, what() if callable(what) else what))
        time.sleep(0.02)


def check(holds, what):
    if not holds:
        raise Failed(what() if callable(what) else what)


# ---------------------------------------------------------------- how they are had


def run(words, **more):
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)
    except FileNotFoundError:
        raise Missing("%s is not installed" % words[0])
    if done.returncode:
        raise Missing("%s ended with %d: %s" % (" ".join(words[:3]), done.returncode, done.stdout.strip()[-300:]))
    return done.stdout


def java(folder):
    libs = run([os.path.join(CLIENTS, "java", "libs")]).strip().splitlines()[-1]
    source, made = os.path.join(CLIENTS, "java", "Member.java"), os.path.join(folder, "java")
    run(["javac", "-nowarn", "-cp", libs + "/*", "-d", made, source])
    return ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", made + ":" + libs + "/*", "Member"]


def librdkafka(folder):
    wanted, venv = "confluent-kafka==2.16.1", os.path.join(folder, "venv")
    python, note = os.path.join(venv, "bin", "python"), os.path.join(venv, "installed")
    if not os.path.exists(note) or open(note).read() != wanted:
        shutil.rmtree(venv, ignore_errors=True)
        run([sys.executable, "-m", "venv", venv])
        run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted])
        with open(note, "w") as f:
            f.write(wanted)
    return [python, "-u", os.path.join(CLIENTS, "python", "member.py")]


def franz(folder):
    made = os.path.join(folder, "franz-member")
    env = dict(os.environ, GOFLAGS="-buildvcs=false -mod=readonly", GOTOOLCHAIN="local")
    run(["go", "build", "-o", made, "."], cwd=os.path.join(CLIENTS, "go"), env=env)
    return [made]


# name -> how it is had. All three have every protocol.
ALL = {"java": java, "confluent-kafka": librdkafka, "franz-go": franz}


# ---------------------------------------------------------------- one of them


class Member:
    """A process that is one member."""

    def __init__(self, words, log, **args):
        self.name = args["client"]
        self.events, self.owned, self.id = [], set(), None
        self.changed = threading.Condition()
        self.replies, self.asked, self.is_over = 0, 0, False
        self.outcomes = []
        self.log = open(log, "ab")
        self.process = subprocess.Popen(
            words + ["%s=%s" % pair for pair in args.items()],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True,
        )
        self.reader = threading.Thread(target=self.hear, daemon=True)
        self.reader.start()

    def hear(self):
        for line in self.process.stdout:
            self.log.write(line.encode())
            try:
                event = json.loads(line)
            except ValueError:
                continue
            event["t"] /= 1e6
            with self.changed:
                if event["ev"] == "assigned":
                    self.owned |= set(event["p"])
                    self.id = event["member"]
                elif event["ev"] in ("revoked", "lost"):
                    self.owned -= set(event["p"])
                elif event["ev"] == "done":
                    self.outcomes.append(event)
                self.events.append(event)
                self.changed.notify_all()
        with self.changed:
            self.is_over = True
            self.changed.notify_all()

    def since(self, t, *kinds):
        """What it told from a time on."""
        with self.changed:
            return [e for e in self.events if e["t"] >= t and (not kinds or e["ev"] in kinds)]

    def say(self, line):
        """Tells it something; returns the number of what comes of it."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        self.asked += 1
        return self.asked

    def outcome(self, number, seconds=WAIT_SECONDS):
        with self.changed:
            self.changed.wait_for(lambda: len(self.outcomes) >= number or self.is_over, seconds)
            check(len(self.outcomes) >= number, "%s does not do what it was told" % self.name)
            return self.outcomes[number - 1]

    def close(self):
        """Has it leave in order."""
        self.outcome(self.say("close"))
        self.process.wait(WAIT_SECONDS)

    def stop(self):
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self):
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.reader.join(10)
        self.log.close()
