"""Histories for tests/scripts/differential: what clients might do to a group coordinator, made from a seed.

A history is plain data: a setting and a list of steps. A step names who does what in which way ("actor 2 joins group 0
with its own id"), never an id or a number that a server gave: tests/tools/duel.py looks those up when it plays the
step, so that a history with steps removed is still a history.
"""

import random

# Topics that every history may use and none changes: name -> partitions.
SHARED = {"d-one": 1, "d-two": 2, "d-three": 3, "d-four": 4, "d-six": 6}
PATTERN = "d-t.*"
BAD_PATTERN = "d-[t"

# How often each step comes, by setting. The first column is classic groups, then consumer groups, then both at once.
WEIGHTS = {
    "progress": (40, 44, 44),
    "join": (9, 2, 7),
    "sync": (6, 1, 4),
    "heartbeat": (6, 1, 5),
    "leave": (6, 2, 4),
    "consumer": (1, 18, 10),
    "depart": (0, 5, 4),
    "switch": (0, 0, 6),
    "commit": (9, 9, 8),
    "fetch": (7, 6, 5),
    "offset-delete": (3, 3, 2),
    "delete": (3, 3, 3),
    "list": (3, 3, 3),
    "describe": (5, 3, 5),
    "consumer-describe": (1, 8, 6),
    "configs": (2, 4, 2),
    "find": (1, 1, 1),
    "topics": (4, 4, 3),
    "look": (3, 2, 2),
    "cut": (1, 0, 1),
}


class Setting:
    """What a seed settles before the first step."""

    def __init__(self, seed):
        rng = random.Random("setting %d" % seed)
        self.seed = seed
        self.kind = rng.choices(["classic", "consumer", "mixed"], [45, 30, 25])[0]
        # Everyone with topics of its own: then no order among ids that a server chose decides who gets what.
        self.disjoint = self.kind != "classic" and rng.random() < 0.5
        self.opaque = self.kind == "classic" and rng.random() < 0.4
        self.pattern = self.kind != "classic" and not self.disjoint and rng.random() < 0.3
        self.changes_topics = rng.random() < 0.35
        self.groups = rng.choice([1, 2, 2, 3])
        # With equal shares a mixed group's dynamic classic members would be ordered by random ids: there all are static.
        ordered = self.kind == "mixed" and not self.disjoint
        # One name at most: with a tie among several, Kafka raises the epoch at every heartbeat.
        self.assignor = rng.choice(["range", "uniform"]) if self.disjoint else "range"
        self.actors = []
        for i in range(rng.randint(2, 5)):
            self.actors.append(
                {
                    "static": ordered or rng.random() < 0.35,
                    "classic": self.kind == "classic" or (self.kind == "mixed" and rng.random() < 0.5),
                    "fresh": rng.random() < 0.5,
                    "assignor": rng.choice([None, self.assignor]),
                    "rack": rng.choice([None, None, "r1"]),
                    "protocols": rng.choice([["range"], ["range"], ["range", "sticky"], ["sticky", "range"]]),
                }
            )
        if self.kind == "mixed":
            for a in self.actors:
                a["protocols"] = ["range"]
        self.ordered = ordered


def steps(seed, count):
    """The steps of a seed: (setting, list)."""
    setting = Setting(seed)
    rng = random.Random("steps %d" % seed)
    column = ["classic", "consumer", "mixed"].index(setting.kind)
    names = list(WEIGHTS)
    weights = [WEIGHTS[n][column] for n in names]
    out = []
    for _ in range(count):
        name = rng.choices(names, weights)[0]
        if name == "topics" and not setting.changes_topics:
            name = "progress"
        step = {"do": name, "actor": rng.randrange(len(setting.actors)), "v": rng.random()}
        step["group"] = rng.choices(range(setting.groups), [6, 2, 1][: setting.groups])[0]
        step.update(MAKERS[name](rng, setting) if name in MAKERS else {})
        out.append(step)
    return setting, out


def _who(rng):
    return rng.choices(["own", "none", "other", "made-up"], [85, 6, 5, 4])[0]


def _instance(rng):
    return rng.choices(["own", "none", "other", "made-up", "empty"], [86, 5, 4, 4, 1])[0]


def _generation(rng):
    return rng.choices(["own", "-1", "older", "newer", "0", "99"], [75, 8, 6, 5, 3, 3])[0]


def _join(rng, s):
    return {
        "who": _who(rng),
        "instance": "own" if s.ordered else _instance(rng),
        "type": rng.choices(["own", "other", "empty"], [92, 5, 3])[0],
        "protocols": rng.choices(["own", "changed", "foreign", "none"], [70, 24, 4, 2])[0],
        "session_ms": rng.choices([600_000, 300_000, 10, 0, 2_000_000], [50, 44, 2, 2, 2])[0],
        "reason": rng.choice([None, "", "because"]),
    }


def _sync(rng, _):
    return {
        "who": _who(rng),
        "instance": _instance(rng),
        "generation": _generation(rng),
        "protocol": rng.choices(["own", "null", "wrong"], [90, 4, 6])[0],
        "assign": rng.choices(["all", "none", "some", "strangers"], [70, 12, 10, 8])[0],
    }


def _heartbeat(rng, _):
    return {"who": _who(rng), "instance": _instance(rng), "generation": _generation(rng)}


def _leave(rng, _):
    def one():
        return {
            "by": rng.choices(["id", "instance", "both", "stranger", "other", "strange-instance", "fenced"], [50, 18, 10, 6, 6, 5, 5])[0],
            "other": rng.randrange(5),
        }

    return {"entries": [one() for _ in range(rng.choices([1, 2, 3, 0], [70, 18, 8, 4])[0])]}


def _topic(rng, s):
    kinds = ["shared"] * 8 + ["own"] * (4 if s.changes_topics else 0) + ["unknown"]
    return [rng.choice(kinds), rng.randrange(5)]


def _partitions(rng, most=3):
    return [rng.choices([0, 1, 2, 3, 7, -1], [40, 25, 15, 10, 8, 2])[0] for _ in range(rng.randint(1, most))]


def _named(rng, s, least=1, most=3):
    return [[_topic(rng, s), _partitions(rng)] for _ in range(rng.randint(least, most))]


def _commit(rng, s):
    return {
        "mode": rng.choices(["member", "simple", "mixed"], [70, 18, 12])[0],
        "who": _who(rng),
        "instance": _instance(rng),
        "generation": _generation(rng),
        "topics": _named(rng, s, 0 if rng.random() < 0.05 else 1),
        "offset": rng.choice([0, 1, 5, 1 << 40, (1 << 63) - 1, -1, -5]),
        "leader_epoch": rng.choice([-1, -1, 0, 7]),
        "retention": rng.choice([-1, -1, 100_000]),
        "text": rng.choices(["", "none", "short", "full", "long"], [30, 10, 40, 10, 10])[0],
        "id": rng.choices(["known", "zero", "random", "gone"], [80, 5, 8, 7])[0],
    }


def _fetch(rng, s):
    def one():
        return {
            "group": rng.choices([0, 1, 2, "unknown", "empty"], [50, 20, 10, 12, 8])[0],
            "topics": rng.choices(["some", "all", "none"], [60, 30, 10])[0],
            "named": _named(rng, s),
            "who": rng.choices(["null", "own", "none", "made-up"], [70, 20, 5, 5])[0],
            "generation": rng.choices(["-1", "own", "older", "99"], [60, 28, 6, 6])[0],
        }

    return {
        "groups": [one() for _ in range(rng.choices([1, 2, 3, 0], [70, 18, 9, 3])[0])],
        "stable": rng.random() < 0.3,
        "id": rng.choices(["known", "zero", "random", "gone"], [80, 5, 8, 7])[0],
    }


def _group_list(rng, _):
    pick = [0, 1, 2, "unknown", "empty"]
    return {
        "groups": [rng.choices(pick, [50, 20, 10, 12, 8])[0] for _ in range(rng.choices([1, 2, 3, 0], [66, 20, 10, 4])[0])],
        "operations": rng.random() < 0.3,
    }


def _list(rng, _):
    states = ["Stable", "Empty", "empty", " PreparingRebalance ", "CompletingRebalance", "Dead", "Assigning", "Reconciling", "bogus", ""]
    kinds = ["classic", "Consumer", " consumer", "share", "bogus", "streams", ""]
    return {
        "states": rng.sample(states, rng.choice([0, 0, 1, 2])),
        "types": rng.sample(kinds, rng.choice([0, 0, 1, 2])),
    }


def _consumer(rng, s):
    full = rng.random() < 0.4
    regex = ["null"] * 8 + ["empty", "bad"] + (["pattern"] * 6 if s.pattern else [])
    return {
        "who": rng.choices(["own", "none", "other", "made-up", "blank"], [85, 4, 4, 5, 2])[0],
        "instance": rng.choices(["own", "none", "other", "made-up", "empty"], [88, 5, 3, 3, 1])[0],
        "epoch": rng.choices(["own", "0", "-1", "-2", "older", "newer", "-3", "99"], [48, 22, 4, 8, 6, 5, 2, 5])[0],
        "rack": rng.choices(["null", "own", "new", "empty"], [70, 20, 8, 2])[0],
        "timeout_ms": rng.choices([-1, 300_000, 600_000], [30 if full else 70, 60, 10])[0],
        "names": rng.choices(["null", "own", "new", "none", "unknown"], [15 if full else 60, 50, 24, 6, 5])[0],
        "regex": rng.choice(regex),
        "assignor": rng.choices(["null", "own", "bogus", "empty"], [50, 42, 4, 4])[0],
        "owned": rng.choices(["null", "own", "none", "part", "foreign"], [20 if full else 40, 40, 24, 10, 6])[0],
        "subset": rng.random(),
    }


def _depart(rng, _):
    return {"epoch": rng.choices(["-1", "-2"], [60, 40])[0]}


def _progress(rng, _):
    return {
        "owned": rng.choices(["own", "null"], [70, 30])[0],
        "full": rng.random() < 0.3,
        "keep_id": rng.random() < 0.2,
        "subset": rng.random(),
    }


def _configs(rng, _):
    keys = ["consumer.heartbeat.interval.ms", "consumer.session.timeout.ms", "consumer.bogus", "bogus"]
    return {
        "alter": [
            {
                "key": rng.choices(keys, [50, 38, 6, 6])[0],
                "op": rng.choices([0, 1, 2, 3], [70, 22, 4, 4])[0],
                "value": rng.choice(["5000", "7000", "15000", "60000", "900000", "1", "x", "", "none", "-1", "99999999999"]),
            }
            for _ in range(rng.choices([0, 1, 2], [40, 50, 10])[0])
        ],
        "dry": rng.random() < 0.2,
        "keys": rng.choice(["all", "some", "none"]),
        "synonyms": rng.random() < 0.5,
    }


def _find(rng, _):
    return {"groups": _group_list(rng, _)["groups"], "kind": rng.choices([0, 9, -1], [90, 5, 5])[0]}


def _topics(rng, _):
    return {
        "what": rng.choices(["create", "grow", "delete"], [50, 25, 25])[0],
        "topic": rng.randrange(3),
        "partitions": rng.choices([1, 2, 3, 4, 0, -1, -5], [25, 30, 20, 15, 4, 3, 3])[0],
        "replicas": rng.choices([1, -1, 2, 0], [80, 12, 5, 3])[0],
        "dry": rng.random() < 0.1,
        "name": rng.choices(["own", "bad", "dots", "long", "shared"], [86, 4, 3, 3, 4])[0],
        "by": rng.choices(["name", "id", "gone", "random"], [50, 36, 8, 6])[0],
        "twice": rng.random() < 0.06,
    }


def _look(rng, s):
    return {
        "what": rng.choice(["metadata", "offsets", "partitions", "epoch"]),
        "topics": _named(rng, s),
        "timestamp": rng.choices([-1, -2, -3, -4, -5, -6, 0, 5, -9], [30, 25, 10, 6, 5, 5, 8, 6, 5])[0],
        "leader_epoch": rng.choices([-1, 0, 5], [70, 20, 10])[0],
        "isolation": rng.randrange(2),
        "by_id": rng.random() < 0.3,
        "limit": rng.choice([2000, 1, 2, 0, -1]),
        "cursor": rng.choice([None, None, 0, 1, 9, -1]),
        "operations": rng.random() < 0.3,
    }


MAKERS = {
    "progress": _progress,
    "join": _join,
    "sync": _sync,
    "heartbeat": _heartbeat,
    "leave": _leave,
    "consumer": _consumer,
    "depart": _depart,
    "commit": _commit,
    "fetch": _fetch,
    "offset-delete": lambda rng, s: {"topics": _named(rng, s, rng.randrange(2)), "where": rng.choices(["own", "unknown", "empty"], [90, 6, 4])[0]},
    "delete": _group_list,
    "list": _list,
    "describe": _group_list,
    "consumer-describe": _group_list,
    "configs": _configs,
    "find": _find,
    "topics": _topics,
    "look": _look,
}
