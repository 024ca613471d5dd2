"""What is done to groups of real members, and what must come of it. Each check is played for each client and protocol; its
name is what is printed. One that has no group left to act on comes last."""

import json
import os
import time

import kafka
from admin import group_path, now_ms
from group import FILL, PARTITIONS
from members import check, until

# A member that is kept out asks again at most so often: the server tells it after a second.
ASKS_PER_SECOND = 2
BAN_MS = 4_000
ALL = range(PARTITIONS)


def commit_as_nobody(group, name, offsets):
    """Makes a group that only commits."""
    c = kafka.Connection(group.site.port)
    errors = c.commit(name, group.topic, offsets)
    c.close()
    check(not any(errors.values()), "%s cannot commit: %s" % (name, errors))


def reset_to_the_earliest_offset(group):
    return group.play_reset("cli", "earliest", exact=dict.fromkeys(ALL, 0))


def reset_to_the_latest_offset(group):
    return group.play_reset("http", "latest")


def reset_to_a_time(group):
    at, ends = group.producer.gap()
    until("the group is beyond it", lambda: all(o > ends[p] for p, o in group.watch.now().items()))
    return group.play_reset("cli", {"time_ms": at}, exact=ends)


def reset_by_a_shift(group):
    return group.play_reset("http", {"shift": -150}, aim=lambda row: max(row["from"] - 150, 0))


def reset_of_some_partitions_to_an_offset(group):
    """All of one member's: the others must not notice, unless everybody must (eager members)."""
    moved = sorted(group.members[0].owned)
    return group.play_reset("cli", {"offset": 123}, moved, dict.fromkeys(moved, 123))


def reset_of_one_partition_of_each_member(group):
    moved = sorted(min(m.owned) for m in group.members)
    return group.play_reset("http", {"offset": 77}, moved, dict.fromkeys(moved, 77))


def reset_to_where_another_group_is(group):
    other, at = group.group + "-other", {p: 20 + p for p in ALL}
    commit_as_nobody(group, other, at)
    return group.play_reset("http", {"group": other}, exact=at)


def reset_to_offsets_in_a_file(group):
    path = os.path.join(group.logs, group.tag + ".json")
    at = {p: 40 + p for p in ALL}
    with open(path, "w") as f:
        json.dump({"offsets": [{"topic": group.topic, "partition": p, "offset": o} for p, o in at.items()]}, f)
    return group.play_reset("cli", {"file": path}, exact=at)


def a_reset_beyond_the_end_is_refused(group):
    t, before = time.time(), group.document()["summary"]
    status, problem = group.site.ask("POST", group.path("/reset"), {"to": {"offset": 10**9}})
    check(status == 422 and "does not exist" in problem["detail"], "%d %s" % (status, problem))
    code, _, err = group.site.command("reset", group.group, "--to-offset", "1000000000")
    check(code == 2 and "does not exist" in err, "exit code %d: %s" % (code, err))
    check(group.document()["summary"]["epoch"] == before["epoch"], "the group rebalanced")
    group.undisturbed(t, group.members, ALL)


def a_reset_waits_for_a_member_that_works_on_what_it_read(group):
    slow = group.members[0]
    moved = sorted(slow.owned)
    low, t = group.watch.now(), time.time()
    held = slow.say("hold 2500")
    until("it works on what it has read", lambda: slow.since(t, "holds"))
    answer = group.reset("http", {"offset": 55}, moved)
    answered = time.time()
    done = slow.outcome(held)
    check(answer["offsets"] and done["t"] <= answered, "the offsets were moved while their owner worked on the old ones")
    begin = {row["partition"]: row["to"] for row in answer["offsets"]}
    check(begin == dict.fromkeys(moved, 55), "moved was %s" % begin)
    group.moved(t, answered, begin, low)
    group.settle()
    return "%d ms" % answer["took_ms"]


def a_stuck_member_ends_a_reset_by_its_timeout(group):
    stuck = group.members[0]
    moved, others = sorted(stuck.owned), group.members[1:]
    stuck_id = stuck.id
    stuck.stop()
    try:
        low, t = group.watch.now(), time.time()
        # What its application does as soon as it runs again: commit what it had read before.
        stale = stuck.say("commit " + " ".join("%d %d" % (p, low[p]) for p in moved))
        answer = group.reset("cli", {"offset": 66}, moved)
        answered = time.time()
        begin = {row["partition"]: row["to"] for row in answer["offsets"]}
        check(begin == dict.fromkeys(moved, 66), "moved was %s" % begin)
        changes = {row["member"]["member_id"]: row["change"] for row in answer["members"]}
        check(changes.get(stuck_id) == "removed", "members: %s" % changes)
        check(any(stuck_id in note for note in answer["notes"]), "nobody tells of %s: %s" % (stuck_id, answer["notes"]))
        until("others commit", lambda: all(o > 66 for p, o in group.watch.now().items() if p in moved))
    finally:
        stuck.go_on()
    done = stuck.outcome(stale)
    check(not done["ok"], "a commit of the time before was taken")
    until("it has noticed", lambda: stuck.since(answered, "lost", "revoked"))
    group.settle()
    group.moved(t, answered, begin, low)
    return "%d ms, then its commit was told %s" % (answer["took_ms"], done["err"])


def owned(row):
    """The partitions of a member's row."""
    return {p for topic in row["owned"] for p in topic["partitions"]}


def a_commit_of_what_was_read_before_a_reset_is_refused(group):
    """A member that goes on without the partition, whose application commits what it once read of it."""
    p = min(group.members[0].owned)
    low, t = group.watch.now(), time.time()
    answer = group.reset("http", {"offset": 88}, [p])
    answered = time.time()
    check([row["to"] for row in answer["offsets"]] == [88], "moved was %s" % answer["offsets"])
    group.settle()
    other = next(m for m in group.members if p not in m.owned)
    done = other.outcome(other.say("insist %d %d" % (p, low[p])))
    check(not done["ok"], "a commit of the time before was taken")
    group.settle()
    group.moved(t, answered, {p: 88}, low)
    return "it was told %s" % done["err"]


def preview_and_kick_with_a_ban(group):
    """What is previewed without a member comes true when it is kicked; it stays out, asks quietly, and comes back. Eager
    members are named by client id, the others by member id."""
    site, kicked = group.site, group.members[1]
    kind, name = ("client", kicked.name) if group.protocol == "eager" else ("member", kicked.id)
    kick = ("kick", group.group, "--" + kind, name, "--ban-ms", str(BAN_MS))
    others = [m for m in group.members if m is not kicked]
    preview = {"members_removed": [{"client_id": kicked.name}]}
    if group.protocol == "cooperative":
        status, problem = site.ask("POST", group.path("/preview"), preview)
        check(status == 409 and "cooperative-sticky" in problem["detail"], "%d %s" % (status, problem))
        preview["assignor"] = "uniform"
    previewed = site.need("POST", group.path("/preview"), preview)
    due = {row["member"]["member_id"]: owned(row) for row in previewed["members"]}
    check(set(due) == {m.id for m in others}, "previewed are %s" % sorted(due))
    with site.bans:
        dry = site.tell(*kick, "--dry-run")
        check(dry["dry_run"] and [r["member"]["client_id"] for r in dry["members"]] == [kicked.name], "the dry run: %s" % dry)
        check(group.document()["summary"]["member_count"] == 3, "the dry run kicked")
        errors = ("convoke_request_errors_total", {"error": "COORDINATOR_LOAD_IN_PROGRESS"})
        asked, low, t = site.metric(errors[0], **errors[1]), group.watch.now(), time.time()
        answer = site.tell(*kick)
        (row,) = answer["members"]
        gives_up = {p for topic in row["gives_up"] for p in topic["partitions"]}
        check(row == dry["members"][0] and row["change"] == "removed", "told was %s, done was %s" % (dry["members"], row))
        group.settle(others)
        if group.protocol != "cooperative":
            now = {m.id: set(m.owned) for m in others}
            check(now == due, "previewed was %s, what came is %s" % (due, now))
        (banned,) = group.document()["banned"]
        check(banned[kind + "_id"] == name, "banned is %s" % banned)
        until_ms = banned["until_ms"]
        previewed = None
        if group.protocol == "consumer":
            previewed = site.tell("preview", group.group, "--add", "1")
        until("it is back", lambda: any(e["ev"] == "assigned" and e["t"] * 1000 >= until_ms for e in kicked.since(t)))
        asks = site.metric(errors[0], **errors[1]) - asked
    early = [e for e in kicked.since(t, "assigned") if e["p"] and e["t"] * 1000 < until_ms]
    check(not early, "it was assigned %s while it was kept out" % [e["p"] for e in early])
    check(any(e["ev"] == "lost" for e in kicked.since(t)) or gives_up <= {p for e in kicked.since(t, "revoked") for p in e["p"]}, "it has not noticed")
    check(1 <= asks <= ASKS_PER_SECOND * BAN_MS / 1000, "it asked %d times in %d ms" % (asks, BAN_MS))
    group.settle()
    if previewed:
        # It came back as the member that was supposed.
        due = {row["member"]["member_id"]: owned(row) for row in previewed["members"]}
        due[kicked.id] = due.pop("new-1")
        now = {m.id: set(m.owned) for m in group.members}
        check(now == due, "previewed was %s, what came is %s" % (due, now))
    check(not group.document()["banned"], "the ban does not end")
    for p in ALL:
        group.goes_on(p, t, low=low[p])
    return "asked %d times in %d ms" % (asks, BAN_MS)


def a_kicked_member_without_a_ban_is_back_at_once(group):
    kicked, low, t = group.members[2], group.watch.now(), time.time()
    body = {"members": [{"member_id": kicked.id}]}
    answer = group.site.need("POST", group.path("/kick"), body)
    check(len(answer["members"]) == 1 and answer["members"][0]["change"] == "removed", "kicked: %s" % answer["members"])
    check(any("Without a ban" in note for note in answer["notes"]), "notes: %s" % answer["notes"])
    # A cooperative member that is just joining keeps what it has, joins under another id, and is given the same again.
    until("it is assigned anew", lambda: kicked.since(t, "assigned"))
    group.settle()
    for p in ALL:
        group.goes_on(p, t, low=low[p])
    status, problem = group.site.ask("POST", group.path("/kick"), {"members": [{"member_id": "nobody"}]})
    check(status == 404, "a member that is not there: %d %s" % (status, problem))


def kick_of_a_static_member_by_its_instance(group):
    """It comes back with its partitions when its ban is over; when its process is gone it goes for good."""
    site, others, instance = group.site, list(group.members), "i-" + group.tag
    static = group.member("sync", instance=instance)
    group.members.append(static)
    group.settle()
    low, t = group.watch.now(), time.time()
    answer = site.tell("kick", group.group, "--instance", instance, "--ban-ms", str(BAN_MS))
    (row,) = answer["members"]
    check((row["change"], row["member"]["instance_id"]) == ("removed", instance), "kicked: %s" % row)
    group.settle(others)
    (banned,) = group.document()["banned"]
    check(banned["instance_id"] == instance, "banned is %s" % banned)
    until("it is back", lambda: any(e["t"] * 1000 >= banned["until_ms"] for e in static.since(t, "assigned")))
    group.settle()
    static.close()
    group.members.remove(static)
    site.tell("kick", group.group, "--instance", instance)
    group.settle()
    for p in ALL:
        group.goes_on(p, t, low=low[p])


def pause_and_resume(group):
    """Members stay and own nothing; then each partition goes on at the very offset that was committed."""
    site, ids = group.site, {m.id for m in group.members}
    low, t = group.watch.now(), time.time()
    dry = site.need("POST", group.path("/pause"), {"dry_run": True})
    check(dry["dry_run"] and not group.document()["summary"]["is_paused"], "the dry run paused")
    answer = site.tell("pause", group.group)
    check({row["member"]["member_id"] for row in answer["members"]} == ids, "paused: %s" % answer["members"])
    document = group.document()
    check(document["summary"]["is_paused"] and document["summary"]["member_count"] == 3, "after the pause: %s" % document["summary"])
    check(not any(row["owned"] for row in document["members"]), "somebody owns something: %s" % document["members"])
    until("members know", lambda: not any(m.owned for m in group.members))
    check({row["member"]["member_id"] for row in document["members"]} == ids, "members are others")
    paused, committed, ends = time.time(), group.watch.now(), dict(group.producer.ends)
    until("more is written", lambda: all(group.producer.ends[p] > ends[p] + 20 for p in ALL))
    news = [e for m in group.members for e in m.since(paused, "read", "assigned") if e.get("m") or e.get("p")]
    check(not news, "in the pause: %s" % news[:3])
    check(group.watch.now() == committed, "commits in the pause: %s, then %s" % (committed, group.watch.now()))
    resumed = time.time()
    site.need("POST", group.path("/resume"), {})
    group.settle()
    check(set(ids) == {m.id for m in group.members}, "members are others")
    until("everybody goes on", lambda: all(group.new_reads(p, resumed) for p in ALL))
    for p in ALL:
        group.goes_on(p, t, low=low[p])
        group.goes_on(p, resumed, committed[p], committed[p])


def rebalance_by_order(group):
    before, low, t = group.document(), group.watch.now(), time.time()
    group.site.need("POST", group.path("/rebalance"), {"dry_run": True})
    check(group.epoch() == before["summary"]["epoch"], "the dry run rebalanced")
    group.site.tell("rebalance", group.group)
    until("the epoch rises", lambda: group.epoch() > before["summary"]["epoch"])
    document = group.settle()
    count = document["summary"]["rebalance_count"] - before["summary"]["rebalance_count"]
    news = [r for r in document["rebalances"] if r["number"] > before["rebalances"][0]["number"]]
    first = news[-1]["triggers"][0]
    check(count >= 1 and first["cause"] == "operator" and "rebalance" in first["detail"], "the journal: %s" % first)
    for p in ALL:
        group.goes_on(p, t, low=low[p])
    if group.protocol != "eager":
        group.undisturbed(t, group.members, ALL)


def backup_clone_and_restore_while_members_run(group):
    site, path = group.site, os.path.join(group.logs, group.tag + "-backup.json")
    low = group.watch.now()
    site.tell("backup", group.group, "--output", path)
    high = group.watch.now()
    with open(path) as f:
        kept = {(o["topic"], o["partition"]): o["offset"] for o in json.load(f)["offsets"]}
    check(set(kept) == {(group.topic, p) for p in ALL}, "the file has %s" % sorted(kept))
    check(all(low[p] <= kept[group.topic, p] <= high[p] for p in ALL), "kept was %s" % kept)
    copy = group.group + "-copy"
    dry = site.tell("clone", group.group, copy, "--dry-run")
    check(dry["dry_run"] and site.ask("GET", group_path(copy))[0] == 404, "the dry run made a group")
    cloned = {row["partition"]: row["to"] for row in site.tell("clone", group.group, copy)["offsets"]}
    there = {o["partition"]: o["offset"] for o in site.need("GET", group_path(copy, "/offsets"))["offsets"]}
    check(there == cloned and set(there) == set(ALL), "cloned was %s, there is %s" % (cloned, there))
    code, _, err = site.command("clone", group.group, copy)
    check(code == 4 and "already" in err, "a second clone: exit code %d: %s" % (code, err))
    owners = {p: group.owner_of(p) for p in ALL}
    until("members are beyond it", lambda: all(o > kept[group.topic, p] for p, o in group.watch.now().items()))
    begin = {p: kept[group.topic, p] for p in ALL}
    dry = site.tell("restore", group.group, path, "--dry-run")
    group.check_rows(dry, list(ALL), owners, begin)
    low, t = group.watch.now(), time.time()
    answer = site.tell("restore", group.group, path)
    answered = time.time()
    group.check_rows(answer, list(ALL), owners, begin)
    group.moved(t, answered, begin, low)
    group.settle()


def more_members_or_groups_than_may_be_are_told_so(group):
    """A group's own limit and a cap on groups: stock clients end with a clear error, and nobody else notices."""
    site, t, prefix = group.site, time.time(), "capped-" + group.tag
    site.tell("settings", group.group, "--members-max", "3")
    check(site.need("GET", group.path("/settings"))["members_max"] == 3, "the setting is not there")
    commit_as_nobody(group, prefix + "-1", {0: 1})
    with site.caps:
        site.tell("caps", "--prefix", prefix + "=1")
    caps = site.need("GET", "/v1/caps")["prefixes"]
    check({"prefix": prefix, "groups_max": 1} in caps, "the cap is not there: %s" % caps)
    try:
        surplus = group.member("none")
        capped = group.member("none", group=prefix + "-2")
        for member in (surplus, capped):
            # librdkafka's members of the consumer protocol are told of a fatal error, and which in words.
            until("%s is told" % member.name, lambda: any(
                e["err"] == "GROUP_MAX_SIZE_REACHED" or e["err"] == "FATAL" and "reached maximum size" in e["msg"] for e in member.since(t, "error")))
            check(not member.since(t, "assigned"), "%s was assigned something" % member.name)
            member.kill()
        check(group.document()["summary"]["member_count"] == 3, "there are more members")
        check(site.ask("GET", group_path(prefix + "-2"))[0] == 404, "there are more groups")
        group.undisturbed(t, group.members, ALL)
    finally:
        site.tell("settings", group.group, "--members-max", "default")
        with site.caps:
            site.tell("caps", "--prefix", prefix + "=none")
    check(site.need("GET", group.path("/settings"))["members_max"] is None, "the setting stays")


def who_commits_and_lag_at_rest(group):
    """When nothing is written any more the lag is 0, and every offset was committed by its owner."""
    with group.producer.lock:
        ends = dict(group.producer.ends)
        until(lambda: "committed to the end: %s of %s" % (group.watch.looks[-1][2], ends), lambda: group.watch.now() == ends)
        document = group.document()
        owners = {m.id: m for m in group.members}
        for row in document["commits"]:
            p, by, owner = row["partition"], row["committed_by"], owners[row["owner"]]
            check(p in owner.owned, "partition %d is not %s's" % (p, owner.name))
            check(by["member_id"] == owner.id and by["client_id"] == owner.name, "partition %d was committed by %s" % (p, by))
            check(by["client_host"] == "/127.0.0.1" and by["principal"] == "User:ANONYMOUS", "it was %s" % by)
            check(row["fetched_by"]["client_id"], "nobody fetched %d" % p)
            check((row["end_offset"], row["lag_records"], row["lag_ms"]) == (ends[p], 0, 0), "the lag of %d: %s" % (p, row))
        check(len(document["commits"]) == PARTITIONS, "commits: %s" % document["commits"])
        check(document["summary"]["lag"] == {"records": 0, "ms": 0}, "the lag is %s" % document["summary"]["lag"])
        check(not document["gaps"] and not document["conflicts"], "gaps %s, conflicts %s" % (document["gaps"], document["conflicts"]))
        until("the list of lags agrees", lambda: any(
            (row["group_id"], row["records"], row["ms"]) == (group.group, 0, 0) for row in group.site.need("GET", "/v1/lag")["groups"]))


def no_commit_went_back_in_all_that_time(group):
    """What was committed once by an old position would have had to go back later."""
    trail = group.site.need("GET", group.path("/audit"))["audit"]
    back = [entry for entry in trail if entry["how"] != "reset"]
    check(not back, "the trail has %s" % back)
    return "%d entries" % len(trail)


def delete_is_refused_while_members_run(group):
    t, before = time.time(), group.document()["summary"]["epoch"]
    status, problem = group.site.ask("DELETE", group.path())
    check(status == 409 and "members" in problem["detail"], "%d %s" % (status, problem))
    code, _, err = group.site.command("delete", group.group)
    check(code == 4 and "members" in err, "exit code %d: %s" % (code, err))
    check(group.epoch() == before, "the group rebalanced")
    group.undisturbed(t, group.members, ALL)


def a_drained_member_ends_with_nothing_and_goes_unnoticed(group):
    drained = group.members[-1]
    others, low, t = group.members[:-1], group.watch.now(), time.time()
    had = set(drained.owned)
    dry = group.site.need("POST", group.path("/drain"), {"member": {"client_id": drained.name}, "dry_run": True})
    (row,) = dry["members"]
    check(row["change"] == "drained" and {p for topic in row["gives_up"] for p in topic["partitions"]} == had, "the dry run: %s" % row)
    check(drained.owned == had, "the dry run drained")
    answer = group.site.tell("drain", group.group, "--member", drained.id)
    (row,) = answer["members"]
    check(row["change"] == "drained" and row["member"]["member_id"] == drained.id, "drained: %s" % row)
    document = group.document()
    rows = {r["member"]["member_id"]: r for r in document["members"]}
    check(drained.id in rows and not rows[drained.id]["owned"], "it has %s" % rows.get(drained.id))
    group.settle(others, also=[drained])
    before, gone = {m.id: set(m.owned) for m in others}, time.time()
    drained.close()
    group.members = others
    group.settle()
    check(before == {m.id: set(m.owned) for m in others}, "partitions moved when it went")
    if group.protocol != "eager":
        group.undisturbed(gone, others, ALL)
    for p in ALL:
        group.goes_on(p, t, low=low[p])


def delete_once_members_are_gone(group):
    for member in group.members:
        member.close()
    group.members = []
    until("the group is empty", lambda: group.document()["summary"]["state"] == "Empty")
    committed = group.watch.now()
    group.watch.end()
    dry = group.site.tell("delete", group.group, "--dry-run")
    going = {row["partition"]: row["from"] for row in dry["offsets"]}
    check(dry["dry_run"] and going == committed, "the dry run tells %s, committed is %s" % (going, committed))
    check(group.document()["summary"]["offset_count"] == PARTITIONS, "the dry run deleted")
    group.site.need("DELETE", group.path())
    check(group.site.ask("GET", group.path())[0] == 404, "the group is still there")


MEMBERS = [
    reset_to_the_earliest_offset,
    reset_to_the_latest_offset,
    reset_to_a_time,
    reset_by_a_shift,
    reset_of_some_partitions_to_an_offset,
    reset_of_one_partition_of_each_member,
    reset_to_where_another_group_is,
    reset_to_offsets_in_a_file,
    a_reset_beyond_the_end_is_refused,
    backup_clone_and_restore_while_members_run,
    a_reset_waits_for_a_member_that_works_on_what_it_read,
    a_stuck_member_ends_a_reset_by_its_timeout,
    a_commit_of_what_was_read_before_a_reset_is_refused,
    pause_and_resume,
    rebalance_by_order,
    preview_and_kick_with_a_ban,
    a_kicked_member_without_a_ban_is_back_at_once,
    kick_of_a_static_member_by_its_instance,
    more_members_or_groups_than_may_be_are_told_so,
    who_commits_and_lag_at_rest,
    no_commit_went_back_in_all_that_time,
    delete_is_refused_while_members_run,
    a_drained_member_ends_with_nothing_and_goes_unnoticed,
    delete_once_members_are_gone,
]


# ---------------------------------------------------------------- without membership


def reader(play, name, parts, **args):
    """Somebody in assign mode who commits when it is told to."""
    member = play.member("none", "%s-%s" % (play.tag, name), parts=",".join(map(str, parts)), protocol="eager", **args)
    play.members.append(member)
    return member


def commit(member, partition, offset, error=None):
    done = member.outcome(member.say("commit %d %d" % (partition, offset)))
    check(done.get("err") == error, "%s commits %d at %d: %s" % (member.name, partition, offset, done))


def who_commits_without_membership_and_what_nobody_reads(group):
    site, x = group.site, reader(group, "x", range(4))
    for p in range(4):
        commit(x, p, 10 + p)
    asked = now_ms()
    document = group.document()
    answered = now_ms()
    summary = document["summary"]
    check((summary["kind"], summary["member_count"]) == ("simple", 0), "it is %s" % summary)
    check(document["gaps"] == [{"topic": group.topic, "partitions": [4, 5]}], "gaps: %s" % document["gaps"])
    check(not document["conflicts"], "conflicts: %s" % document["conflicts"])
    check([row["partition"] for row in document["commits"]] == [0, 1, 2, 3], "commits: %s" % document["commits"])
    who = {"client_id": x.name, "client_host": "/127.0.0.1", "principal": "User:ANONYMOUS", "member_id": None}
    began, ended = group.producer.filled_ms
    for row in document["commits"]:
        p = row["partition"]
        check(row["committed_by"] == who and row["owner"] is None, "partition %d was committed by %s" % (p, row["committed_by"]))
        check((row["offset"], row["end_offset"], row["lag_records"]) == (10 + p, FILL, FILL - 10 - p), "partition %d: %s" % (p, row))
        check(asked - ended <= row["lag_ms"] <= answered - began, "the oldest record of %d is %d ms old" % (p, row["lag_ms"]))
    lag = sum(FILL - 10 - p for p in range(4))
    check(summary["lag"]["records"] == lag, "the lag is %s" % summary["lag"])
    until("the list of lags agrees", lambda: any(
        (row["group_id"], row["records"], row["partitions"]) == (group.group, lag, 4) for row in site.need("GET", "/v1/lag")["groups"]))
    until("the metric agrees", lambda: site.metric("convoke_group_lag_records", group=group.group) == lag)
    rows = site.tell("commits", group.group)["commits"]
    check([row["committed_by"] for row in rows] == [who] * 4, "the command line tells %s" % rows)


def two_who_commit_to_one_partition_are_a_conflict(group):
    x, y = group.members[0], reader(group, "y", [3])
    commit(y, 3, 20)
    commit(x, 3, 21)
    document = group.document()
    (conflict,) = document["conflicts"]
    names = sorted(c["client_id"] for c in conflict["clients"])
    check((conflict["partition"], names) == (3, [x.name, y.name]), "the conflict is %s" % conflict)
    check(all((c["client_host"], c["member_id"]) == ("/127.0.0.1", None) for c in conflict["clients"]), "the conflict is %s" % conflict)
    check(document["summary"]["has_conflict"], "the list does not show it")


def a_commit_that_goes_back_is_in_the_trail(group):
    x = group.members[0]
    commit(x, 0, 5)
    (entry,) = [e for e in group.site.need("GET", group.path("/audit"))["audit"] if e["partition"] == 0]
    check((entry["from"], entry["to"], entry["how"]) == (10, 5, "commit went back"), "the trail has %s" % entry)
    check(x.name in entry["who"], "it was %s" % entry["who"])


def reset_restore_and_clone_without_members(group):
    site, path = group.site, os.path.join(group.logs, group.tag + "-backup.json")
    before = {row["partition"]: row["offset"] for row in site.tell("backup", group.group)["offsets"]}
    site.tell("backup", group.group, "--output", path)
    dry = site.tell("reset", group.group, "--to-latest", "--dry-run")
    check({row["partition"]: (row["from"], row["to"]) for row in dry["offsets"]} == {p: (o, FILL) for p, o in before.items()}, "the dry run: %s" % dry)
    check({row["partition"]: row["offset"] for row in group.document()["commits"]} == before, "the dry run moved")
    done = site.need("POST", group.path("/reset"), {"to": "latest"})
    check(done["offsets"] == dry["offsets"], "told was %s, done was %s" % (dry["offsets"], done["offsets"]))
    check(group.document()["summary"]["lag"] == {"records": 0, "ms": 0}, "there is a lag at the end")
    done = site.tell("restore", group.group, path)
    check({row["partition"]: row["to"] for row in done["offsets"]} == before, "restored: %s" % done)
    with open(path) as f:
        kept = json.load(f)
    kept["offsets"][0]["offset"] = FILL + 1000
    done = site.need("PUT", group.path("-other/offsets"), kept)
    check(done["offsets"][0]["to"] == FILL and any("instead of" in note for note in done["notes"]), "out of bounds: %s" % done)
    site.tell("clone", group.group, group.group + "-copy")
    copy = site.need("GET", group_path(group.group + "-copy"))
    check({row["partition"]: row["offset"] for row in copy["commits"]} == before, "the copy has %s" % copy["commits"])


def more_offsets_or_groups_than_may_be_are_told_so(group):
    site, x, prefix = group.site, group.members[0], "capped-" + group.tag
    y = reader(group, "late", [4])
    site.need("PUT", group.path("/settings"), {"offsets_max": 4})
    commit(y, 4, 1, "INVALID_COMMIT_OFFSET_SIZE")
    commit(x, 0, 6)
    site.need("PUT", group.path("/settings"), {"offsets_max": None})
    commit(y, 4, 1)
    one, two = reader(group, "one", [0], group=prefix + "-1"), reader(group, "two", [0], group=prefix + "-2")
    commit(one, 0, 1)
    with site.caps:
        site.tell("caps", "--prefix", prefix + "=1")
    try:
        commit(two, 0, 1, "INVALID_COMMIT_OFFSET_SIZE")
        commit(one, 0, 2)
        status, problem = site.ask("POST", group.path("/clone"), {"to": prefix + "-3"})
        check(status == 429 and "prefix" in problem["detail"], "an operator's: %d %s" % (status, problem))
    finally:
        with site.caps:
            site.tell("caps", "--prefix", prefix + "=none")
    commit(two, 0, 1)


def offsets_are_kept_for_as_long_as_the_group_says(group):
    """A time that is over, one that ends within a day, and for ever."""
    site, names = group.site, [group.group + "-" + what for what in ("short", "day", "ever")]
    for name in names:
        commit_as_nobody(group, name, dict.fromkeys(ALL, 1))
    site.tell("settings", names[0], "--offsets-retention-ms", "500")
    site.tell("settings", names[1], "--offsets-retention-ms", "3600000")
    site.tell("settings", names[2], "--offsets-retention-ms", "-1")
    until("the first group's offsets expire", lambda: site.ask("GET", group_path(names[0]))[0] == 404)
    until("the second group's are counted as expiring", lambda: site.metric("convoke_offsets_expiring") >= PARTITIONS)
    for name in names[1:]:
        check(site.need("GET", group_path(name))["summary"]["offset_count"] == PARTITIONS, "the offsets of %s are gone" % name)


def settings_are_group_configs_of_kafka(group):
    x = group.members[0]
    done = x.outcome(x.say("config convoke.group.max.members 7"))
    check(done["ok"] and done["value"] == "7", "the client is told %s" % done)
    check(group.site.tell("settings", group.group)["members_max"] == 7, "HTTP does not know")
    group.site.tell("settings", group.group, "--members-max", "default")
    done = x.outcome(x.say("config convoke.group.max.members 0"))
    check(done.get("err") == "INVALID_CONFIG", "a value that makes no sense: %s" % done)


WITHOUT = [
    who_commits_without_membership_and_what_nobody_reads,
    two_who_commit_to_one_partition_are_a_conflict,
    a_commit_that_goes_back_is_in_the_trail,
    reset_restore_and_clone_without_members,
    more_offsets_or_groups_than_may_be_are_told_so,
    offsets_are_kept_for_as_long_as_the_group_says,
    settings_are_group_configs_of_kafka,
]

# How the members take part -> what is played.
OF = {"eager": MEMBERS, "cooperative": MEMBERS, "consumer": MEMBERS, "assign": WITHOUT}
