"""One group of real members under load, all that happens to it, and what must hold of that."""

import os
import sys
import threading
import time
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools"))
import batches
import kafka
from members import WAIT_SECONDS, Failed, Member, check, until
from server import await_topic
from admin import group_path, now_ms

PARTITIONS = 6
# Records in each partition before anybody reads.
FILL = 200
SESSION_MS, REBALANCE_MS = 8_000, 20_000
# The server's clock counts on by itself from its start.
CLOCK_MS = 5
COMMITS = ("sync", "revoke", "auto")


class Producer(threading.Thread):
    """Writes to every partition all the time. It is the only one, so a record's value tells its offset."""

    def __init__(self, port, topic):
        super().__init__(daemon=True)
        self.connection, self.topic = kafka.Connection(port, timeout=WAIT_SECONDS), topic
        self.lock, self.ending, self.wrong = threading.Lock(), threading.Event(), None
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        began = now_ms()
        self.write(FILL)
        # When the first records were written.
        self.filled_ms = (began, now_ms())

    def write(self, count):
        for p, end in self.ends.items():
            values = [b"%d:%d" % (p, end + n) for n in range(count)]
            error, first = self.connection.produce(self.topic, p, batches.plain(values))
            if error or first != end:
                raise Failed("produce to %s/%d: error %d at %d instead of %d" % (self.topic, p, error, first, end))
            self.ends[p] = end + count

    def run(self):
        while not self.ending.wait(0.05):
            with self.lock:
                try:
                    self.write(2)
                except (Failed, kafka.Closed) as e:
                    self.wrong = str(e)
                    return

    def now(self):
        """Where every partition ends."""
        with self.lock:
            return dict(self.ends)

    def gap(self):
        """A time (unix milliseconds) at which nothing was written, and where every partition ended then."""
        with self.lock:
            last = now_ms()
            until("the clock goes on", lambda: now_ms() > last + 1)
            at, ends = now_ms(), dict(self.ends)
            until("the clock goes on", lambda: now_ms() > at)
            return at, ends

    def end(self):
        self.ending.set()
        if self.is_alive():
            self.join(WAIT_SECONDS)
        self.connection.close()


class Watch(threading.Thread):
    """Looks at the committed offsets all the time."""

    def __init__(self, port, group, topic):
        super().__init__(daemon=True)
        self.connection, self.names = kafka.Connection(port, timeout=WAIT_SECONDS), (group, topic)
        self.looks, self.ending, self.wrong = [], threading.Event(), None
        self.start()

    def run(self):
        while not self.ending.wait(0.02):
            asked = time.time()
            try:
                error, rows = self.connection.fetch(*self.names, range(PARTITIONS))
            except (kafka.Closed, ValueError) as e:
                self.wrong = str(e)
                return
            if error or any(row[2] for row in rows.values()):
                self.wrong = "error %d, %s" % (error, rows)
                return
            self.looks.append((asked, time.time(), {p: row[0] for p, row in rows.items()}))

    def since(self, t):
        return [look for look in list(self.looks) if look[0] >= t]

    def now(self):
        """What is committed now."""
        asked = time.time()
        return until(lambda: "a look at offsets (%s)" % self.wrong, lambda: self.since(asked))[0][2]

    def end(self):
        self.ending.set()
        self.join(WAIT_SECONDS)
        self.connection.close()


class Period:
    """One member's time with one partition."""

    def __init__(self, member, began):
        self.member, self.began, self.ended = member, began, None
        self.reads = []


class Group:
    def __init__(self, site, client, words, protocol, logs):
        self.site, self.client, self.words, self.protocol, self.logs = site, client, words, protocol, logs
        tag = "%s-%s-%s" % (client, protocol, uuid.uuid4().hex[:6])
        self.tag, self.topic, self.group = tag, "t-" + tag, "g-" + tag
        self.members, self.everyone = [], []
        self.producer = self.watch = None

    # ------------------------------------------------------------ who is there

    def member(self, commits, name=None, **args):
        """Starts a process that is nobody's member yet."""
        name = name or "%s-%s-%d" % (self.tag, commits, len(self.everyone))
        words = dict(bootstrap=self.site.bootstrap, group=self.group, topic=self.topic, protocol=self.protocol,
                     session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS, commits=commits, client=name)
        member = Member(self.words, os.path.join(self.logs, name + ".log"), **dict(words, **args))
        self.everyone.append(member)
        return member

    def begin(self):
        await_topic(self.site.port, self.topic, PARTITIONS)
        self.producer = Producer(self.site.port, self.topic)
        if self.protocol == "assign":
            # Nobody is a member, and nothing moves but what a check moves.
            return
        self.producer.start()
        self.watch = Watch(self.site.port, self.group, self.topic)
        self.members = [self.member(commits) for commits in COMMITS]
        self.settle()
        until("everybody commits", lambda: all(o > 0 for o in self.watch.now().values()))

    def recover(self):
        """After a failure: waits until all is well again, for what comes next."""
        if self.protocol == "assign":
            return
        for member in self.members:
            member.go_on()
        self.site.ask("POST", self.path("/resume"), {})
        self.settle()

    def end(self):
        for member in self.everyone:
            member.kill()
        for thread in (self.producer, self.watch):
            if thread is not None:
                thread.end()

    def document(self):
        return self.site.need("GET", group_path(self.group))

    def path(self, rest=""):
        return group_path(self.group, rest)

    def epoch(self):
        return self.document()["summary"]["epoch"]

    def settle(self, owners=None, also=()):
        """Waits until the group is stable and the server and all members say the same about who owns what: `owners`
        have everything, `also` nothing."""
        owners = self.members if owners is None else owners
        told = {}

        def settled():
            status, document = self.site.ask("GET", self.path())
            if status != 200:
                return False
            told.update(document)
            if document["summary"]["state"] != "Stable" or document["operation"]:
                return False
            theirs = {m.id: set(m.owned) for m in owners} | {m.id: set() for m in also}
            if document["summary"]["member_count"] != len(theirs):
                return False
            ours = {row["member"]["member_id"]: {p for t in row["owned"] for p in t["partitions"]} for row in document["members"]}
            whole = sorted(p for m in owners for p in theirs[m.id]) == list(range(PARTITIONS))
            return ours == theirs and whole and all(theirs[m.id] for m in owners) and document

        def what():
            ours = [(row["member"]["client_id"], row["owned"]) for row in told.get("members", [])]
            theirs = ", ".join("%s owns %s" % (m.name, sorted(m.owned)) for m in list(owners) + list(also))
            errors = ["%s: %s" % (m.name, e["err"]) for m in self.members for e in m.since(0, "error")][-3:]
            return "settled (%s, server: %s; members: %s; %s)" % (told.get("summary", {}).get("state"), ours, theirs, errors)

        return until(what, settled)

    def owner_of(self, partition):
        return next(m for m in self.members if partition in m.owned)

    # ------------------------------------------------------------ what was read

    def periods(self, partition):
        """Who had the partition when, and what was read of it, in the order in which they got it."""
        out = []
        for member in self.everyone:
            here = None
            for event in member.since(0):
                kind = event["ev"]
                if kind == "assigned" and partition in event["p"]:
                    here = Period(member, event["t"])
                    out.append(here)
                elif kind in ("revoked", "lost") and partition in event["p"] and here:
                    here.ended = event["t"]
                elif kind == "read":
                    for p, offset, value in event["m"]:
                        if p == partition:
                            check(value == "%d:%d" % (p, offset), "%s read %r at %d of %d" % (member.name, value, offset, p))
                            check(here is not None, "%s read partition %d before it was assigned it" % (member.name, p))
                            here.reads.append((event["t"], offset))
        return sorted(out, key=lambda period: period.began)

    def goes_on(self, partition, t, begin=None, low=None):
        """From `t` on nothing of the partition was skipped. `begin`: whoever got it since began there and nowhere before;
        otherwise it went on, and whoever got it since began at what was committed: from `low` on."""
        high = begin
        old = [p for p in self.periods(partition) if p.began < t and (p.ended is None or p.ended >= t)]
        new = [p for p in self.periods(partition) if p.began >= t]
        for period in old + new:
            offsets = [offset for _, offset in period.reads]
            jump = next((i for i in range(1, len(offsets)) if offsets[i] != offsets[i - 1] + 1), None)
            check(jump is None, lambda: "%s read %d of partition %d after %d" % (
                period.member.name, offsets[jump], partition, offsets[jump - 1]))
            if begin is None and period in old and offsets:
                high = max(high or 0, offsets[-1] + 1)
        least = low if begin is None else begin
        if high is None:
            high = least
        for period in new:
            if not period.reads:
                continue
            first, last = period.reads[0][1], period.reads[-1][1]
            check(least <= first <= high, "%s went on with %d of partition %d, due was %s" % (
                period.member.name, first, partition, high if least == high else "%d to %d" % (least, high)))
            high = max(high, last + 1)
        return high

    def new_reads(self, partition, t):
        """What was read of the partition by those that got it since."""
        return sorted(r for p in self.periods(partition) if p.began >= t for r in p.reads)

    # ------------------------------------------------------------ what was moved

    def moved(self, t, answered, begin, low):
        """All that must hold after offsets were moved to `begin` ({partition: offset}) between `t` and `answered`: members
        go on there, skip nothing, no commit of before wins, and the other partitions go on, too. `low`: what was committed
        before."""
        until(lambda: "commits beyond %s, committed is %s" % (begin, self.watch.looks[-1][2]),
              lambda: any(all(look[2][p] > at for p, at in begin.items()) for look in self.watch.since(answered)[-1:]))
        looks = self.watch.since(answered)
        # What members read they told before they committed it, but their words may still be on their way.
        last = looks[-1][2]
        until("members tell what they committed", lambda: all(
            max([o for _, o in self.new_reads(p, t)], default=-1) + 1 >= last[p] for p in begin), 10)
        for p in range(PARTITIONS):
            self.goes_on(p, t, begin.get(p), low[p])
        reads = {p: self.new_reads(p, t) for p in begin}
        before = dict(low)
        for p, at in begin.items():
            before[p] = at
        for asked, got, committed in looks:
            for p, offset in committed.items():
                check(offset >= before[p], "partition %d is committed at %d, and was at %d" % (p, offset, before[p]))
                before[p] = offset
                if p in begin:
                    read = max((o + 1 for when, o in reads[p] if when <= got), default=begin[p])
                    check(offset <= read, "partition %d is committed at %d, and was read to %d since it was moved to %d" % (
                        p, offset, read, begin[p]))
        self.check_trail(t, begin, low)

    def check_trail(self, t, begin, low):
        """The audit trail has each move once, and no commit that went back after it."""
        trail = [e for e in self.site.need("GET", self.path("/audit"))["audit"] if e["at_ms"] > t * 1000 - CLOCK_MS]
        for p in range(PARTITIONS):
            entries = [e for e in trail if e["partition"] == p]
            if p not in begin:
                check(not entries, "the trail has %s" % entries)
                continue
            if not entries:
                # It was there already.
                check(begin[p] >= low[p], "the trail has no move of partition %d to %d" % (p, begin[p]))
                continue
            # Newest first: what members did before offsets were moved does not matter.
            known = {"topic": self.topic, "to": begin[p], "how": "reset", "who": "http:127.0.0.1"}
            check(known.items() <= entries[0].items(), "the trail has %s" % entries[0])
            check([e["how"] for e in entries].count("reset") == 1, "the trail has %s" % entries)

    def undisturbed(self, t, members, partitions):
        """None of the members had to give up any of the partitions since."""
        for member in members:
            for event in member.since(t, "revoked", "lost"):
                gone = set(event["p"]) & set(partitions)
                check(not gone, "%s had to give up %s" % (member.name, sorted(gone)))

    # ------------------------------------------------------------ resets

    def reset(self, how, to, topics=None, dry_run=False):
        """A reset by HTTP or by the command line."""
        if how == "http":
            body = {"to": to, "dry_run": dry_run}
            if topics is not None:
                body["topics"] = [{"topic": self.topic, "partitions": topics}]
            return self.site.need("POST", self.path("/reset"), body)
        flags = {"earliest": "--to-earliest", "latest": "--to-latest"}
        if isinstance(to, str):
            words = [flags[to]]
        else:
            (name, value), = to.items()
            flag = {"time_ms": "--to-datetime", "shift": "--shift-by", "offset": "--to-offset", "group": "--to-group", "file": "--from-file"}[name]
            words = ["%s=%s" % (flag, value)]
        if topics is not None:
            words += ["--topic", "%s:%s" % (self.topic, ",".join(map(str, topics)))]
        return self.site.tell("reset", self.group, *words, "--dry-run" if dry_run else "--yes")

    def check_rows(self, answer, moved, owners, exact):
        """The answer names the partitions, where they go, and who has, or had, them. Returns {partition: where it went}."""
        rows = {row["partition"]: row for row in answer["offsets"]}
        check(sorted(rows) == sorted(moved) and len(rows) == len(answer["offsets"]), "moved are %s, due was %s" % (sorted(rows), sorted(moved)))
        for p, row in rows.items():
            check(row["topic"] == self.topic, "moved is %s" % row)
            check(exact is None or row["to"] == exact[p], "partition %d goes to %s, due was %s" % (p, row["to"], exact and exact[p]))
            check(row["held_by"] == owners[p].id, "partition %d is held by %s, told is %s" % (p, owners[p].id, row["held_by"]))
        for row in answer["members"]:
            check(row["change"] == "revokes", "member %s: %s" % (row["member"]["client_id"], row["change"]))
        told = {row["member"]["member_id"]: {p for t in row["gives_up"] for p in t["partitions"]} for row in answer["members"]}
        due = {}
        for p in moved:
            due.setdefault(owners[p].id, set()).add(p)
        check(told == due, "members give up %s, due was %s" % (told, due))
        return {p: row["to"] for p, row in rows.items()}

    def dry(self, how, to, moved, topics=None, exact=None):
        """A dry run tells the exact change and changes nothing. Returns its answer."""
        t, before, low = time.time(), self.document(), self.watch.now()
        owners = {p: self.owner_of(p) for p in range(PARTITIONS)}
        answer = self.reset(how, to, topics, dry_run=True)
        high, after = self.watch.now(), self.document()
        check(answer["dry_run"] is True, "it is no dry run")
        self.check_rows(answer, moved, owners, exact)
        for row in answer["offsets"]:
            p = row["partition"]
            check(low[p] <= row["from"] <= high[p], "partition %d comes from %d, committed was %d to %d" % (p, row["from"], low[p], high[p]))
        for what in ("epoch", "rebalance_count", "state"):
            check(before["summary"][what] == after["summary"][what], "a dry run changed the group's " + what)
        check(len(before["audit"]) == len(after["audit"]), "a dry run is in the trail")
        self.undisturbed(t, self.members, range(PARTITIONS))
        return answer

    def play_reset(self, how, to, topics=None, exact=None, aim=None):
        """A dry run the one way, and the reset the other way, under load, with all that must hold. `exact`: where to,
        {partition: offset}; `aim` tells it by the row that came out of it."""
        moved = list(range(PARTITIONS)) if topics is None else topics
        other = "http" if how == "cli" or "file" in to else "cli"
        if "file" in to:
            other = how = "cli"
        dry = self.dry(other, to, moved, topics, exact if to != "latest" else None)
        if aim:
            for row in dry["offsets"]:
                check(row["to"] == aim(row), "the dry run goes to %d from %d" % (row["to"], row["from"]))
        owners = {p: self.owner_of(p) for p in range(PARTITIONS)}
        low, t = self.watch.now(), time.time()
        ends = self.producer.now()
        answer = self.reset(how, to, topics)
        answered, ended = time.time(), self.producer.now()
        check(answer["dry_run"] is False, "it was a dry run")
        check(not answer["notes"], "notes: %s" % answer["notes"])
        begin = self.check_rows(answer, moved, owners, exact)
        for row in answer["offsets"]:
            p = row["partition"]
            check(low[p] <= row["from"] <= ended[p], "partition %d came from %d, committed was %d" % (p, row["from"], low[p]))
            if aim:
                check(row["to"] == aim(row), "it goes to %d from %d" % (row["to"], row["from"]))
            if to == "latest":
                check(ends[p] <= row["to"] <= ended[p], "the end is %d, it was %d to %d" % (row["to"], ends[p], ended[p]))
        self.moved(t, answered, begin, low)
        self.settle()
        # Whoever had none of it, and what was none of it, noticed nothing.
        if self.protocol != "eager":
            self.undisturbed(t, self.members, set(range(PARTITIONS)) - set(moved))
        return "%d ms" % answer["took_ms"]

