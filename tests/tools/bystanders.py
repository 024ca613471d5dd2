"""Well-behaved groups that must not notice what happens around them.

A process of its own, so that no attack takes its time away: some hundred groups of one member each, every one with a
connection of its own, heartbeat once a second; each tenth time the member commits instead.
"""

import multiprocessing
import selectors
import time

import kafka

SESSION_MS = 15_000
PACE_SECONDS = 1.0


class Bystanders:
    """Start it before any thread. `stop` returns what it saw."""

    def __init__(self, port, topic, count=200):
        self.mine, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=_run, args=(port, topic, count, theirs), daemon=True)
        self.process.start()
        if not self.mine.poll(60):
            raise SystemExit("the bystanders' groups did not form within a minute")
        trouble = self.mine.recv()
        if trouble:
            raise SystemExit("the bystanders' groups did not form: %s" % trouble)

    def stop(self):
        """Returns a dict: members, lost, why, heartbeats, longest (seconds)."""
        self.mine.send("stop")
        if not self.mine.poll(30):
            self.process.terminate()
            return dict(members=0, lost=-1, why=["no word of the bystanders"], heartbeats=0, longest=0.0)
        out = self.mine.recv()
        self.process.join()
        return out


class Member:
    def __init__(self, port, group):
        self.group, self.c = group, kafka.Connection(port)
        j = self.c.join(group, "", session_ms=SESSION_MS)
        if j["error"] == kafka.MEMBER_ID_REQUIRED:
            j = self.c.join(group, j["member"], session_ms=SESSION_MS)
        self.id, self.generation = j["member"], j["generation"]
        error, _ = self.c.sync(group, self.generation, self.id, {self.id: b"all"})
        if j["error"] or error:
            raise kafka.Closed("%s: join answered %d, sync %d" % (group, j["error"], error))
        self.sent_at, self.count, self.buffer = None, 0, b""


def _run(port, topic, count, pipe):
    try:
        members = [Member(port, "bystander-%d" % n) for n in range(count)]
    except kafka.Closed as e:
        pipe.send(str(e))
        return
    pipe.send(None)
    seen = dict(members=count, lost=0, why=[], heartbeats=0, longest=0.0)
    selector = selectors.DefaultSelector()
    began = time.monotonic()
    due = []
    for n, m in enumerate(members):
        m.c.socket.setblocking(False)
        selector.register(m.c.socket, selectors.EVENT_READ, m)
        due.append((began + PACE_SECONDS * n / count, m))
    stopping = False
    while True:
        now = time.monotonic()
        if not stopping and pipe.poll():
            stopping = True
        waiting = [m for m in members if m.sent_at is not None]
        if stopping and (not waiting or min(m.sent_at for m in waiting) < now - 10):
            for m in waiting:
                _lose(seen, m, "no answer for %.1f s" % (now - m.sent_at))
            pipe.send(seen)
            return
        while due and due[0][0] <= now:
            _, m = due.pop(0)
            if not stopping:
                _send(seen, m, topic)
        for key, _ in selector.select(0.05):
            if _receive(seen, key.data, topic):
                due.append((key.data.sent_at + PACE_SECONDS, key.data))
                key.data.sent_at = None
            elif key.data.id is None:
                selector.unregister(key.fileobj)
        due.sort(key=lambda pair: pair[0])


def _lose(seen, m, why):
    if m.id is not None:
        m.id, m.sent_at = None, None
        seen["lost"] += 1
        if len(seen["why"]) < 5:
            seen["why"].append("%s: %s" % (m.group, why))


def _send(seen, m, topic):
    m.count += 1
    head = kafka.string(m.group) + kafka.i32(m.generation) + kafka.string(m.id) + kafka.string(None)
    try:
        if m.count % 10:
            m.c.send("Heartbeat", head)
        else:
            partition = kafka.i32(0) + kafka.i64(m.count) + kafka.i32(-1) + kafka.string("")
            m.c.send("OffsetCommit", head + kafka.i32(1) + kafka.string(topic) + kafka.i32(1) + partition)
        m.sent_at = time.monotonic()
    except kafka.Closed as e:
        _lose(seen, m, str(e))


def _receive(seen, m, topic):
    """Whether the answer is here and good."""
    try:
        got = m.c.socket.recv(4096)
    except BlockingIOError:
        return False
    except OSError as e:
        got, why = b"", str(e)
    else:
        why = "closed by the server"
    if not got:
        _lose(seen, m, why)
        return False
    m.buffer += got
    if len(m.buffer) < 4 or len(m.buffer) < 4 + int.from_bytes(m.buffer[:4], "big"):
        return False
    r = kafka.Reader(m.buffer[8:])
    m.buffer = b""
    if m.count % 10:
        r.i32()
        errors = {r.i16()}
    else:
        errors = set(kafka.commit_errors(r).values())
    if errors != {kafka.NONE}:
        _lose(seen, m, "answered %s" % errors)
        return False
    seen["heartbeats"] += 1
    seen["longest"] = max(seen["longest"], time.monotonic() - m.sent_at)
    return True
