"""Work that goes on while a server is killed again and again, and what must hold of it afterwards.

For tests/scripts/kill-loop and tests/scripts/soak. Each worker has `run`, which works until its connection is lost, and
`check`, which raises `Wrong` when the restarted server does not keep what was acknowledged.
"""

import collections
import os
import random
import threading
import time

import kafka

TOPIC = "load"
PARTITIONS = 3
RETRY_SECONDS = 60


class Wrong(Exception):
    """The server broke a promise."""


def retried(port, work):
    """work(connection) until it returns something other than None; a fresh connection when one ends."""
    end = time.monotonic() + RETRY_SECONDS
    last = "no answer"
    while time.monotonic() < end:
        try:
            c = kafka.Connection(port)
            try:
                while time.monotonic() < end:
                    out = work(c)
                    if out is not None:
                        return out
                    time.sleep(0.02)
            finally:
                c.close()
        except kafka.Closed as e:
            last = str(e)
            time.sleep(0.02)
    raise Wrong("the server did not serve within %d s: %s" % (RETRY_SECONDS, last))


def settled(error):
    """None while the coordinator is loading, so that `retried` asks again."""
    return None if error in kafka.LOADING else error


def codes(values):
    """The errors of a commit, or None while the coordinator is loading."""
    found = set(values)
    return None if found & set(kafka.LOADING) else found - {kafka.NONE}


class Committer:
    """Commits ever higher offsets for one group, and makes and deletes others on the way."""

    def __init__(self, number, pause=0.0, kept_max=None):
        """`pause`: seconds between two commits; `kept_max`: groups that are left behind, the oldest go; None: all stay."""
        self.group, self.number, self.count = "commits-%d" % number, number, 0
        self.pause, self.kept_max = pause, kept_max
        self.acknowledged = self.sent = -1  # the same offset goes to every partition
        self.deleted, self.perhaps, self.kept = collections.deque(maxlen=1000), [], collections.deque()
        self.deletions = 0

    def jobs(self):
        return [self.run]

    def run(self, port, stop):
        c = kafka.Connection(port)
        while not stop.is_set():
            self.step(c)
            if self.pause:
                stop.wait(self.pause)

    def step(self, c):
        self.count += 1
        self.sent += 1
        offsets = {p: self.sent for p in range(PARTITIONS)}
        errors = set(c.commit(self.group, TOPIC, offsets, metadata="m%d" % self.sent).values())
        if errors == {kafka.NONE}:
            self.acknowledged = self.sent
        elif errors - set(kafka.LOADING):
            raise Wrong("%s: commit answered %s" % (self.group, errors))
        if self.count % 9 == 0:
            self.make_and_delete(c)

    def make_and_delete(self, c):
        group = "gone-%d-%d" % (self.number, self.count)
        if set(c.commit(group, TOPIC, {0: 7}).values()) != {kafka.NONE}:
            return
        if self.count % 27 == 0:
            self.kept.append(group)
            if self.kept_max is None or len(self.kept) <= self.kept_max:
                return
            group = self.kept.popleft()
        self.perhaps.append(group)  # until the answer is here, both are right
        error = c.delete_group(group)
        if error == kafka.NONE:
            self.perhaps.remove(group)
            self.deletions += 1
            self.deleted.append(group)
        elif error not in kafka.LOADING:
            raise Wrong("%s: deletion answered %d" % (group, error))

    def check(self, port):
        def offsets(c, group):
            error, found = c.fetch(group, TOPIC, range(PARTITIONS))
            codes = [error] + [p[2] for p in found.values()]
            if any(e in kafka.LOADING for e in codes):
                return None
            if any(codes):
                raise Wrong("%s: OffsetFetch answered %s" % (group, codes))
            return found

        found = retried(port, lambda c: offsets(c, self.group))
        for partition, (offset, metadata, _) in found.items():
            if not self.acknowledged <= offset <= self.sent:
                raise Wrong(
                    "%s partition %d: offset %d, acknowledged %d, sent %d"
                    % (self.group, partition, offset, self.acknowledged, self.sent)
                )
            if offset >= 0 and metadata != "m%d" % offset:
                raise Wrong("%s partition %d: offset %d with metadata %r" % (self.group, partition, offset, metadata))
        if len({o for o, _, _ in found.values()}) != 1:
            raise Wrong("%s: a commit came back in part: %s" % (self.group, found))
        for group in list(self.deleted)[-20:]:
            if any(o != -1 for o, _, _ in retried(port, lambda c, g=group: offsets(c, g)).values()):
                raise Wrong("%s was deleted and has offsets again" % group)
        for group in list(self.kept)[-20:]:
            if retried(port, lambda c, g=group: offsets(c, g))[0][0] != 7:
                raise Wrong("%s lost its offset" % group)


class Member:
    """One member of a group: joins, synchronises, heartbeats. The leader gives each its name and the member count."""

    def __init__(self, group, instance=None):
        self.group, self.instance = group, instance
        self.id, self.generation = "", -1

    def enter(self, c, planned=lambda generation, names: None):
        """One join and one sync. Returns the number of members once synchronised, None when it must be tried again."""
        j = c.join(self.group, self.id, metadata=os.urandom(4), instance=self.instance)
        if self._refused(j["error"], j["member"]):
            return None
        self.id, generation = j["member"], j["generation"]
        plan = None
        if j["leader"] == self.id:
            plan = {m: b"%d %s" % (len(j["members"]), m.encode()) for m in j["members"]}
            planned(generation, sorted(plan))
        error, assignment = c.sync(self.group, generation, self.id, plan, self.instance)
        if self._refused(error, ""):
            return None
        self.generation = generation
        count, _, name = assignment.partition(b" ")
        if name.decode() != self.id:
            raise Wrong("%s: %s was given %r" % (self.group, self.id, assignment))
        return int(count)

    def _refused(self, error, given_id):
        if error in (kafka.MEMBER_ID_REQUIRED, kafka.UNKNOWN_MEMBER_ID):
            self.id = given_id if error == kafka.MEMBER_ID_REQUIRED else ""
        elif error not in (kafka.NONE, kafka.REBALANCE_IN_PROGRESS, kafka.ILLEGAL_GENERATION, *kafka.LOADING):
            raise Wrong("%s: a join or sync answered %d" % (self.group, error))
        if error in kafka.LOADING:
            time.sleep(0.05)
        return error != kafka.NONE

    def beat(self, c):
        return c.heartbeat(self.group, self.generation, self.id, self.instance)


def goes_on(port, group, generation, member, instance, offset):
    """The errors of a Heartbeat and a commit as this member; none when it is still in the group."""

    def commit(c):
        errors = set(c.commit(group, TOPIC, {0: offset}, generation, member, instance).values())
        return None if errors & set(kafka.LOADING) else errors - {kafka.NONE}

    beat = retried(port, lambda c: settled(c.heartbeat(group, generation, member, instance)))
    return ({beat} - {kafka.NONE}) | retried(port, commit)


class Stable:
    """Three members, one of them static, that synchronise once and go on for ever after."""

    group = "stable"

    def __init__(self):
        self.members = [Member(self.group), Member(self.group), Member(self.group, "rock")]
        self.offset = 0

    def form(self, port):
        run_all(lambda m: self._settle(port, m), self.members)

    def _settle(self, port, member):
        c = kafka.Connection(port, timeout=40)
        while member.enter(c) != len(self.members):
            while member.generation >= 0 and member.beat(c) == kafka.NONE:
                time.sleep(0.02)
        c.close()

    def jobs(self):
        return [self.run]

    def run(self, port, stop):
        """Heartbeats, where the kills are further apart than sessions last."""
        c = kafka.Connection(port)
        while not stop.wait(1.0):
            for m in self.members:
                error = m.beat(c)
                if error not in (kafka.NONE, *kafka.LOADING):
                    raise Wrong("stable group: a heartbeat answered %d" % error)

    def check(self, port):
        if len({m.generation for m in self.members} | {-1}) != 2:
            raise Wrong("stable group: it did not form: generations %s" % [m.generation for m in self.members])
        self.offset += 1
        for m in self.members:
            errors = goes_on(port, self.group, m.generation, m.id, m.instance, self.offset)
            if errors:
                raise Wrong("stable group: a member cannot go on after the restart: %s" % errors)


def run_all(work, items):
    threads = [threading.Thread(target=work, args=(i,)) for i in items]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


class Rebalancer:
    """Three members that rejoin without end. One object stands for the group, one thread runs each member."""

    group = "rebalancing"

    def __init__(self, pause=0.0):
        self.lock, self.pause = threading.Lock(), pause
        self.members = [Member(self.group) for _ in range(3)]
        self.durable = None  # (generation, member ids) whose assignment was acknowledged
        self.perhaps = None  # sent, not acknowledged
        self.floor = -1  # highest generation acknowledged before the last restart

    def planned(self, generation, names):
        with self.lock:
            if generation <= self.floor:
                raise Wrong("rebalancing: generation %d after %d was acknowledged" % (generation, self.floor))
            self.perhaps = (generation, names)

    def acknowledged(self, generation):
        with self.lock:
            if self.perhaps and self.perhaps[0] == generation:
                self.durable, self.perhaps = self.perhaps, None

    def jobs(self):
        return [lambda port, stop, m=m: self.run(port, stop, m) for m in self.members]

    def run(self, port, stop, member):
        c = kafka.Connection(port, timeout=40)
        while not stop.is_set():
            if member.enter(c, self.planned) is None:
                continue
            self.acknowledged(member.generation)
            for _ in range(random.randrange(1, 8)):
                if member.beat(c) != kafka.NONE:
                    break
                time.sleep(0.005)
            if self.pause:
                stop.wait(self.pause)

    def check(self, port):
        """Returns how the group went on: 'acknowledged', 'sent' or 'nothing yet'."""
        seen = []
        for how, state in (("acknowledged", self.durable), ("sent", self.perhaps)):
            if state is None:
                continue
            generation, names = state
            errors = [goes_on(port, self.group, generation, name, None, generation) for name in names]
            if not any(errors):
                self.durable, self.perhaps, self.floor = state, None, generation
                return how
            seen.append("generation %d: %s" % (generation, errors))
        if self.durable is None:  # nothing was acknowledged, so there may be nothing to go on with
            self.perhaps = None
            return "nothing yet"
        raise Wrong("rebalancing: the members cannot go on: " + "; ".join(seen))


def burst(server, workers, seconds, problems, meanwhile=None):
    """Lets the workers run until the kill, and waits for them. `meanwhile(stop)` runs beside them."""
    stop = threading.Event()

    def guarded(name, job):
        try:
            job(server.port, stop)
        except kafka.Closed as e:
            if not stop.is_set():
                problems.append("%s: connection lost before the kill: %s" % (name, e))
        except Exception as e:
            problems.append("%s: %s" % (name, e or type(e).__name__))

    threads = [threading.Thread(target=guarded, args=(w.group, job)) for w in workers for job in w.jobs()]
    if meanwhile:
        threads.append(threading.Thread(target=meanwhile, args=(stop,)))
    for t in threads:
        t.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end and not problems:
        time.sleep(min(0.2, max(0.0, end - time.monotonic())))
    stop.set()  # from here on a lost connection is the kill's
    server.kill()
    for t in threads:
        t.join()
