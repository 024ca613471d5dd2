"""Real members of groups, each with the record that it has itself of what became of it.

A member is an agent of the shared judges (CONVOKE_JUDGES: clients), a process of its own whose callbacks come with their
times, on a seat of the relay (relay.py), which notes when its requests left and its answers came. `Raw` is a member made
here, for what no client library does.
"""

import os
import signal
import sys
import time
import types

import codec
import kafka

HERE = os.path.dirname(os.path.abspath(__file__))
JUDGES = os.environ.get("CONVOKE_JUDGES") or os.path.join(HERE, "..", "..", "..", "shared")
# What the judges call it -> the client id that it has.
CLIENT_IDS = {"java": "java-agent", "franz-go": "franz-go-agent", "confluent-kafka-python": "confluent-agent", "resubscriber": "resubscriber", "raw": "convoke-test"}
FAR = float("inf")


def clients():
    """The judges' clients by name, installed; None where there are no judges. Raises what an installation raises."""
    folder = os.path.join(JUDGES, "clients")
    if not os.path.isdir(folder):
        return None
    sys.path.insert(0, folder)
    from harness import clients as known

    cache = os.environ.get("CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "kafka-clients-harness")
    os.makedirs(os.path.join(cache, "logs"), exist_ok=True)
    found = {}
    with open(os.path.join(cache, "logs", "install-explain-%d.log" % os.getpid()), "wb") as log:
        for kind in (known.Java, known.Franz, known.ConfluentPy):
            client = kind(cache)
            client.install(log)
            found[client.name] = client
    return found


class Member:
    """One process. `protocol`: eager, cooperative or consumer."""

    def __init__(self, kind, seat, protocol, instance=None):
        self.kind, self.seat, self.protocol, self.instance = kind, seat, protocol, instance
        self.client_id = CLIENT_IDS[kind]
        self.group, self.since, self.left_at, self.alive = None, 0, FAR, True
        # What a static member that went has in the group until it is back.
        self.keeps = set()

    @property
    def events(self):
        """Its callbacks."""
        return [e for e in list(self.agent.events) if "p" in e and e["t"] / 1e6 >= self.since]

    @property
    def exchanges(self):
        """What it said in its group."""
        return [e for e in list(self.seat.exchanges) if e.asked["GroupId"] == self.group]

    def __str__(self):
        return self.kind + ("/" + self.instance if self.instance else "")

    # ------------------------------------------------------------ doing

    def start(self, installed, log_folder):
        from harness.core import Agent

        client = installed["confluent-kafka-python" if self.kind == "resubscriber" else self.kind]
        argv = [client.py, "-u", os.path.join(HERE, "resubscriber.py")] if self.kind == "resubscriber" else client.argv()
        world = types.SimpleNamespace(logdir=log_folder, bootstrap="127.0.0.1:%d" % self.seat.port, deadline=FAR)
        self.agent = Agent(world, "%s-%d" % (self.kind, self.seat.port), argv, client.env())
        return self

    def warm_up(self, topic):
        """Java loads and compiles what it needs when it is first needed, which takes longer than the rebalance. So it
        has been in another group before; it leaves that one alone from then on."""
        if self.kind == "java":
            self.subscribe("warm-up-%d" % self.seat.port, [topic])
            end = time.time() + 30
            while not self.agent.events and time.time() < end:
                time.sleep(0.05)
            self.group, self.since = None, FAR
        return self

    def subscribe(self, group, topics=None, pattern=None, session_ms=6000, **more):
        self.group, self.since = group, time.time()
        classic = self.protocol != "consumer"
        words = dict(group=group, protocol="classic" if classic else "consumer", heartbeat_ms=500, session_ms=session_ms)
        words.update(topics=topics) if topics else words.update(pattern=pattern)
        if classic:
            words["assignor"] = "range" if self.protocol == "eager" else "cooperative-sticky"
        if self.instance:
            words["instance"] = self.instance
        self.agent.call("subscribe", **dict(words, **more))

    def resubscribe(self, topics):
        self.agent.call("subscribe", topics=topics)

    def close(self):
        if self.instance:
            self.keeps = self.owned_at(FAR)
        self.left_at, self.alive = time.time(), False
        self.agent.close()

    def kill(self):
        self.left_at, self.alive = time.time(), False
        self.agent.kill()

    def stop(self):
        os.killpg(self.agent.p.pid, signal.SIGSTOP)

    def go_on(self):
        os.killpg(self.agent.p.pid, signal.SIGCONT)

    # ------------------------------------------------------------ its record

    def asked(self, api, since=0.0, until=FAR):
        """Its requests of this kind that were answered without an error, in order."""
        return [e for e in self.exchanges if e.api == api and e.well() and since <= e.asked_at < until]

    def joined(self, since=0.0):
        """The first request by which it came into the group, or back; None if none did."""
        if self.protocol == "consumer":
            return next((e for e in self.asked("ConsumerGroupHeartbeat", since) if e.asked["MemberEpoch"] == 0), None)
        return next(iter(self.asked("JoinGroup", since)), None)

    def member_id(self, at=FAR):
        """The id that it has, or had at a moment."""
        for e in reversed(self.exchanges):
            if e.asked_at > at or not e.well():
                continue
            if e.api in ("JoinGroup", "ConsumerGroupHeartbeat"):
                return e.answer["MemberId"] or e.asked["MemberId"]
        return None

    def heard(self):
        """When it sent its last request that kept its session."""
        return max(e.asked_at for e in self.exchanges if e.well())

    def given(self, epoch, below=FAR):
        """When it was told that it is in a generation, or at an epoch, or above but below another; None if it never was."""
        if self.protocol == "consumer":
            told = [e for e in self.asked("ConsumerGroupHeartbeat") if epoch <= e.answer["MemberEpoch"] < below]
        else:
            told = [e for e in self.asked("SyncGroup") if e.asked["GenerationId"] == epoch]
        return told[0] if told else None

    def called_back(self, since, until=FAR):
        """When its callbacks came, in seconds."""
        return [e["t"] / 1e6 for e in self.events if since <= e["t"] / 1e6 < until]

    def owned_at(self, at):
        """What it owned just before a moment, by its callbacks."""
        owned = set()
        for e in self.events:
            if e["t"] / 1e6 >= at:
                break
            owned = owned | set(e["p"]) if e["ev"] == "assigned" else owned - set(e["p"])
        return owned

    def owned_in(self, generation):
        """(its id, what it owned) in a generation of a classic group, by its callbacks; None if it was not in it."""
        sync = self.given(generation)
        if sync is None:
            return None
        ends = [e.asked_at for e in self.asked("JoinGroup", sync.asked_at)][:1] + [self.left_at]
        gone = ("revoked", "lost") if self.protocol == "eager" else ("lost",)
        ends += [e["t"] / 1e6 for e in self.events if e["ev"] in gone and e["p"] and e["t"] / 1e6 > sync.answered_at][:1]
        return sync.asked["MemberId"], self.owned_at(min(ends))


class Raw(Member):
    """A classic member made here, that joins and then says nothing."""

    def __init__(self, seat, group, topics, rebalance_ms=10_000):
        super().__init__("raw", seat, "eager")
        self.group, self.topics, self.rebalance_ms = group, topics, rebalance_ms
        self.connection = kafka.Connection(seat.port, timeout=60)

    @property
    def events(self):
        return []

    def join(self):
        """Returns when the join phase is over."""
        metadata = codec.subscription(self.topics)
        joined = {"member": "", "error": kafka.MEMBER_ID_REQUIRED}
        while joined["error"] == kafka.MEMBER_ID_REQUIRED:
            joined = self.connection.join(self.group, joined["member"], metadata, rebalance_ms=self.rebalance_ms)
        if joined["error"]:
            raise kafka.Closed("JoinGroup: error %d" % joined["error"])

    def kill(self):
        self.left_at, self.alive = time.time(), False
        self.connection.close()
