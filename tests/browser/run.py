"""Plays the page in a real browser against a live server; see tests/scripts/browser."""

import argparse
import os
import sys
import time
import traceback

sys.dont_write_bytecode = True
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [here, os.path.join(here, "..", "tools")]
import checks
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import expect, sync_playwright
from server import Server
from stage import FLAGS, PARTITIONS, Failed, Stage


def set_up(stage):
    """Groups of every kind, as the checks know them."""
    stage.fill(checks.TOPIC)
    for n in (1, 2, 3):
        stage.member("billing", "billing-%d" % n, checks.TOPIC, group_protocol="consumer")
        stage.await_stable("billing", n)
    for n in (1, 2):
        stage.member("shipping", "shipping-%d" % n, checks.TOPIC, partition_assignment_strategy="range", session_timeout_ms=10_000)
    for n in (1, 2, 3):
        stage.member("search-index", "search-%d" % n, checks.TOPIC, group_protocol="consumer")
    for partition in range(PARTITIONS):
        stage.commit("ledger-export", "ledger-export", checks.TOPIC, partition, 10)
    for offset, client in ((5, "writer-a"), (7, "writer-b"), (6, "writer-a"), (8, "writer-b")):
        stage.commit("two-writers", client, checks.TOPIC, 0, offset)
    stage.await_stable("shipping", 2)
    stage.await_stable("search-index", 3)
    for group in ("billing", "shipping", "search-index"):
        stage.await_committed(group, checks.TOPIC)


def indented(error):
    """What went wrong, without all of the page."""
    if isinstance(error, (Failed, AssertionError, PlaywrightError)):
        lines = [line for line in str(error).splitlines() if line.strip()][:15]
    else:
        lines = traceback.format_exception(error)
    return "\n".join("  " + line.rstrip() for line in lines)


def screenshots(stage, folder):
    """The pictures of docs/operations.md."""
    os.makedirs(folder, exist_ok=True)
    for scheme in ("light", "dark"):
        page = stage.page(color_scheme=scheme)
        page.set_viewport_size({"width": 1280, "height": 720})
        stage.open(page)
        expect(checks.row(page, "billing")).to_be_visible()
        page.screenshot(path=os.path.join(folder, "page-list-%s.png" % scheme))
        stage.open_group(page, "billing")
        expect(page.locator(".matrix")).to_be_visible()
        page.screenshot(path=os.path.join(folder, "page-group-%s.png" % scheme), full_page=True)
        stage.open_group(page, "billing", "rebalances")
        expect(page.locator(".why").first).to_be_visible()
        page.evaluate("window.scrollTo(0, 0)")
        page.screenshot(path=os.path.join(folder, "page-rebalances-%s.png" % scheme))
        page.close()


def main():
    parser = argparse.ArgumentParser(prog="browser")
    parser.add_argument("--screenshots", metavar="FOLDER", help="write the pictures of the docs, too")
    parser.add_argument("--only", metavar="WORD", default="", help="checks with this in their name")
    parser.add_argument("server", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    command = [word for word in options.server if word != "--"]
    wanted = [check for check in checks.ALL if options.only in check.__name__]
    passed = failed = 0
    with Server(command) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ["CONVOKE_CHROMIUM"], args=FLAGS)
        stage = Stage(server, browser)
        try:
            set_up(stage)
            if options.screenshots:
                screenshots(stage, options.screenshots)
            stage.commit_many(checks.HOSTILE, checks.TOPIC)
            for check in wanted:
                began = time.monotonic()
                word = check.__name__.replace("_", " ")
                try:
                    check(stage)
                    passed += 1
                    print("PASS  %s (%.1f s)" % (word, time.monotonic() - began), flush=True)
                except Exception as error:  # whatever it was, the others are still of interest
                    failed += 1
                    print("FAIL  %s (%.1f s)" % (word, time.monotonic() - began), flush=True)
                    print(indented(error), flush=True)
        finally:
            stage.end()
            browser.close()
        if not server.alive():
            failed += 1
            print("FAIL  the server ended:\n%s" % server.tail())
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
