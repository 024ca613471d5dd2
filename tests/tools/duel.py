"""Plays one history of tests/tools/histories.py against two servers, and compares what they answer.

Both get each request at the same step, over connections of their own. Only JoinGroup and SyncGroup may stay without an
answer; what waits is looked at again after every step, and must be answered by both or by none. Replies are compared
after `normalised`: ids that a server chose become names by first appearance, lists whose order Kafka leaves open are
sorted, texts of errors count as there or not there, and addresses, throttle times and node facts are dropped.
"""

import json
import random
import re
import select
import socket
import time

import codec
import resolve
from histories import SHARED

PARKING = ("JoinGroup", "SyncGroup")
# How long an answer may take, how long the other server's may take after the first, and how long we wait to see that
# a request is parked. None of these decides what is compared.
ANSWER_S, CATCH_UP_S, PARKED_S = 30.0, 5.0, 0.06
# How long a timer of Kafka's may take that is due at once.
TIMER_S = 0.3

OUR_IDS = re.compile(r"m\d+-\d+|" + resolve.NOBODY)
ID_FIELDS = ("MemberId", "Leader")
DROPPED = ("ThrottleTimeMs", "ClusterId", "ControllerId", "Host", "Port", "Rack", "LeaderEpoch", "Documentation")
# Their order is part of the answer.
IN_ORDER = (
    ("OffsetCommit", "Topics"),
    ("OffsetCommit", "Partitions"),
    ("OffsetFetch", "Groups"),
    ("FindCoordinator", "Coordinators"),
    ("LeaveGroup", "Members"),
)


class Difference(Exception):
    """The servers differ: `what` is one line, `request` the last request, `replies` what came."""

    def __init__(self, what, request=None, replies=None):
        super().__init__(what)
        self.what, self.request, self.replies = what, request, replies or {}


class OpenChoice(Exception):
    """Kafka may choose here, and the servers chose differently: the rest of the history cannot be compared."""


class Known(OpenChoice):
    """A difference that docs/protocol.md tells of, behind which the two groups differ."""


class Gone(Exception):
    """A server does not answer at all: no difference, but an end of the run."""


class Pending:
    """A request that one server has not answered yet."""

    def __init__(self, sock, correlation):
        self.sock, self.correlation = sock, correlation
        self.raw, self.frame, self.closed = bytearray(), None, False

    def done(self):
        return self.frame is not None or self.closed

    def read(self):
        try:
            got = self.sock.recv(1 << 18)
        except OSError:
            got = b""
        if not got:
            self.closed = True
            return
        self.raw += got
        if len(self.raw) >= 4:
            n = int.from_bytes(self.raw[:4], "big")
            if len(self.raw) >= 4 + n:
                self.frame = bytes(self.raw[4 : 4 + n])


def await_any(pendings, seconds):
    """Reads what arrives within the time, until all are done; says whether something was read."""
    end, some = time.monotonic() + seconds, False
    while True:
        waiting = [p for p in pendings if not p.done()]
        left = end - time.monotonic()
        if not waiting:
            return some
        ready = select.select([p.sock for p in waiting], [], [], max(left, 0))[0]
        for p in waiting:
            if p.sock in ready:
                p.read()
                some = True
        if not ready and left <= 0:
            return some


class World:
    """One server, with its own values for what a history names."""

    def __init__(self, name, address, codec_):
        self.name, self.address, self.codec = name, address, codec_
        self.idle, self.correlation = [], 0
        self.names, self.values = {}, {}
        self.topic_ids, self.topic_names = {}, {}
        self.open = []

    def send(self, api, version, client_id, body):
        self.correlation += 1
        raw = self.codec.frame(api, version, self.correlation, client_id, self.own(body))
        sock = self.idle.pop() if self.idle else self._connect()
        try:
            sock.sendall(raw)
        except OSError:
            sock = self._connect()
            sock.sendall(raw)
        return Pending(sock, self.correlation)

    def _connect(self):
        for attempt in range(4):
            try:
                sock = socket.create_connection(self.address, timeout=20)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.open.append(sock)
                return sock
            except OSError as e:
                last = e
                time.sleep(0.2 * (attempt + 1))
        raise Gone("%s at %s:%d: %s" % (self.name, *self.address, last))

    def receive(self, pending, api, version):
        if pending.frame is None:
            pending.sock.close()
            return {"closed": True}
        self.idle.append(pending.sock)
        correlation, body = self.codec.response(api, version, pending.frame)
        if correlation != pending.correlation:
            raise Difference("%s answers request %d with %d" % (self.name, pending.correlation, correlation))
        return body

    def close(self):
        for sock in self.open:
            sock.close()

    # ------------------------------------------------------------ names and values

    def own(self, value):
        """A request with this server's values in it."""
        if isinstance(value, dict):
            return {k: self.own(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.own(v) for v in value]
        if isinstance(value, tuple):
            return self.topic_ids.get(value, codec.random_id(random.Random(repr(value))))
        if isinstance(value, str) and value.startswith("<"):
            return self.values.get(value, value)
        return value

    def learn_topic(self, name, life, raw):
        self.topic_ids["id", name, life] = raw
        self.topic_names[raw] = ("id", name, life)

    def normalised(self, api, body, prefix):
        return self._norm(api, "", body, prefix, True)

    def _norm(self, api, field, value, prefix, learn):
        if isinstance(value, dict):
            out = {}
            for k, v in value.items():
                if k in DROPPED and not (k == "LeaderEpoch" and api == "OffsetFetch"):
                    continue
                if api == "CreateTopics" and k in ("Configs", "TopicId"):
                    continue
                if api == "DescribeConfigs" and k == "Configs":
                    # Kafka tells of share and streams groups too
                    v = [c for c in v if c["Name"].startswith("consumer.")]
                if k in ("ErrorMessage", "ConfigErrorMessage"):
                    # the words, and whether a refusal has any, are not compared
                    out[k] = bool(v) and not value.get("ErrorCode")
                elif k == "MemberAssignment" and isinstance(v, bytes) or k == "Assignment" and isinstance(v, bytes):
                    out[k] = codec.read_assignment(v) or v
                else:
                    out[k] = self._norm(api, k, v, prefix, learn)
            return out
        if isinstance(value, list):
            if api == "ListGroups" and field == "Groups":
                value = [g for g in value if g["GroupId"].startswith(prefix + "-")]
            if (api, field) not in IN_ORDER:
                value = sorted(value, key=lambda v: canonical(self._norm(api, field, v, prefix, False)))
            return [self._norm(api, field, v, prefix, learn) for v in value]
        if isinstance(value, bytes) and len(value) == 16 and field.endswith("Id"):
            return self.topic_names.get(value, value)
        if isinstance(value, str):
            if value in self.names:
                return self.names[value]
            if field in ID_FIELDS and value and not OUR_IDS.fullmatch(value) and value.strip():
                if not learn:
                    return "<?>"
                name = "<M%d>" % (len(self.names) + 1)
                self.names[value], self.values[name] = name, value
                return name
        return value


def where(one, other, path=""):
    """Where two replies differ, in words; the first few places."""
    if isinstance(one, dict) and isinstance(other, dict):
        out = []
        for k in sorted(set(one) | set(other)):
            out += where(one.get(k, "absent"), other.get(k, "absent"), path + "." + k if path else k)
        return out
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [d for i, (a, b) in enumerate(zip(one, other)) for d in where(a, b, path + "[]")]
    if canonical(one) == canonical(other):
        return []
    return ["%s: %s, ours %s" % (path, *(canonical(v)[:60] for v in (one, other)))]


def canonical(value):
    return json.dumps(value, sort_keys=True, default=lambda v: v.hex() if isinstance(v, bytes) else str(v))


class Duel:
    """One play of a history: `play()` returns how many replies were compared, or raises Difference."""

    def __init__(self, worlds, setting, steps, prefix, versions):
        self.worlds, self.steps, self.prefix = worlds, steps, prefix
        self.story = resolve.Story(setting, prefix, versions)
        self.waiting = []
        self.compared = self.parked = self.skipped = 0
        self.apis = {}
        self.trace = []

    def play(self):
        self.learn_topics(list(SHARED))
        for number, step in enumerate(self.steps):
            if step["do"] == "cut":
                self.cut(step)
                continue
            request = self.story.request(step)
            if request is None:
                self.skipped += 1
                continue
            self.exchange(*request, step["actor"], number)
            self.after(step, request)
        self.look_at_waiting()
        return self.compared

    def after(self, step, request):
        api, _, body = request
        if api in ("CreateTopics", "DeleteTopics", "CreatePartitions"):
            self.await_topics()
        elif api == "LeaveGroup":
            self.await_empty(body["GroupId"])
        elif api == "IncrementalAlterConfigs":
            time.sleep(0.1)
        elif api == "ConsumerGroupHeartbeat" and (body["SubscribedTopicRegex"] or self.story.setting.pattern):
            self.await_alike(step["group"])
        if self.story.unsettled and self.story.setting.kind == "mixed":
            for group in sorted(self.story.unsettled):
                self.settle(group)

    # ------------------------------------------------------------ one exchange

    def exchange(self, api, version, body, actor, number=-1):
        """Sends to both, waits for both, compares; a request that both park is put aside."""
        client_id = "c%d" % actor
        pendings = [w.send(api, version, client_id, body) for w in self.worlds]
        request = {"step": number, "api": api, "version": version, "actor": actor, "body": body}
        self.trace.append([request, None])
        entry = [request, pendings, self.trace[-1]]
        await_any(pendings, PARKED_S if api in PARKING else ANSWER_S)
        if api in PARKING and not any(p.done() for p in pendings):
            # a round trip on other connections: what is due has been answered by now
            group = self.story.number(body["GroupId"])
            if group is not None:
                self.story.parked.add((actor, group))
            self.waiting.append(entry)
            self.parked += 1
            self.barrier(body["GroupId"], actor)
            return None
        reply = self.take(entry)
        if self.waiting:
            self.barrier(body.get("GroupId"), actor)
        return reply

    def barrier(self, group_id, actor):
        group_ids = [group_id] if group_id else sorted({e[0]["body"]["GroupId"] for e in self.waiting})
        body, version = {"Groups": group_ids}, 5
        end = time.monotonic() + CATCH_UP_S
        while True:
            pendings = [w.send("DescribeGroups", version, "c%d" % actor, body) for w in self.worlds]
            await_any(pendings, ANSWER_S)
            self.look_at_waiting()
            raws = [w.receive(p, "DescribeGroups", version) for w, p in zip(self.worlds, pendings)]
            replies = [w.normalised("DescribeGroups", r, self.prefix) for w, r in zip(self.worlds, raws)]
            told = [self.masked("DescribeGroups", r) for r in replies]
            self.compared += 1
            self.apis["DescribeGroups", version] = self.apis.get(("DescribeGroups", version), 0) + 1
            if canonical(told[0]) == canonical(told[1]):
                return
            # one of them may not have come to the request that is to be parked
            if time.monotonic() > end:
                request = {"step": -1, "api": "DescribeGroups", "version": version, "actor": actor, "body": body}
                raise Difference("DescribeGroups: " + "; ".join(where(*told)[:3]), request, {w.name: r for w, r in zip(self.worlds, replies)})
            time.sleep(0.05)

    def look_at_waiting(self):
        again = True
        while again and self.waiting:
            again = False
            await_any([p for _, ps, _ in self.waiting for p in ps], 0.004)
            # in the order in which they were sent, so that ids get the same names
            for entry in list(self.waiting):
                if any(p.done() for p in entry[1]):
                    self.waiting.remove(entry)
                    request = entry[0]
                    group = self.story.number(request["body"]["GroupId"])
                    if not any(e[0]["actor"] == request["actor"] and e[0]["body"]["GroupId"] == request["body"]["GroupId"] for e in self.waiting):
                        self.story.parked.discard((request["actor"], group))
                    self.take(entry)
                    again = True

    def take(self, entry):
        request, pendings, trace = entry
        api, version, body, actor = request["api"], request["version"], request["body"], request["actor"]
        await_any(pendings, CATCH_UP_S if any(p.done() for p in pendings) else 0)
        replies = []
        for world, pending in zip(self.worlds, pendings):
            if not pending.done():
                replies.append({"no answer": True})
                continue
            try:
                raw = world.receive(pending, api, version)
            except codec.Malformed as e:
                raw = {"malformed": str(e)}
            replies.append(world.normalised(api, raw, self.prefix) if raw.keys().isdisjoint(("closed", "malformed")) else raw)
        trace[1] = replies
        self.compared += 1
        self.apis[api, version] = self.apis.get((api, version), 0) + 1
        told = [self.masked(api, r) for r in replies]
        if canonical(told[0]) != canonical(told[1]):
            if better(api, request, *replies):
                return None
            if open_choice(api, *replies):
                raise OpenChoice()
            raise Difference("%s: %s" % (api, "; ".join(where(*told)[:3])), request, {w.name: r for w, r in zip(self.worlds, replies)})
        self.story.told(api, body, replies[0], actor)
        return replies[0]

    def masked(self, api, reply):
        """Without what Kafka brings up to date at the next heartbeat only."""
        groups = {"%s-g%d" % (self.prefix, g) for g in self.story.unsettled}
        may_turn = self.story.setting.kind != "classic" or self.story.turned
        if api == "DescribeGroups" and may_turn and "Groups" in reply:
            # a group that turned classic: Kafka tells of each member's target, we of what it has
            reply = json.loads(canonical(reply))
            for g in reply["Groups"]:
                for m in g["Members"] if g["GroupState"] != "Stable" else []:
                    m.pop("MemberAssignment")
            return reply
        if api not in ("ConsumerGroupDescribe", "ListGroups") or not groups or "Groups" not in reply:
            return reply
        reply = json.loads(canonical(reply))
        for g in reply["Groups"]:
            if g["GroupId"] in groups:
                g.pop("GroupState", None)
                g.pop("AssignmentEpoch", None)
                for m in g.get("Members", []):
                    m.pop("TargetAssignment", None)
        return reply

    # ------------------------------------------------------------ what needs more than a request

    def cut(self, step):
        """Closes the connections of a request that waits: nothing is to come of it."""
        for entry in self.waiting:
            if entry[0]["body"]["GroupId"] == self.story.group(step["group"]):
                self.waiting.remove(entry)
                self.story.parked.discard((entry[0]["actor"], step["group"]))
                # the server does not know that nobody waits
                self.story.turned.add(step["group"])
                self.story.whole.discard(step["group"])
                for pending in entry[1]:
                    pending.sock.close()
                return

    def settle(self, group):
        request = self.story.settle(group)
        if request:
            self.exchange(*request[1:], request[0])

    def await_empty(self, group_id):
        """Where the last member leaves a group that has handed out an id, Kafka makes it Empty, in the next generation, by
        a timer of no time: whoever joins before it has fired is in that generation, whoever comes later in the one
        after. Lets it fire."""
        end = time.monotonic() + TIMER_S
        while True:
            pendings = [w.send("DescribeGroups", 5, "c0", {"Groups": [group_id]}) for w in self.worlds]
            await_any(pendings, ANSWER_S)
            groups = [g for w, p in zip(self.worlds, pendings) for g in w.receive(p, "DescribeGroups", 5).get("Groups", [])]
            gathers = any(g["GroupState"] == "PreparingRebalance" and not g["Members"] for g in groups)
            if not gathers or time.monotonic() > end:
                return
            time.sleep(0.005)

    def await_alike(self, group):
        """Patterns are matched in the background: waits until both tell the same of the group."""
        body = {"GroupIds": [self.story.group(group)]}
        end = time.monotonic() + CATCH_UP_S
        time.sleep(0.03)
        while True:
            pendings = [w.send("ConsumerGroupDescribe", 1, "c0", body) for w in self.worlds]
            await_any(pendings, ANSWER_S)
            raws = [w.receive(p, "ConsumerGroupDescribe", 1) for w, p in zip(self.worlds, pendings)]
            told = [canonical(self.masked("ConsumerGroupDescribe", w.normalised("ConsumerGroupDescribe", r, self.prefix))) for w, r in zip(self.worlds, raws)]
            if told[0] == told[1] or time.monotonic() > end:
                break
            time.sleep(0.1)

    def metadata(self, names):
        body = {"Topics": [{"Name": n} for n in names], "AllowAutoTopicCreation": False}
        pendings = [w.send("Metadata", 12, "c0", body) for w in self.worlds]
        await_any(pendings, ANSWER_S)
        return [{t["Name"]: t for t in w.receive(p, "Metadata", 12)["Topics"]} for w, p in zip(self.worlds, pendings)]

    def await_topics(self):
        """After a change: waits until both tell the same of the history's topics, then lets Kafka notice."""
        names = ["%s-t%d" % (self.prefix, i) for i in range(3)]
        end = time.monotonic() + CATCH_UP_S
        while True:
            found = self.metadata(names)
            sizes = [{n: (len(t["Partitions"]), [p["ErrorCode"] for p in t["Partitions"]]) for n, t in f.items() if t["ErrorCode"] == 0} for f in found]
            if sizes[0] == sizes[1] and not any(any(errors) for _, errors in sizes[0].values()):
                break
            if time.monotonic() > end:
                raise Difference("topics", None, {w.name: s for w, s in zip(self.worlds, sizes)})
            time.sleep(0.02)
        time.sleep(0.06)
        changed = {n: s[0] for n, s in sizes[0].items()} != self.story.topics
        self.learn_topics(names, found)
        if changed:
            for group in sorted({g for (_, g), s in self.story.seats.items() if s.kind == "consumer" and s.present()}):
                self.settle(group)

    def learn_topics(self, names, found=None):
        found = found or self.metadata(names)
        for n in names:
            there = found[0].get(n)
            if there is None or there["ErrorCode"] != 0:
                self.story.topics.pop(n, None)
                continue
            life = self.story.lives.get(n, 0)
            if self.worlds[0].topic_ids.get(("id", n, life)) != there["TopicId"] and n not in SHARED:
                self.story.lives[n] = life = life + 1
            if n not in SHARED:
                self.story.topics[n] = len(there["Partitions"])
            for world, f in zip(self.worlds, found):
                world.learn_topic(n, life, f[n]["TopicId"])

    def tidy(self):
        """Removes what the history left on both servers; nothing is compared."""
        for w in self.worlds:
            try:
                self._tidy(w)
            except (Gone, OSError, KeyError):
                pass
            w.close()

    def _tidy(self, w):
        def ask(api, version, body):
            p = w.send(api, version, "tidy", body)
            await_any([p], ANSWER_S)
            return w.receive(p, api, version)

        names = [self.story.group(g) for g in range(self.story.setting.groups)] + [self.story.group("unknown")]
        members = {g["GroupId"]: [m["MemberId"] for m in g["Members"]] for g in ask("DescribeGroups", 5, {"Groups": names})["Groups"]}
        for g in ask("ConsumerGroupDescribe", 1, {"GroupIds": names})["Groups"]:
            members[g["GroupId"]] = members.get(g["GroupId"], []) + [m["MemberId"] for m in g["Members"]]
        for group, ids in members.items():
            if ids:
                ask("LeaveGroup", 3, {"GroupId": group, "Members": [{"MemberId": i} for i in ids]})
        ask("DeleteGroups", 2, {"GroupsNames": names})
        if self.story.setting.changes_topics:
            ask("DeleteTopics", 5, {"TopicNames": ["%s-t%d" % (self.prefix, i) for i in range(3)], "TimeoutMs": 10_000})


def better(api, request, kafka, ours):
    """Whether docs/protocol.md tells of this difference. Raises Known if nothing can be compared behind it."""
    if api == "SyncGroup" and kafka.get("no answer") and ours.get("ErrorCode") == 25:
        # a member that is parked in SyncGroup is removed by LeaveGroup
        return True
    if api == "ConsumerGroupHeartbeat" and (kafka.get("ErrorCode"), ours.get("ErrorCode")) == (110, 128):
        # the same, and the pattern does not compile either
        return True
    if api == "ConsumerGroupHeartbeat" and ours.get("ErrorCode") == 0:
        body, error = request["body"], kafka.get("ErrorCode")
        if error == -1 and body["MemberEpoch"] == 0:
            raise Known("a classic group with members that lack its protocol goes over")
        if error == 110 and 0 < body["MemberEpoch"] < ours["MemberEpoch"]:
            raise Known("a member that waits for partitions loses two answers in a row")
        if error == 111 and body["MemberEpoch"] == 0 and ours["MemberId"] == body["MemberId"]:
            raise Known("the answer to a static member's first heartbeat is lost")
    return False


def open_choice(api, kafka, ours):
    """A leader chosen among several heirs."""
    if api != "JoinGroup" or kafka.get("ErrorCode") != 0 or ours.get("ErrorCode") != 0:
        return False
    return kafka.get("Leader") != ours.get("Leader") and kafka["GenerationId"] == ours["GenerationId"]
