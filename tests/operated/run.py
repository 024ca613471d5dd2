"""Plays what operators do to groups of real members; see tests/scripts/operated."""

import argparse
import concurrent.futures
import os
import sys
import tempfile
import threading
import time
import traceback

sys.dont_write_bytecode = True
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..", "tools")]
import checks
import members
from admin import LagWatch, Site
from group import Group
from members import Failed
from server import Server

# What the server is started with besides: sessions short enough to wait for, expiry that is looked for often.
SETTINGS = [
    "group.initial.rebalance.delay.ms=0",
    "group.consumer.min.session.timeout.ms=8000", "group.consumer.session.timeout.ms=8000",
    "group.consumer.min.heartbeat.interval.ms=1000", "group.consumer.heartbeat.interval.ms=1000",
    "offsets.retention.check.interval.ms=1000",
]


class Report:
    def __init__(self):
        self.lock, self.counts = threading.Lock(), dict(PASS=0, FAIL=0, SKIP=0)

    def line(self, word, client, protocol, what, note=""):
        with self.lock:
            self.counts[word] += 1
            print("%s  %-15s %-11s  %s%s" % (word, client, protocol, what, "  (%s)" % note if note else ""), flush=True)


def words(check):
    return check.__name__.replace("_", " ")


def indented(error):
    lines = str(error).splitlines() if isinstance(error, Failed) else "".join(traceback.format_exception(error)).splitlines()
    return "".join("\n    " + line for line in lines[-25:])


def play(site, report, client, argv, protocol, logs, only):
    """Everything that is done to one group."""
    group = Group(site, client, argv, protocol, logs)
    wanted = [check for check in checks.OF[protocol] if only in words(check)]
    try:
        try:
            group.begin()
        except Exception as error:
            report.line("FAIL", client, protocol, "a group of members", indented(error))
            for check in wanted:
                report.line("SKIP", client, protocol, words(check), "the group did not come about")
            return
        broken = None
        for check in wanted:
            if broken:
                report.line("SKIP", client, protocol, words(check), "the group is not well after: %s" % broken)
                continue
            began = time.monotonic()
            try:
                note = check(group)
                report.line("PASS", client, protocol, words(check), ", ".join(filter(None, ["%.1f s" % (time.monotonic() - began), note])))
            except Exception as error:  # whatever it was, the others are still of interest
                report.line("FAIL", client, protocol, words(check), "%.1f s%s" % (time.monotonic() - began, indented(error)))
                try:
                    group.recover()
                except Exception:
                    broken = words(check)
    finally:
        group.end()


def everything(site, report, options):
    logs = options.logs or tempfile.mkdtemp(prefix="convoke-operated-")
    os.makedirs(logs, exist_ok=True)
    folder = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(here, "..", "..", "target")), "operated")
    os.makedirs(folder, exist_ok=True)
    plays = []
    protocols = [p for p in checks.OF if not options.protocol or p in options.protocol]
    for client, have in members.ALL.items():
        if options.client and client not in options.client:
            continue
        try:
            argv = have(folder)
        except members.Missing as why:
            for protocol in protocols:
                report.line("SKIP", client, protocol, "everything", "NOT CHECKED: %s" % why)
            continue
        plays += [(client, argv, protocol) for protocol in protocols]
    lag = LagWatch(site)
    # Some of each client at a time: starting them costs the most.
    plays.sort(key=lambda play: list(checks.OF).index(play[2]))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in [pool.submit(play, site, report, *one, logs, options.only) for one in plays]:
            done.result()
    lag.end()
    if plays:
        word = "FAIL" if lag.wrong or not lag.looks else "PASS"
        report.line(word, "all", "all", "the lag is never negative", lag.wrong or "%d looks at %d groups" % (lag.looks, len(lag.groups)))
    if report.counts["FAIL"]:
        print("what the members said: %s" % logs)


def main():
    parser = argparse.ArgumentParser(prog="operated", usage="operated [OPTIONS] HOST:PORT HTTP-URL | operated [OPTIONS] -- SERVER-COMMAND…")
    parser.add_argument("--only", metavar="WORD", default="", help="checks with this in their name")
    parser.add_argument("--client", action="append", choices=members.ALL)
    parser.add_argument("--protocol", action="append", choices=checks.OF)
    parser.add_argument("--jobs", type=int, default=4, help="groups at a time (default 4; they mostly wait)")
    parser.add_argument("--logs", metavar="FOLDER", help="for what the members say")
    parser.add_argument("--convoke", metavar="BINARY", help="for its command line (default: the server's)")
    parser.add_argument("server", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command, report = [word for word in options.server if word != "--"], Report()
    if len(command) == 2 and ":" in command[0]:
        if not options.convoke:
            parser.error("--convoke is needed with a server that runs already")
        everything(Site(*command, options.convoke), report, options)
    elif command:
        with Server(command + [word for setting in SETTINGS for word in ("--set", setting)]) as server:
            site = Site("127.0.0.1:%d" % server.port, "http://127.0.0.1:%d" % server.http, options.convoke or command[0])
            everything(site, report, options)
            with open(server.log_path, errors="replace") as log:
                if not server.alive() or "panicked at" in log.read():
                    report.line("FAIL", "all", "all", "the server lives and has not panicked", server.tail())
    else:
        parser.error("name a server, or how to start one")
    print("%(PASS)d passed, %(FAIL)d failed, %(SKIP)d skipped" % report.counts)
    return 1 if report.counts["FAIL"] else 0 if report.counts["PASS"] else 3


if __name__ == "__main__":
    sys.exit(main())
