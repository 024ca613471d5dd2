"""Turns a step of tests/tools/histories.py into one request, by what the replies so far have told.

Requests are dictionaries as tests/tools/codec.py writes them, with two kinds of placeholders for what each server
chose itself: "<M3>" is the third member id that the history saw, ("id", name, n) the id of a topic's n-th life.
Both servers get the same request after tests/tools/duel.py has put in their own values. `None` means that the step says
nothing here, or asks for what docs/protocol.md says is answered better than by Kafka.
"""

import random

import codec
from histories import BAD_PATTERN, PATTERN, SHARED

NOBODY = "m-nobody"


class Seat:
    """An actor in a group: what it knows of itself."""

    def __init__(self):
        self.member = None
        self.kind = None
        # out, given (an id, no more), joined, in, rejoin (was told to), away (epoch -2)
        self.phase = "out"
        self.generation = -1
        self.members = []
        self.type = self.protocol = None
        self.assigned = {}
        self.variant = self.lives = 0
        self.instance = None
        # what it last subscribed to by the consumer protocol
        self.names = self.pattern = None

    def present(self):
        return self.phase not in ("out", "given")


class Story:
    """Where a history stands: all that was told alike by both servers."""

    def __init__(self, setting, prefix, versions):
        self.setting, self.prefix, self.versions = setting, prefix, versions
        self.seats = {}
        self.classic = [a["classic"] for a in setting.actors]
        self.leaders = {}
        # ids whose actors took another one while they were members
        self.ghosts = {}
        # topics of this history: name -> partitions; lives counts how often each was made
        self.topics, self.lives = {}, dict.fromkeys(SHARED, 1)
        # groups whose epoch has risen and whose target Kafka computes at the next heartbeat
        self.unsettled = set()
        # ids that were static members
        self.statics = set()
        # groups whose leader has given everything out; groups that turned classic before that
        self.whole, self.turned = set(), set()
        # groups that exist
        self.made = set()
        self.parked = set()

    # ------------------------------------------------------------ names

    def seat(self, actor, group):
        return self.seats.setdefault((actor, group), Seat())

    def group(self, which):
        if which == "unknown":
            return self.prefix + "-nobody"
        return "" if which == "empty" else "%s-g%d" % (self.prefix, which % self.setting.groups)

    def number(self, group_id):
        tail = group_id[len(self.prefix) + 2 :]
        return int(tail) if group_id.startswith(self.prefix + "-g") and tail.isdigit() else None

    def in_group(self, group):
        return [(a, s) for (a, g), s in sorted(self.seats.items()) if g == group]

    def topic_name(self, topic):
        kind, n = topic
        if kind == "shared":
            return sorted(SHARED)[n % len(SHARED)]
        return "%s-%s%d" % (self.prefix, "t" if kind == "own" else "none", n % 3)

    def topic_id(self, name, mode, salt):
        if mode == "zero":
            return codec.ZERO_ID
        if mode == "random" or name not in self.lives:
            return codec.random_id(random.Random("%s %s" % (name, salt)))
        return ("id", name, max(self.lives[name] - (mode == "gone"), 1))

    def version(self, api, fraction, least=0):
        low, high = self.versions[api]
        low = max(low, least)
        return min(low + int(fraction * (high - low + 1)), high)

    def topics_of(self, actor, variant):
        """What an actor subscribes to."""
        if self.setting.disjoint:
            mine = sorted(SHARED)[actor]
            other = "%s-t%d" % (self.prefix, actor)
            lists = [[mine], [mine, other], [other], [mine]]
        else:
            own = self.prefix + "-t0"
            lists = [["d-two"], ["d-six", "d-two"], ["d-one", own], ["d-three"], ["d-four", "d-six", own]]
        return lists[variant % len(lists)]

    def instance(self, step, mode="own"):
        actor = step["actor"]
        if mode == "own":
            return "i%d" % actor if self.setting.actors[actor]["static"] else None
        return {"none": None, "other": "i%d" % ((actor + 1) % 5), "made-up": "i-none", "empty": ""}[mode]

    def who(self, step, seat, mode):
        if mode == "own":
            return seat.member or ""
        if mode == "other":
            others = [s.member for a, s in self.in_group(step["group"]) if a != step["actor"] and s.member]
            return others[0] if others else NOBODY
        return {"none": "", "made-up": NOBODY, "blank": " "}[mode]

    def generation(self, seat, mode):
        own = seat.generation
        return {"own": own, "-1": -1, "older": own - 1, "newer": own + 1, "0": 0, "99": 99}[mode]

    # ------------------------------------------------------------ steps

    def request(self, step):
        """(api, version, body) or None."""
        return getattr(self, "_" + step["do"].replace("-", "_"))(step)

    def _progress(self, step):
        """The next thing that a client in its right mind would do."""
        actor, group = step["actor"], step["group"]
        seat, who = self.seat(actor, group), self.setting.actors[actor]
        ghosts = self.ghosts.get(group)
        if ghosts and step["subset"] < 0.5:
            gone = [{"MemberId": g, "GroupInstanceId": None} for g in ghosts]
            body = {"GroupId": self.group(group), "Members": [g for g in gone if self._may_leave(group, g)]}
            return ("LeaveGroup", self.version("LeaveGroup", step["v"], 3), body) if body["Members"] else None
        if (actor, group) in self.parked:
            # it waits; somebody else has its turn
            others = [a for a, s in self.in_group(group) if (a, group) not in self.parked and s.present()]
            if not others:
                return None
            return self._progress({**step, "actor": others[int(step["subset"] * len(others))]})
        if not self.classic[actor]:
            return self._beat(step, seat, who)
        if seat.phase in ("out", "away", "given", "rejoin") or seat.kind == "consumer":
            mode = "own" if seat.phase != "out" or step["keep_id"] else "none"
            return self._join({**step, "who": mode, "instance": "own", "type": "own", "protocols": "own", "session_ms": 600_000, "reason": None})
        if seat.phase == "joined":
            return self._sync({**step, "who": "own", "instance": "own", "generation": "own", "protocol": "own", "assign": "all"})
        if step["full"]:
            return self._commit(
                {**step, "mode": "member", "who": "own", "instance": "own", "generation": "own", "topics": [[["shared", 1], [0]]]}
                | {"offset": int(step["subset"] * 100), "leader_epoch": -1, "retention": -1, "text": "short", "id": "known"}
            )
        return self._heartbeat({**step, "who": "own", "instance": "own", "generation": "own"})

    def _beat(self, step, seat, who):
        joins = seat.phase in ("out", "away", "given") or seat.kind != "consumer"
        full = joins or step["full"]
        words = {
            "who": "own",
            "instance": "own",
            "epoch": "0" if joins else "own",
            "rack": "own" if full else "null",
            "timeout_ms": 600_000 if full else -1,
            "names": "own" if full else "null",
            "regex": "null",
            "assignor": "own" if full else "null",
            "owned": "none" if joins else "own" if full else step["owned"],
        }
        if joins and seat.phase == "out" and not step["keep_id"]:
            words["who"] = "new"
        return self._consumer({**step, **words})

    def _protocols(self, step, seat):
        actor = step["actor"]
        if step["protocols"] == "none":
            return []
        if step["protocols"] == "foreign":
            return [{"Name": "nobody-else", "Metadata": b""}]
        if step["protocols"] == "changed" and not (seat.kind == "consumer" and seat.present()):
            seat.variant += 1
        if self.setting.opaque:
            metadata = b"metadata %d" % (seat.variant % 3)
        else:
            topics = self.topics_of(actor, seat.variant)
            owned = {t: ps for t, ps in seat.assigned.items() if t in topics} if seat.kind == "classic" and seat.present() else {}
            metadata = codec.subscription(topics, owned, version=(actor + seat.variant) % 4)
        return [{"Name": n, "Metadata": metadata} for n in self.setting.actors[actor]["protocols"]]

    def _join(self, step):
        actor, group = step["actor"], step["group"]
        seat = self.seat(actor, group)
        static = self.setting.actors[actor]["static"]
        if self.setting.ordered and not static:
            return None
        version = self.version("JoinGroup", step["v"], 5 if static and self.setting.kind != "classic" else 0)
        member = self.who(step, seat, step["who"])
        if member.startswith("m") and self.setting.kind == "mixed" and seat.kind != "consumer" and member == seat.member:
            member = ""
        modern = any(s.kind == "consumer" and s.present() for _, s in self.in_group(group))
        if modern and not self.setting.disjoint and member == "" and not (static and version >= 5):
            # the order of ids that the servers choose would decide who gets what
            return None
        if self.setting.disjoint and (step["who"] == "other" or self.ghosts.get(group)):
            return None
        own = step["instance"] == "own"
        if self.setting.disjoint and member == "" and not (static and own) and (seat.present() or (actor, group) in self.parked):
            # two members with the topics of one
            return None
        if seat.kind == "consumer" and seat.present():
            # docs/protocol.md: a group that turns classic with work left, or with another subscription
            same = seat.names == sorted(self.topics_of(actor, seat.variant)) and not seat.pattern
            if not same or not self._settled(group):
                return None
        kind = "connect" if self.setting.opaque else "consumer"
        if step["type"] != "own":
            kind = "" if step["type"] == "empty" else "else"
        body = {
            "GroupId": self.group(group),
            "SessionTimeoutMs": step["session_ms"],
            "RebalanceTimeoutMs": 600_000,
            "MemberId": member,
            "GroupInstanceId": self.instance(step, step["instance"]) if version >= 5 else None,
            "ProtocolType": kind,
            "Protocols": self._protocols(step, seat),
            "Reason": step["reason"],
        }
        return "JoinGroup", version, body

    def _settled(self, group):
        """Whether everybody has what its target says, as far as one can tell."""
        seats = [s for _, s in self.in_group(group) if s.present()]
        modern = [s for s in seats if s.kind == "consumer"]
        alone = len(seats) == 1 and not self.ghosts.get(group) and not any(g == group for _, g in self.parked)
        return len(modern) > 1 or (group not in self.unsettled and alone)

    def _sync(self, step):
        seat = self.seat(step["actor"], step["group"])
        members = list(seat.members)
        if step["assign"] == "none":
            members = []
        elif step["assign"] == "some":
            members = members[:1]
        elif step["assign"] == "strangers":
            members = members + [NOBODY]
        entries = []
        for i, m in enumerate(members):
            if self.setting.opaque:
                raw = b"assignment %d of %d" % (i, len(members))
            else:
                own = [s for s in self.in_group(step["group"]) if s[1].member == m]
                topics = self.topics_of(own[0][0], own[0][1].variant) if own else []
                sizes = {t: self.topics.get(t) or SHARED.get(t) or 0 for t in topics}
                shares = {t: [p for p in range(n) if p % len(members) == i or self.setting.disjoint] for t, n in sizes.items()}
                raw = codec.assignment({t: ps for t, ps in shares.items() if ps})
            entries.append({"MemberId": m, "Assignment": raw})
        names = {"own": (seat.type, seat.protocol), "null": (None, None), "wrong": (seat.type, "wrong")}[step["protocol"]]
        body = {
            "GroupId": self.group(step["group"]),
            "GenerationId": self.generation(seat, step["generation"]),
            "MemberId": self.who(step, seat, step["who"]),
            "GroupInstanceId": self.instance(step, step["instance"]),
            "ProtocolType": names[0],
            "ProtocolName": names[1],
            "Assignments": entries,
            "strange": step["assign"] != "all",
        }
        return "SyncGroup", self.version("SyncGroup", step["v"]), body

    def _heartbeat(self, step):
        seat = self.seat(step["actor"], step["group"])
        body = {
            "GroupId": self.group(step["group"]),
            "GenerationId": self.generation(seat, step["generation"]),
            "MemberId": self.who(step, seat, step["who"]),
            "GroupInstanceId": self.instance(step, step["instance"]),
        }
        return "Heartbeat", self.version("Heartbeat", step["v"]), body

    def _leave(self, step):
        group, version = step["group"], self.version("LeaveGroup", step["v"])
        seat = self.seat(step["actor"], group)
        entries = []
        for e in step["entries"]:
            target = seat if e["by"] != "other" else self.seat(e["other"] % len(self.setting.actors), group)
            own = self.instance({"actor": next(a for a, s in self.in_group(group) if s is target)})
            entry = {"MemberId": target.member or "", "GroupInstanceId": None, "Reason": "bored"}
            if e["by"] == "instance":
                entry.update(MemberId="", GroupInstanceId=own)
            elif e["by"] == "both":
                entry.update(GroupInstanceId=own)
            elif e["by"] == "stranger":
                ghosts = self.ghosts.get(group)
                entry.update(MemberId=ghosts[0] if ghosts else NOBODY)
            elif e["by"] == "strange-instance":
                entry.update(MemberId="", GroupInstanceId="i-none")
            elif e["by"] == "fenced":
                entry.update(MemberId=NOBODY, GroupInstanceId=own)
            if self._may_leave(group, entry):
                entries.append(entry)
        if step["entries"] and not entries:
            return None
        body = {"GroupId": self.group(group), "MemberId": entries[0]["MemberId"] if entries else "", "Members": entries}
        return "LeaveGroup", version, body

    def _may_leave(self, group, entry):
        """Not a leader with two or more heirs: Kafka chooses one by hash. Nor a static member that leaves for good with
        others there: its partitions rest for a while."""
        seats = [s for _, s in self.in_group(group) if s.present()]
        leaving = [s for s in seats if s.member == entry["MemberId"] or (s.instance and s.instance == entry["GroupInstanceId"])]
        ids = [s.member for s in leaving] + [entry["MemberId"]]
        if self.leaders.get(group) in ids and len(seats) + len(self.ghosts.get(group, [])) > 2:
            return False
        modern = any(s.kind == "consumer" for s in seats)
        statics = any(s.instance for s in leaving) or entry["MemberId"] in self.statics
        others = len(seats) + len(self.ghosts.get(group, [])) > 1
        return not (others and modern and statics)

    def _consumer(self, step):
        actor, group = step["actor"], step["group"]
        seat, who = self.seat(actor, group), self.setting.actors[actor]
        version = self.version("ConsumerGroupHeartbeat", step["v"])
        instance = self.instance(step, step["instance"])
        member = self.who(step, seat, step["who"]) if step["who"] != "new" else ""
        if step["who"] == "new" or (step["who"] == "own" and not member):
            if not (version == 0 and self.setting.disjoint and who["fresh"]):
                seat.lives += 1
                member = "m%d-%d" % (actor, seat.lives)
        if member == "" and not self.setting.disjoint:
            version = 1
        epoch = {"own": seat.generation if seat.kind == "consumer" else 0, "0": 0, "-1": -1, "-2": -2, "-3": -3, "99": 99}.get(step["epoch"])
        if epoch is None:
            epoch = self.generation(seat, step["epoch"])
        if epoch == -1 and not self._may_leave(group, {"MemberId": member, "GroupInstanceId": instance}):
            return None
        seats = [s for _, s in self.in_group(group) if s.present()]
        if epoch == 0 and any(s.kind == "classic" for s in seats) and not any(s.kind == "consumer" for s in seats):
            # docs/protocol.md: an upgrade with work left
            known = step["names"] in ("none", "null") or (actor, group) in self.parked or any(s.member == member or (instance is not None and s.instance == instance) for s in seats)
            waits = any(g == group for _, g in self.parked) or any(s.phase != "in" for s in seats)
            if (known or group in self.turned) and (waits or group not in self.whole):
                return None
        holder = [s for _, s in self.in_group(group) if s.present() and s.member == member]
        if epoch == 0 and holder:
            # docs/protocol.md: lost answers of a first heartbeat; a member with two identities
            if holder[0].instance != instance or (instance is not None and holder[0].phase != "away"):
                return None
        if epoch == 0 and self.setting.disjoint and self.ghosts.get(group):
            return None
        if epoch == 0 and self.setting.disjoint and seat.present() and member != seat.member and not (who["static"] and step["instance"] == "own"):
            return None
        if epoch == 0 and instance and not who["static"] and self.setting.kind == "mixed":
            return None
        if self.setting.disjoint and step["who"] == "other" and step["names"] != "null":
            return None
        if step["names"] == "new":
            seat.variant += 1
        subscribed = self.topics_of(actor, seat.variant)
        topics = {"null": None, "own": subscribed, "new": subscribed, "none": [], "unknown": subscribed + [self.prefix + "-none"]}[step["names"]]
        body = {
            "GroupId": self.group(group),
            "MemberId": member,
            "MemberEpoch": epoch,
            "InstanceId": instance,
            "RackId": {"null": None, "own": who["rack"], "new": "r2", "empty": ""}[step["rack"]],
            "RebalanceTimeoutMs": step["timeout_ms"],
            "SubscribedTopicNames": topics,
            "SubscribedTopicRegex": {"null": None, "empty": "", "bad": BAD_PATTERN, "pattern": PATTERN}[step["regex"]],
            "ServerAssignor": {"null": None, "own": who["assignor"], "bogus": "bogus", "empty": ""}[step["assignor"]],
            "TopicPartitions": self._owned(step, seat),
        }
        return "ConsumerGroupHeartbeat", version, body

    def _owned(self, step, seat):
        if step["owned"] == "null":
            return None
        if step["owned"] == "none":
            return []
        partitions = {t: list(ps) for t, ps in seat.assigned.items()}
        if step["owned"] == "part" and partitions:
            first = sorted(partitions)[0]
            partitions[first] = partitions[first][: int(step["subset"] * (len(partitions[first]) + 1))]
        if step["owned"] == "foreign":
            partitions = {"d-six": [0, 1, 2, 3, 4, 5, 6]}
        return [{"TopicId": ("id", t, self.lives.get(t, 1)), "Partitions": ps} for t, ps in sorted(partitions.items()) if self.lives.get(t)]

    def _depart(self, step):
        seat = self.seat(step["actor"], step["group"])
        if seat.kind != "consumer" or not seat.present():
            return None
        words = {"who": "own", "instance": "own", "rack": "null", "timeout_ms": -1, "names": "null", "regex": "null", "assignor": "null"}
        return self._consumer({**step, **words, "owned": "null"})

    def _switch(self, step):
        """The actor turns to the other protocol, and says so at once."""
        self.classic[step["actor"]] = not self.classic[step["actor"]]
        return self._progress({**step, "owned": "own", "full": False, "keep_id": True, "subset": 0.9})

    # ------------------------------------------------------------ offsets

    def _partition_lists(self, named, partition, by_id, mode):
        out = []
        for i, (topic, numbers) in enumerate(named):
            name = self.topic_name(topic)
            one = {"Name": name}
            if by_id:
                one["TopicId"] = self.topic_id(name, mode, i)
            out.append({**one, **partition(numbers)})
        return out

    def _commit(self, step):
        group, seat = step["group"], self.seat(step["actor"], step["group"])
        version = self.version("OffsetCommit", step["v"])
        # docs/protocol.md: a group of which nothing was stored
        length = step["text"] if step["text"] != "long" or group in self.made else "full"
        text = {"": "", "none": None, "short": "note", "full": "x" * 4096, "long": "x" * 4097}[length]
        one = {"CommittedOffset": step["offset"], "CommittedLeaderEpoch": step["leader_epoch"], "CommittedMetadata": text}
        body = {
            "GroupId": self.group(group),
            "GenerationIdOrMemberEpoch": self.generation(seat, step["generation"]),
            "MemberId": self.who(step, seat, step["who"]),
            "GroupInstanceId": self.instance(step, step["instance"]),
            "RetentionTimeMs": step["retention"],
            "Topics": self._partition_lists(step["topics"], lambda ps: {"Partitions": [{"PartitionIndex": p, **one} for p in ps]}, version >= 10, step["id"]),
        }
        if step["mode"] == "simple":
            body.update(GenerationIdOrMemberEpoch=-1, MemberId="", GroupInstanceId=None)
        elif step["mode"] == "mixed":
            body.update(GenerationIdOrMemberEpoch=-1)
        return "OffsetCommit", version, body

    def _fetch(self, step):
        version = self.version("OffsetFetch", step["v"])
        if version < 8 and not step["groups"]:
            return None
        groups = []
        for g in step["groups"]:
            seat = self.seat(step["actor"], g["group"] if isinstance(g["group"], int) else 0)
            named = self._partition_lists(g["named"], lambda ps: {"PartitionIndexes": ps}, version >= 10, step["id"])
            who = {"null": None, "own": seat.member, "none": "", "made-up": NOBODY}[g["who"]]
            groups.append(
                {
                    "GroupId": self.group(g["group"]),
                    "MemberId": who,
                    "MemberEpoch": self.generation(seat, g["generation"]),
                    "Topics": {"some": named, "all": None, "none": []}[g["topics"]],
                }
            )
        if version < 8:
            one = groups[0]
            if one["Topics"] is None and version < 2:
                return None
            return "OffsetFetch", version, {"GroupId": one["GroupId"], "Topics": one["Topics"], "RequireStable": step["stable"]}
        return "OffsetFetch", version, {"Groups": groups, "RequireStable": step["stable"]}

    def _offset_delete(self, step):
        where = step["group"] if step["where"] == "own" else step["where"]
        topics = self._partition_lists(step["topics"], lambda ps: {"Partitions": [{"PartitionIndex": p} for p in ps]}, False, None)
        return "OffsetDelete", 0, {"GroupId": self.group(where), "Topics": topics}

    # ------------------------------------------------------------ admin

    def _group_names(self, step):
        return [self.group(g) for g in step["groups"]]

    def _delete(self, step):
        return "DeleteGroups", self.version("DeleteGroups", step["v"]), {"GroupsNames": self._group_names(step)}

    def _list(self, step):
        body = {"StatesFilter": step["states"], "TypesFilter": step["types"]}
        return "ListGroups", self.version("ListGroups", step["v"]), body

    def _describe(self, step):
        body = {"Groups": self._group_names(step), "IncludeAuthorizedOperations": step["operations"]}
        return "DescribeGroups", self.version("DescribeGroups", step["v"]), body

    def _consumer_describe(self, step):
        body = {"GroupIds": self._group_names(step), "IncludeAuthorizedOperations": step["operations"]}
        return "ConsumerGroupDescribe", self.version("ConsumerGroupDescribe", step["v"]), body

    def _configs(self, step):
        name = self.group(step["group"])
        if step["alter"]:
            # clamped or not, a session of less than a minute could end within a history
            entries = [{"Name": a["key"], "ConfigOperation": a["op"], "Value": None if a["value"] == "none" else a["value"]} for a in step["alter"]]
            body = {"Resources": [{"ResourceType": 32, "ResourceName": name, "Configs": entries}], "ValidateOnly": step["dry"]}
            return "IncrementalAlterConfigs", self.version("IncrementalAlterConfigs", step["v"]), body
        keys = {"all": None, "some": ["consumer.session.timeout.ms", "consumer.bogus"], "none": []}[step["keys"]]
        resource = {"ResourceType": 32, "ResourceName": name, "ConfigurationKeys": keys}
        body = {"Resources": [resource], "IncludeSynonyms": step["synonyms"], "IncludeDocumentation": False}
        return "DescribeConfigs", self.version("DescribeConfigs", step["v"]), body

    def _find(self, step):
        version, names = self.version("FindCoordinator", step["v"]), self._group_names(step)
        if version < 4 and not names:
            return None
        body = {"KeyType": step["kind"], "CoordinatorKeys": names, "Key": names[0] if names else ""}
        return "FindCoordinator", version, body

    def _topics(self, step):
        name = "%s-t%d" % (self.prefix, step["topic"])
        name = {"own": name, "bad": self.prefix + "/x", "dots": "..", "long": "x" * 250, "shared": "d-one"}[step["name"]]
        members = [g for (_, g), s in self.seats.items() if s.kind == "consumer" and s.present()]
        beating = {g for (_, g), s in self.seats.items() if s.kind == "consumer" and s.phase == "in"}
        if step["what"] == "create":
            topic = {"Name": name, "NumPartitions": step["partitions"], "ReplicationFactor": step["replicas"]}
            request = "CreateTopics", 7 if not step["dry"] else self.version("CreateTopics", step["v"])
            body = {"Topics": [topic] * (1 + step["twice"]), "timeoutMs": 10_000, "validateOnly": step["dry"]}
        elif step["what"] == "grow":
            topic = {"Name": name, "Count": step["partitions"], "Assignments": None}
            request = "CreatePartitions", self.version("CreatePartitions", step["v"])
            body = {"Topics": [topic] * (1 + step["twice"]), "TimeoutMs": 10_000, "ValidateOnly": step["dry"]}
            if name == "d-one" and not step["dry"]:
                return None
        else:
            if name == "d-one":
                return None
            version = self.version("DeleteTopics", step["v"])
            by_id = step["by"] != "name" and version >= 6
            one = {"Name": None, "TopicId": self.topic_id(name, step["by"], 0)} if by_id else {"Name": name}
            body = {"Topics": [one] * (1 + step["twice"]), "TopicNames": [name] * (1 + step["twice"]), "TimeoutMs": 10_000}
            request = "DeleteTopics", version
        # Kafka notices at a heartbeat: somebody in every consumer group must be able to send one
        if any(g not in beating for g in members):
            return None
        return *request, body

    def _look(self, step):
        named = [(self.topic_name(t), ps) for t, ps in step["topics"]]
        if step["what"] == "metadata":
            version = self.version("Metadata", step["v"])
            topics = [{"Name": n} for n, _ in named]
            if step["by_id"] and version >= 12:
                topics = [{"Name": None, "TopicId": self.topic_id(n, "known", i)} for i, (n, _) in enumerate(named)]
            body = {"Topics": topics, "AllowAutoTopicCreation": False, "IncludeTopicAuthorizedOperations": step["operations"]}
            return "Metadata", version, body
        if step["what"] == "offsets":
            one = {"CurrentLeaderEpoch": step["leader_epoch"], "Timestamp": step["timestamp"]}
            topics = [{"Name": n, "Partitions": [{"PartitionIndex": p, **one} for p in ps]} for n, ps in named]
            body = {"ReplicaId": -1, "IsolationLevel": step["isolation"], "Topics": topics, "TimeoutMs": 10_000}
            return "ListOffsets", self.version("ListOffsets", step["v"]), body
        if step["what"] == "epoch":
            topics = [{"Topic": n, "Partitions": [{"Partition": p, "CurrentLeaderEpoch": step["leader_epoch"], "LeaderEpoch": 0} for p in ps]} for n, ps in named]
            return "OffsetForLeaderEpoch", self.version("OffsetForLeaderEpoch", step["v"]), {"ReplicaId": -2, "Topics": topics}
        cursor = None if step["cursor"] is None else {"TopicName": named[0][0], "PartitionIndex": step["cursor"]}
        body = {"Topics": [{"Name": n} for n, _ in named], "ResponsePartitionLimit": step["limit"], "Cursor": cursor}
        return "DescribeTopicPartitions", self.version("DescribeTopicPartitions", step["v"]), body

    def _cut(self, step):
        """The connection of a request that waits is cut; the duel does it."""
        return "cut", 0, {}

    def settle(self, group):
        """A plain heartbeat that lets Kafka notice what has changed, or None if nobody can send one."""
        for actor, seat in self.in_group(group):
            if seat.kind == "consumer" and seat.phase == "in":
                body = {"GroupId": self.group(group), "MemberId": seat.member, "MemberEpoch": seat.generation, "InstanceId": seat.instance}
                return actor, "ConsumerGroupHeartbeat", self.versions["ConsumerGroupHeartbeat"][1], body
        return None

    # ------------------------------------------------------------ replies

    def told(self, api, request, reply, actor):
        """Takes in what both servers have said."""
        take = getattr(self, "_told_" + api, None)
        group = self.number(request.get("GroupId", ""))
        if api in ("JoinGroup", "ConsumerGroupHeartbeat") and reply.get("ErrorCode") in (0, 79):
            self.made.add(group)
        if api == "OffsetCommit" and any(p["ErrorCode"] == 0 for t in reply.get("Topics", []) for p in t["Partitions"]):
            self.made.add(group)
        if take and not reply.get("closed") and (group is not None or api in ("DeleteGroups",)):
            take(request, reply, actor, group)

    def _seat_of(self, member, group, actor):
        for _, seat in self.in_group(group):
            if member and seat.member == member:
                return seat
        return self.seat(actor, group)

    def _take_id(self, seat, member, group):
        if seat.member != member and seat.present() and seat.member:
            self.ghosts.setdefault(group, []).append(seat.member)
        if member in self.ghosts.get(group, []):
            self.ghosts[group].remove(member)
        seat.member = member

    def _told_JoinGroup(self, request, reply, actor, group):
        seat = self._seat_of(reply["MemberId"] or request["MemberId"], group, actor)
        error = reply["ErrorCode"]
        if error == 0:
            replaced = request["GroupInstanceId"] is not None and request["GroupInstanceId"] == seat.instance
            if replaced and seat.member != reply["MemberId"]:
                seat.phase = "out"
            self._take_id(seat, reply["MemberId"], group)
            seat.kind, seat.phase, seat.generation = "classic", "joined", reply["GenerationId"]
            seat.instance = request["GroupInstanceId"]
            if seat.instance is not None:
                self.statics.add(seat.member)
            self.whole.discard(group)
            seat.members = [m["MemberId"] for m in reply["Members"]]
            seat.type = reply.get("ProtocolType") or request["ProtocolType"]
            seat.protocol = reply["ProtocolName"]
            self.leaders[group] = reply["Leader"]
        elif error == 79:
            self._take_id(seat, reply["MemberId"], group)
            seat.phase, seat.kind = "given", "classic"
        elif error in (25, 82) and request["MemberId"] == seat.member and request["GroupInstanceId"] == seat.instance:
            seat.phase = "out"

    def _told_SyncGroup(self, request, reply, actor, group):
        seat = self._seat_of(request["MemberId"], group, actor)
        error = reply["ErrorCode"]
        if error == 0:
            seat.phase = "in"
            if len(request["Assignments"]) == len(seat.members) > 0 and not request["strange"]:
                self.whole.add(group)
                self.turned.discard(group)
            given = reply["Assignment"]
            seat.assigned = dict(given["topics"]) if isinstance(given, dict) else {}
        elif request["MemberId"] == seat.member:
            if error == 27 and seat.present():
                seat.phase = "rejoin"
            elif error in (25, 82) and seat.kind == "classic" and request["GroupInstanceId"] in (None, seat.instance):
                seat.phase = "out"

    def _told_Heartbeat(self, request, reply, actor, group):
        seat = self._seat_of(request["MemberId"], group, actor)
        if request["MemberId"] == seat.member and seat.present():
            if reply["ErrorCode"] == 27 or (reply["ErrorCode"] == 22 and request["GenerationId"] == seat.generation):
                seat.phase = "rejoin"
            elif reply["ErrorCode"] == 25 and seat.kind == "classic" and request["GroupInstanceId"] in (None, seat.instance):
                seat.phase = "out"

    def _told_LeaveGroup(self, request, reply, actor, group):
        entries = reply.get("Members")
        if entries is None:
            entries = [{"MemberId": request["MemberId"], "GroupInstanceId": None, "ErrorCode": reply["ErrorCode"]}]
        for entry in entries:
            if entry["ErrorCode"] != 0:
                continue
            if entry["MemberId"] in self.ghosts.get(group, []):
                self.ghosts[group].remove(entry["MemberId"])
            for _, seat in self.in_group(group):
                by_id = entry["MemberId"] and seat.member == entry["MemberId"]
                by_instance = not entry["MemberId"] and seat.instance and seat.instance == entry.get("GroupInstanceId")
                if by_id or by_instance:
                    seat.phase = "out"
        if any(s.kind == "consumer" and s.present() for _, s in self.in_group(group)):
            self.unsettled.add(group)
        else:
            self.turned.add(group)

    def _told_ConsumerGroupHeartbeat(self, request, reply, actor, group):
        seat = self._seat_of(reply["MemberId"] or request["MemberId"], group, actor)
        error, epoch = reply["ErrorCode"], request["MemberEpoch"]
        if error == 0 and epoch == -1:
            seat.phase = "out"
            if any(s.present() for _, s in self.in_group(group)):
                self.unsettled.add(group)
            if not any(s.kind == "consumer" and s.present() for _, s in self.in_group(group)):
                self.turned.add(group)
                self.whole.discard(group)
        elif error == 0 and epoch == -2:
            seat.phase = "away"
        elif error == 0:
            if request["InstanceId"] is not None:
                for _, other in self.in_group(group):
                    if other is not seat and other.present() and other.instance == request["InstanceId"]:
                        other.phase = "out"
                if seat.member != reply["MemberId"] and seat.instance == request["InstanceId"]:
                    seat.phase = "out"
            self._take_id(seat, reply["MemberId"], group)
            if request.get("SubscribedTopicNames") is not None:
                seat.names = sorted(request["SubscribedTopicNames"])
            if request.get("SubscribedTopicRegex") is not None:
                seat.pattern = request["SubscribedTopicRegex"]
            if request["MemberEpoch"] == 0:
                seat.instance = request["InstanceId"]
                if seat.instance is not None:
                    self.statics.add(seat.member)
                self.unsettled.discard(group)
            seat.kind, seat.phase, seat.generation = "consumer", "in", reply["MemberEpoch"]
            if reply["Assignment"] is not None:
                given = [p for p in reply["Assignment"]["TopicPartitions"] if isinstance(p["TopicId"], tuple)]
                seat.assigned = {p["TopicId"][1]: p["Partitions"] for p in given}
            self.unsettled.discard(group)
            if request.get("SubscribedTopicRegex"):
                self.unsettled.add(group)
        elif error in (25, 110, 69) and request["MemberId"] == seat.member and epoch == seat.generation and request["InstanceId"] in (None, seat.instance):
            seat.phase = "out"

    def _told_DeleteGroups(self, request, reply, _actor, _group):
        for result in reply["Results"]:
            group = self.number(result["GroupId"])
            if group is not None and result["ErrorCode"] == 0:
                self.unsettled.discard(group)
                self.made.discard(group)
                self.leaders.pop(group, None)
                self.ghosts.pop(group, None)
