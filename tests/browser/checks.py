"""What holds for the page, in the order in which it is checked: every function here is a fact about it."""

import json
import os
import re

from playwright.sync_api import expect

from stage import PARTITIONS, RECORDS, Failed, until

TOPIC = "orders"
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "\"'><script>alert(2)</script>",
    "a/b%2F?#c&d",
    "\u202ereversed\u202c\nline",
    "javascript:alert(3)",
]
MANY = 10_000


def need(holds, what):
    if not holds:
        raise Failed(what)


def row(page, group):
    return page.locator("table.groups tbody tr[data-id]").filter(has=page.get_by_role("link", name=group, exact=True))


def search(page, text):
    page.get_by_label("Search").fill(text)


def dialog(page):
    return page.get_by_role("dialog")


def carry_out(page, opened_by, confirm, done, fill=None):
    """An action from its button to its end; returns the texts of the dry run's tables."""
    page.get_by_role("button", name=opened_by, exact=True).click()
    if fill:
        fill(dialog(page))
        dialog(page).get_by_role("button", name="Show what would change").click()
    dry_run = dialog(page).locator(".dry-run")
    expect(dry_run.first).to_be_visible()
    expect(dialog(page)).to_contain_text("Nothing has been done yet")
    told = dry_run.all_inner_texts()
    dialog(page).get_by_role("button", name=re.compile(confirm)).click()
    expect(dialog(page).get_by_role("heading", name=done)).to_be_visible()
    dialog(page).get_by_role("button", name="Close").last.click()
    expect(dialog(page)).to_have_count(0)
    return told


# ---------------------------------------------------------------- the list


def the_list_shows_state_members_and_lag(stage):
    page = stage.page()
    stage.open(page)
    billing = row(page, "billing")
    expect(billing).to_contain_text("Stable")
    expect(billing).to_contain_text("consumer")
    expect(billing.locator("td").nth(2)).to_have_text("3")
    export = row(page, "ledger-export")
    expect(export).to_contain_text("simple")
    # Ten of each hundred records are committed.
    expect(export.locator("td").nth(3)).to_have_text(str(PARTITIONS * (RECORDS - 10)))
    expect(page.locator("#live-text")).to_have_text("Live")
    page.close()


def search_filters_and_order_narrow_the_list(stage):
    page = stage.page()
    stage.open(page)
    rows = page.locator("table.groups tbody tr[data-id]")
    expect(row(page, "billing")).to_be_visible()
    search(page, "ILL")
    expect(rows).to_have_count(1)
    search(page, "")
    page.get_by_label("Kind").select_option("simple")
    expect(row(page, "ledger-export")).to_be_visible()
    expect(row(page, "billing")).to_have_count(0)
    page.get_by_label("Kind").select_option("")
    page.get_by_label("With notices only").check()
    expect(row(page, "two-writers")).to_contain_text("Conflict")
    expect(row(page, "billing")).to_have_count(0)
    page.reload()
    expect(row(page, "two-writers")).to_be_visible()
    expect(row(page, "billing")).to_have_count(0)
    page.get_by_label("With notices only").uncheck()
    page.get_by_role("button", name="Lag", exact=True).click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Lag")
    lags = [int(text.replace(",", "").replace("–", "-1")) for text in rows.locator("td:nth-child(5)").all_inner_texts()]
    need(lags == sorted(lags, reverse=True), "sorted by lag: %s" % lags)
    search(page, "no such group")
    expect(page.get_by_text("No group matches.")).to_be_visible()
    page.close()


def hostile_names_are_shown_and_nothing_more(stage):
    page = stage.page()
    stage.open(page)
    for group in HOSTILE:
        shown = "".join("\\u{%x}" % ord(c) if ord(c) < 32 or c in "\u202e\u202c" else c for c in group)
        link = page.get_by_role("link", name=shown, exact=True)
        expect(link).to_be_visible()
        link.click()
        expect(page.locator("h1")).to_have_text(shown)
        expect(page.locator("#panel")).to_be_visible()
        page.get_by_role("tab", name=re.compile("Who commits")).click()
        expect(page.locator("#panel")).to_contain_text(TOPIC)
        page.get_by_role("link", name="Groups").first.click()
    need(page.locator("main img, main script").count() == 0, "markup came of a name")
    page.close()


def a_change_comes_without_reloading(stage):
    page = stage.page()
    stage.open(page)
    expect(row(page, "shipping").locator("td").nth(2)).to_have_text("2")
    other = stage.page()
    stage.open_group(other, "shipping", "rebalances")
    third = stage.member("shipping", "shipping-3", TOPIC)
    expect(row(page, "shipping").locator("td").nth(2)).to_have_text("3")
    expect(other.locator(".why").first).to_contain_text("shipping-3")
    third.leave()
    expect(row(page, "shipping").locator("td").nth(2)).to_have_text("2")
    stage.await_stable("shipping", 2)
    page.close()
    other.close()


# ---------------------------------------------------------------- one group


def a_group_shows_who_owns_what(stage):
    page = stage.page()
    stage.open_group(page, "billing")
    expect(page.locator(".signs")).to_contain_text("Stable")
    owners = {}
    for one in stage.group("billing")["members"]:
        for pair in one["owned"]:
            for partition in pair["partitions"]:
                owners[partition] = one["member"]["client_id"]
    need(len(owners) == PARTITIONS, "owners: %s" % owners)
    heads = page.locator(".matrix thead th.member").all_inner_texts()
    for partition, client in owners.items():
        line = page.locator(".matrix tbody tr").nth(partition)
        cells = line.locator("td").all_inner_texts()
        owned = [heads[i].split("\n")[0] for i, text in enumerate(cells) if "owned" in text]
        need(owned == [client], "partition %d: %s, not %s" % (partition, owned, client))
    page.close()


def the_timeline_says_why(stage):
    page = stage.page()
    stage.open_group(page, "billing", "rebalances")
    entries = page.locator(".rebalance")
    known = stage.group("billing")["rebalances"]
    need(len(known) >= 3, "three members joined, and the journal has %d rebalances" % len(known))
    expect(entries).to_have_count(min(25, len(known)))
    for i, rebalance in enumerate(known[:3]):
        entry = entries.nth(i)
        expect(entry.locator(".why")).to_have_text(rebalance["why"])
        entry.locator("summary").click()
        for trigger in rebalance["triggers"]:
            expect(entry).to_contain_text(trigger["cause"].replace("_", " "))
    need(any("billing-" in rebalance["why"] for rebalance in known), "no sentence names a member: %s" % known[0]["why"])
    page.close()


def who_commits_is_told(stage):
    page = stage.page()
    stage.open_group(page, "billing", "commits")
    for commit in stage.group("billing")["commits"]:
        line = page.locator("#panel tbody tr").nth(commit["partition"])
        expect(line).to_contain_text(commit["committed_by"]["client_id"])
        expect(line).to_contain_text("127.0.0.1")
        expect(line).to_contain_text("member")
    stage.open_group(page, "two-writers", "commits")
    conflicts = page.get_by_role("table", name="Conflicts")
    expect(conflicts).to_contain_text("writer-a")
    expect(conflicts).to_contain_text("writer-b")
    expect(page.get_by_role("table", name="Committed offsets")).to_contain_text("assign mode")
    page.close()


# ---------------------------------------------------------------- actions


def a_reset_is_shown_first_and_then_moves_members_that_run(stage):
    page = stage.page()
    for group in ("billing", "shipping"):
        members = [m for m in stage.members if m.client.startswith(group) and m.is_alive()]
        stage.await_committed(group, TOPIC)
        for member in members:
            member.forget()
        stage.open_group(page, group)

        def fill(form):
            form.get_by_label("This offset in each partition").check()
            form.get_by_label("Offset", exact=True).fill("40")

        told = carry_out(page, "Reset offsets…", "^Reset %d offsets$" % PARTITIONS, "The offsets are reset.", fill)
        need("100" in told[0] and "40" in told[0] and "−60" in told[0], "the dry run of %s says: %s" % (group, told))

        def all_read_again():
            read = {}
            for member in members:
                for partition, offsets in member.read().items():
                    read.setdefault(partition, []).extend(offsets)
            return len(read) == PARTITIONS and all(sorted(set(o)) == list(range(40, RECORDS)) for o in read.values())

        until("members of %s read from 40 to the end again" % group, all_read_again)
        stage.await_committed(group, TOPIC)
        page.get_by_role("tab", name=re.compile("Audit trail")).click()
        expect(page.get_by_role("table", name="Audit trail")).to_contain_text("reset")
    page.close()


def a_dry_run_alone_changes_nothing(stage):
    page = stage.page()
    before = stage.committed("ledger-export")
    stage.open_group(page, "ledger-export")
    page.get_by_role("button", name="Reset offsets…").click()
    dialog(page).get_by_label("The end: only what comes from now on").check()
    dialog(page).get_by_role("button", name="Show what would change").click()
    expect(dialog(page).locator(".dry-run")).to_contain_text("+90")
    page.keyboard.press("Escape")
    expect(dialog(page)).to_have_count(0)
    need(stage.committed("ledger-export") == before, "a dry run moved offsets")
    page.close()


def a_pause_takes_everything_and_a_resume_gives_it_back(stage):
    page = stage.page()
    stage.open_group(page, "billing")
    carry_out(page, "Pause…", "Pause the group", "The group is paused.")
    expect(page.locator(".signs")).to_contain_text("Paused")
    owned = lambda: sum(len(m.owned) for m in stage.members if m.client.startswith("billing") and m.is_alive())
    until("members of billing own nothing", lambda: owned() == 0)
    carry_out(page, "Resume…", "Resume the group", "The group is resumed.")
    until("members of billing own everything", lambda: owned() == PARTITIONS)
    stage.await_stable("billing", 3)
    page.close()


def a_rebalance_can_be_asked_for(stage):
    page = stage.page()
    before = stage.group("shipping")["summary"]["epoch"]
    stage.open_group(page, "shipping")
    carry_out(page, "Rebalance…", "^Rebalance$", "The group rebalances.")
    until("a new generation", lambda: stage.group("shipping")["summary"]["epoch"] > before)
    stage.await_stable("shipping", 2)
    page.close()


def a_member_is_drained_or_kicked(stage):
    page = stage.page()
    for client, label, confirm, done in (
        ("search-1", "Drain search-1", "Drain it", "The member is drained."),
        ("search-2", "Kick search-2", "Kick 1 member", "Done."),
    ):
        stage.open_group(page, "search-index")
        fill = lambda form: None
        told = carry_out(page, label, confirm, done, fill)
        need(any(client in text for text in told), "the dry run says: %s" % told)
        gone = lambda: client not in [m["member"]["client_id"] for m in stage.group("search-index")["members"]]
        if client == "search-2":
            until("%s is gone" % client, gone)
    page.close()


def a_preview_says_what_would_move(stage):
    page = stage.page()
    before = stage.group("billing")["summary"]["epoch"]
    stage.open_group(page, "billing")
    page.get_by_role("button", name="Preview…").click()
    form = dialog(page)
    form.get_by_label("Members more").fill("3")
    form.get_by_role("button", name="Preview").click()
    expect(form.get_by_role("table", name="Moves")).to_contain_text("new-1")
    form.get_by_role("button", name="Close").last.click()
    need(stage.group("billing")["summary"]["epoch"] == before, "a preview changed the group")
    page.close()


def offsets_are_backed_up_cloned_restored_and_deleted(stage):
    page = stage.page()
    stage.open_group(page, "ledger-export")
    with page.expect_download() as download:
        page.get_by_role("button", name="Back up").click()
    path = download.value.path()
    with open(path) as file:
        backup = json.load(file)
    need(backup["group"] == "ledger-export" and len(backup["offsets"]) == PARTITIONS, "the back-up: %s" % backup)

    carry_out(page, "Clone…", "Clone %d offsets" % PARTITIONS, "The offsets are cloned.", lambda form: form.get_by_label("Name of the other group").fill("ledger-copy"))
    need(stage.committed("ledger-copy") == stage.committed("ledger-export"), "the clone differs")

    stage.api("POST", "/v1/groups/ledger-copy/reset", {"to": "earliest"})
    stage.open_group(page, "ledger-copy")
    carry_out(page, "Restore…", "Restore %d offsets" % PARTITIONS, "The offsets are restored.", lambda form: form.get_by_label("File").set_input_files(path))
    need(stage.committed("ledger-copy") == stage.committed("ledger-export"), "the restored offsets differ")

    carry_out(page, "Delete…", "Delete the group", "The group is deleted.")
    expect(page.get_by_role("alert")).to_contain_text("404")
    need(stage.api("GET", "/v1/groups/ledger-copy")[0] == 404, "it is still there")
    page.close()


def settings_are_changed_after_a_review(stage):
    page = stage.page()
    stage.open_group(page, "ledger-export", "settings")
    page.get_by_label("For ever").check()
    page.get_by_label("Most members").fill("12")
    page.get_by_role("button", name="Review the change…").click()
    expect(dialog(page).locator(".dry-run")).to_contain_text("12")
    dialog(page).get_by_role("button", name="Change settings").click()
    expect(dialog(page)).to_contain_text("The settings are changed.")
    page.keyboard.press("Escape")
    settings = stage.api("GET", "/v1/groups/ledger-export/settings")[1]
    need((settings["offsets_retention_ms"], settings["members_max"]) == (-1, 12), "settings: %s" % settings)
    page.close()


def a_refusal_is_shown_plainly(stage):
    page = stage.page()
    stage.open_group(page, "billing")
    page.get_by_role("button", name="Delete…").click()
    trouble = dialog(page).get_by_role("alert")
    expect(trouble).to_contain_text("409")
    status, problem = stage.api("DELETE", "/v1/groups/billing")
    need(status == 409, "a group with members could be deleted")
    expect(trouble).to_contain_text(problem["detail"])
    page.keyboard.press("Escape")
    stage.open(page, "groups/nobody-knows-it")
    expect(page.get_by_role("alert")).to_contain_text("404")
    page.close()


# ---------------------------------------------------------------- for everybody

GROUND = "getComputedStyle(document.body).backgroundColor"


def brightness(page):
    return sum(int(n) for n in re.findall(r"\d+", page.evaluate(GROUND))[:3])


def dark_and_light_follow_the_system_and_the_button(stage):
    page = stage.page(color_scheme="dark")
    stage.open(page)
    need(brightness(page) < 200, "dark: %s" % page.evaluate(GROUND))
    page.emulate_media(color_scheme="light")
    need(brightness(page) > 600, "light: %s" % page.evaluate(GROUND))
    button = page.get_by_role("button", name=re.compile("Theme"))
    button.click()
    button.click()
    expect(button).to_have_text("Theme: dark")
    need(brightness(page) < 200, "the button makes it dark")
    page.reload()
    need(brightness(page) < 200, "it stays dark")
    page.close()


FOCUS = """() => {
  const e = document.activeElement;
  const style = getComputedStyle(e);
  const box = e.getBoundingClientRect();
  return {
    name: (e.getAttribute('aria-label') || e.labels?.[0]?.textContent || e.textContent || '').trim(),
    tag: e.tagName, shown: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0,
    seen: box.width > 0 && box.bottom > 0 && box.top < innerHeight,
  };
}"""


def walk_to(page, name, steps=60):
    """Presses Tab until something of this name has the focus; what has the focus must be seen."""
    passed = []
    for _ in range(steps):
        page.keyboard.press("Tab")
        focus = page.evaluate(FOCUS)
        passed.append(focus["name"])
        need(focus["tag"] == "BODY" or (focus["shown"] and focus["seen"]), "the focus is not to be seen: %s" % focus)
        if re.search(name, focus["name"]):
            return passed
    raise Failed("%s is not reached by Tab: %s" % (name, passed))


def everything_is_done_by_keyboard(stage):
    page = stage.page()
    stage.open(page)
    expect(row(page, "billing")).to_be_visible()
    passed = walk_to(page, "^billing$")
    for name in ("Skip to the content", "Theme", "Search", "State", "Kind", "With notices only", "Lag"):
        need(any(name in one for one in passed), "Tab does not come by %s: %s" % (name, passed))
    page.keyboard.press("End")
    page.keyboard.press("Home")
    first = page.evaluate(FOCUS)["name"]
    need(first != "", "Home goes to the first group")
    walk_to(page, "^billing$")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_be_focused()
    expect(page.locator("#panel")).to_be_visible()

    walk_to(page, "^Reset offsets")
    page.keyboard.press("Enter")
    expect(dialog(page)).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(dialog(page).get_by_label("The end: only what comes from now on")).to_be_checked()
    walk_to(page, "^Show what would change")
    page.keyboard.press("Enter")
    expect(dialog(page).locator(".dry-run").first).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog(page)).to_have_count(0)
    expect(page.get_by_role("button", name="Reset offsets…")).to_be_focused()

    walk_to(page, "^Members")
    for tab in ("Rebalances", "Who commits", "Audit trail", "Settings", "Members"):
        page.keyboard.press("ArrowRight")
        focused = page.get_by_role("tab", name=re.compile(tab))
        expect(focused).to_be_focused()
        expect(focused).to_have_attribute("aria-selected", "true")
    # The first cell of the matrix takes the Tab key, arrows move on.
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.matrix td')"):
            break
    before = page.locator(".details").inner_text()
    page.keyboard.press("ArrowDown")
    expect(page.locator(".details")).not_to_have_text(before)
    need(page.locator(".matrix td[tabindex='0']").count() == 1, "one cell takes the Tab key")
    page.close()


def axe(stage, page, where):
    if page.evaluate("typeof axe") == "undefined":
        with open(os.environ["CONVOKE_AXE"]) as file:
            page.evaluate(file.read())
    found = page.evaluate("async () => (await axe.run(document)).violations")
    if found:
        lines = ["%s: %s: %s" % (v["id"], v["help"], "; ".join(n["html"][:160] for n in v["nodes"][:3])) for v in found]
        raise Failed("%s:\n  %s" % (where, "\n  ".join(lines)))


def axe_objects_to_nothing(stage):
    for scheme in ("light", "dark"):
        page = stage.page(color_scheme=scheme)
        stage.open(page)
        expect(row(page, "billing")).to_be_visible()
        axe(stage, page, "the list, " + scheme)
        for tab in ("members", "rebalances", "commits", "audit", "settings"):
            stage.open_group(page, "billing", tab)
            expect(page.locator("#tab-%s" % tab)).to_have_attribute("aria-selected", "true")
            axe(stage, page, "%s, %s" % (tab, scheme))
        stage.open_group(page, "two-writers", "commits")
        expect(page.get_by_role("table", name="Conflicts")).to_be_visible()
        axe(stage, page, "conflicts, " + scheme)
        stage.open_group(page, "billing")
        page.get_by_role("button", name="Reset offsets…").click()
        axe(stage, page, "the form of a reset, " + scheme)
        dialog(page).get_by_role("button", name="Show what would change").click()
        expect(dialog(page).locator(".dry-run").first).to_be_visible()
        axe(stage, page, "a dry run, " + scheme)
        page.close()


def ten_thousand_groups_leave_the_document_small(stage):
    page = stage.page()
    stage.open(page)
    expect(row(page, "billing")).to_be_visible()
    stage.commit_many(["many-%05d" % n for n in range(MANY)], TOPIC)
    known = page.locator("table.groups")
    until("the list knows of all", lambda: int(known.get_attribute("aria-rowcount")) > MANY)
    size = lambda: page.evaluate("document.querySelectorAll('*').length")
    need(size() < 1500, "%d elements at the top" % size())
    page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight / 2)")
    expect(page.locator("tr[data-id='many-05000'], tr[data-id='many-04980'], tr[data-id='many-05020']").first).to_be_visible()
    need(size() < 1500, "%d elements in the middle" % size())
    search(page, "many-09999")
    expect(page.locator("table.groups tbody tr[data-id]")).to_have_count(1)
    search(page, "")
    page.get_by_role("button", name="Group", exact=True).click()
    expect(page.locator("table.groups tbody tr[data-id]").first).not_to_contain_text("billing")
    need(size() < 1500, "%d elements after sorting" % size())
    page.close()


def nothing_else_was_asked_for_and_nothing_went_wrong(stage):
    need(stage.told == [], "\n  ".join(stage.told[:10]))


ALL = [
    the_list_shows_state_members_and_lag,
    search_filters_and_order_narrow_the_list,
    hostile_names_are_shown_and_nothing_more,
    a_group_shows_who_owns_what,
    the_timeline_says_why,
    who_commits_is_told,
    a_change_comes_without_reloading,
    dark_and_light_follow_the_system_and_the_button,
    everything_is_done_by_keyboard,
    axe_objects_to_nothing,
    a_dry_run_alone_changes_nothing,
    a_reset_is_shown_first_and_then_moves_members_that_run,
    a_pause_takes_everything_and_a_resume_gives_it_back,
    a_rebalance_can_be_asked_for,
    a_member_is_drained_or_kicked,
    a_preview_says_what_would_move,
    offsets_are_backed_up_cloned_restored_and_deleted,
    settings_are_changed_after_a_review,
    a_refusal_is_shown_plainly,
    ten_thousand_groups_leave_the_document_small,
    nothing_else_was_asked_for_and_nothing_went_wrong,
]
