"""The server, as operators reach it: over HTTP and by the command line."""

import json
import os
import re
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from members import Failed

ANSWER_SECONDS = 120


class Site:
    def __init__(self, bootstrap, base, convoke):
        self.bootstrap, self.base, self.convoke = bootstrap, base.rstrip("/"), convoke
        self.port = int(bootstrap.rsplit(":", 1)[1])
        # Kicks with a ban are counted in metrics of the whole server: one at a time.
        self.bans = threading.Lock()
        # Who changes the caps first reads them.
        self.caps = threading.Lock()

    def ask(self, method, path, body=None):
        """Returns (status, document)."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as e:
            return e.code, json.loads(e.read() or b"null")

    def need(self, method, path, body=None):
        """The document; whatever is not 200 is a failure."""
        status, document = self.ask(method, path, body)
        if status != 200:
            raise Failed("%s %s: %d %s" % (method, path, status, document))
        return document

    def command(self, *words):
        """`convoke groups WORD… --json`. Returns (exit code, its answer or None, stderr)."""
        words = [self.convoke, "groups", *words, "--http", self.base, "--json"]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ANSWER_SECONDS)
        return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr

    def tell(self, *words):
        """The answer of a command that must be done."""
        code, answer, err = self.command(*words)
        if code:
            raise Failed("groups %s: exit code %d: %s" % (" ".join(words), code, err.strip()))
        return answer

    def metric(self, name, **labels):
        """The sum of what has this name and these labels."""
        with urllib.request.urlopen(self.base + "/metrics", timeout=ANSWER_SECONDS) as answer:
            text = answer.read().decode()
        total = 0.0
        for line in text.splitlines():
            if line.startswith(name + "{") or line.startswith(name + " "):
                has = dict(re.findall(r'(\w+)="([^"]*)"', line))
                if all(has.get(label) == value for label, value in labels.items()):
                    total += float(line.rsplit(" ", 1)[1])
        return total


def group_path(group, rest=""):
    return "/v1/groups/" + urllib.parse.quote(group, safe="") + rest


class LagWatch(threading.Thread):
    """Looks at the lag of all groups, all the time: it is never negative."""

    def __init__(self, site):
        super().__init__(daemon=True)
        self.site, self.ending = site, threading.Event()
        self.looks, self.wrong = 0, None
        self.groups = set()
        self.start()

    def run(self):
        while not self.ending.wait(0.2):
            try:
                for row in self.site.need("GET", "/v1/lag")["groups"]:
                    self.groups.add(row["group_id"])
                    if row["records"] < 0 or (row["ms"] or 0) < 0:
                        self.wrong = self.wrong or row
                self.looks += 1
            except (Failed, OSError) as e:
                self.wrong = self.wrong or str(e)

    def end(self):
        self.ending.set()
        self.join(ANSWER_SECONDS)


def now_ms():
    return int(time.time() * 1000)
