"""The console page of a real node, in headless Chromium."""

import json
import re
import tarfile
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page

from appliance.drivers.host.node_folder import SOCKETS_FOLDER
from appliance.drivers.host.operator_sign_in import FAILURES_MAX
from appliance.drivers.network.ask import ask_status
from tests import forked
from tests.patience import HUNG_S
from tests.web.site import LiveSite, wait_for
from tests.web.window import expect


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(ignore_https_errors=True, viewport={"width": 1300, "height": 900})
    context.set_default_timeout(HUNG_S * 1000)
    yield context
    context.close()


def sign_in(context: BrowserContext, site: LiveSite, node: int = 1) -> Page:
    page = context.new_page()
    page.goto(site.console_url(node))
    page.get_by_label("One-time secret").fill(site.secret(node).lower())
    page.keyboard.press("Enter")
    expect(page.locator(".age")).to_have_attribute("data-fresh", "yes")
    return page


def test_a_secret_opens_one_session_and_is_used_up(context: BrowserContext, site: LiveSite) -> None:
    url, secret = site.console_url(1), site.secret(1)
    ask = context.request
    assert ask.get(url + "/status").status == 401
    assert ask.get(url + "/events").status == 401
    assert ask.get(url + "/history").status == 401
    assert ask.get(url + "/curves?span=hour").status == 401
    assert ask.post(url + "/sign-in", data={"secret": "AAAA-BBBB-CCCC-DDDD"}).status == 403
    assert ask.post(url + "/sign-in", form={"secret": secret}).status == 400
    assert ask.get(url + "/status").status == 401
    assert ask.post(url + "/sign-in", data={"secret": secret}).status == 204
    assert ask.get(url + "/status").status == 200
    assert ask.post(url + "/sign-in", data={"secret": secret}).status == 403
    assert site.secret(1) != secret
    (cookie,) = context.cookies()
    assert (cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) == (True, True, "Strict")
    assert ask.post(url + "/sign-out").status == 204
    assert ask.get(url + "/status").status == 401


def test_a_session_that_was_ended_is_not_known_even_if_its_cookie_comes_back(
    context: BrowserContext, site: LiveSite
) -> None:
    url = site.console_url(1)
    assert context.request.post(url + "/sign-in", data={"secret": site.secret(1)}).status == 204
    kept = context.cookies()
    context.request.post(url + "/sign-out")
    context.add_cookies(kept)
    assert context.request.get(url + "/status").status == 401


def test_a_secret_counts_only_as_json_of_that_content_type(
    context: BrowserContext, site: LiveSite
) -> None:
    url, secret = site.console_url(1) + "/sign-in", site.secret(1)
    body = json.dumps({"secret": secret})
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        answer = context.request.post(url, data=body, headers={"content-type": kind})
        assert answer.status == 400, kind
    assert site.secret(1) == secret
    answer = context.request.post(url, data=body, headers={"content-type": "application/json"})
    assert answer.status == 204


def test_a_page_of_another_site_can_send_nothing(context: BrowserContext, site: LiveSite) -> None:
    url, secret = site.console_url(1), site.secret(1)
    strange = [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": url.removesuffix("/console"), "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"host": "evil.example"},
    ]
    for heads in strange:
        answer = context.request.post(url + "/sign-in", data={"secret": secret}, headers=heads)
        assert answer.status == 403, heads
        assert context.request.get(url + "/status", headers=heads).status == 403, heads
    assert site.secret(1) == secret
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert context.request.get(url, headers=link).status == 200
    assert context.request.get(url + "/status", headers=link).status == 403


def test_wrong_secrets_on_the_machine_itself_do_not_lock_the_operator_out(
    context: BrowserContext, site: LiveSite
) -> None:
    url = site.console_url(2) + "/sign-in"
    codes = [
        context.request.post(url, data={"secret": "wrong"}).status for _ in range(FAILURES_MAX + 1)
    ]
    assert codes == [403] * (FAILURES_MAX + 1)
    assert context.request.post(url, data={"secret": site.secret(2)}).status == 204


def test_replicas_are_shown_and_the_view_is_new_each_second(
    context: BrowserContext, site: LiveSite
) -> None:
    page = sign_in(context, site)
    rows = page.locator(".table", has_text="Replicas").locator("tbody tr")
    expect(rows).to_have_count(3)

    def roles() -> list[str]:
        return sorted(rows.locator("td:nth-child(4)").all_text_contents())

    wait_for(lambda: roles() == ["backup", "backup", "primary"], "one of them to lead")
    expect(page.locator(".chart canvas")).to_have_count(2)
    times = set()
    deadline = time.monotonic() + HUNG_S
    while len(times) < 3 and time.monotonic() < deadline:
        times.add(page.locator(".age time").inner_text())
    assert len(times) >= 3


def test_curves_of_the_past_are_drawn_told_in_words_and_of_an_hour_or_a_day(
    context: BrowserContext, site: LiveSite
) -> None:
    page = sign_in(context, site)
    faults = faults_of(page)
    past = page.locator(".past-curves")
    titles = past.locator("h3")
    subjects = ["shard 0", "node-0 edge 0", "node-1 edge 0", "node-2 edge 0"]
    for span, other in (("hour", "day"), ("day", "hour")):
        button = past.get_by_role("button", name=span)
        button.press("Enter")
        expect(button).to_have_attribute("aria-pressed", "true")
        expect(past.get_by_role("button", name=other)).to_have_attribute("aria-pressed", "false")
        expect(past).to_have_attribute("data-span", span)
        expect(past.get_by_role("heading", name=f"The past {span}")).to_be_visible()
        wait_for(lambda: titles.all_text_contents()[:4] == subjects, "all subjects")
        curve = past.get_by_role("img", name=f"node-1 edge 0, connections, the past {span}")
        expect(curve).to_have_accessible_name(re.compile(r"now [\d.]+, most [\d.]+$"))
        expect(curve.locator(".mean")).to_have_attribute("d", re.compile(r"^M[\d.]+ [\d.]+[Lh]"))
        assert curve.bounding_box()["height"] == 44
        free = past.locator('[data-figure="free_bytes"] figcaption').first
        expect(free).to_contain_text(re.compile(r"^free [\d.,]+ GiB least [\d.,]+ GiB$"))
    told = context.request.get(site.console_url(1) + "/curves?span=hour&of=shard 0").json()
    assert [curve["figure"] for curve in told["subjects"][0]["curves"]][0] == "records"
    assert faults == []


def on_terminal(site: LiveSite) -> str:
    """The machine's own screen as plain text, without its line ends."""
    return " ".join(forked.run(["console", "--plain", "--local", site.folder]).stdout.split())


def test_a_kill_is_named_on_page_and_terminal_until_the_node_is_started_as_they_say(
    context: BrowserContext, site: LiveSite
) -> None:
    page = sign_in(context, site, node=1)
    expect(page.locator('[data-alarm="replica_down"]')).to_have_count(0)
    site.kill(0)
    down = page.locator('[data-alarm="replica_down"]')
    expect(down).to_contain_text("shard 0 on node-0")
    expect(page.locator('[data-alarm="edge_down"]')).to_contain_text("edge 0 on node-0")
    row = page.locator(".table", has_text="Replicas").locator("tbody tr", has_text="node-0")
    expect(row.locator("td:nth-child(5)")).to_have_text("does not answer")
    page.set_viewport_size({"width": 360, "height": 640})
    for alarm in page.locator(".alarm").all():
        assert alarm.bounding_box()["height"] < 150, "words, not a column of letters"
    page.set_viewport_size({"width": 1300, "height": 900})
    down.get_by_text("What to do").click()
    expect(down).to_contain_text("Its supervisor starts it again")
    remedy = "`tigerchat start --node-folder F`"
    expect(down).to_contain_text(remedy)
    assert "replica_down shard 0 on node-0" in (told := on_terminal(site)) and remedy in told
    down.get_by_role("button", name="Seen").click()
    expect(down.locator(".seen")).to_contain_text("seen by console session")
    site.start(0)
    expect(down).to_have_count(0)
    assert "replica_down" not in on_terminal(site)
    page.locator(".past summary").click()
    past = page.locator('[data-past="replica_down"]').first
    expect(past).to_contain_text("shard 0 on node-0")
    expect(past).to_contain_text("seen by console session")
    expect(row.locator("td:nth-child(5)")).to_have_text("normal")


def test_the_page_says_when_its_node_is_gone_and_signs_in_anew_after(
    context: BrowserContext, site: LiveSite
) -> None:
    page = sign_in(context, site, node=2)
    site.kill(2)
    expect(page.locator(".age")).to_have_attribute("data-fresh", "no")
    expect(page.locator(".age")).to_contain_text("no news since")
    site.start(2)
    expect(page.get_by_label("One-time secret")).to_be_visible()


def test_page_and_terminal_show_the_same_tables(context: BrowserContext, site: LiveSite) -> None:
    page = sign_in(context, site)

    def differ() -> list[str]:
        """Titles of those that do: on a busy machine a view may change between two looks."""
        told = json.loads(forked.run(["status", "--local", site.folder, "--json"]).stdout)
        found = []
        for table in told["tables"][1:]:
            shown = page.locator(".table", has=page.get_by_role("heading", name=table["title"]))
            rows = shown.locator("tbody tr")
            first = rows.first.locator("td").all_text_contents()
            here = shown.locator("th").all_text_contents(), rows.count(), first[:3]
            there = table["columns"], len(table["rows"]), [text for text, _ in table["rows"][0][:3]]
            found += [table["title"]] if here != there else []
        return found

    wait_for(lambda: differ() == [], "page and terminal to show the same")


def test_on_a_telephone_the_tables_scroll_and_the_page_does_not(
    context: BrowserContext, site: LiveSite
) -> None:
    page = sign_in(context, site)
    page.set_viewport_size({"width": 360, "height": 640})
    expect(page.locator("tbody tr").first).to_be_visible()
    assert page.evaluate("() => document.documentElement.scrollWidth") == 360
    boxes = page.locator(".table .scroll")
    assert boxes.evaluate_all("all => all.some((box) => box.scrollWidth > box.clientWidth)")
    outside = "all => all.filter((each) => each.getBoundingClientRect().right > 360).length"
    expect(page.locator(".past-curves svg").first).to_be_visible()
    shown = ".table, .chart, .alarms, .top > *, .past-curves, .past-curves *"
    assert page.locator(shown).evaluate_all(outside) == 0


# --- acts -----------------------------------------------------------------------------------------


def menu_of(page: Page, subject: str, table: str) -> Locator:
    """Opened by the keyboard alone. Without a table: that in the page's head."""
    shown = page.locator(".top")
    if table:
        shown = page.locator(".table", has=page.get_by_role("heading", name=table))
    shown.get_by_role("button", name=f"Acts on {subject}", exact=True).press("Enter")
    return page.get_by_role("menu", name=f"Acts on {subject}")


def act(
    page: Page, subject: str, table: str, label: str, *, typed: str = "", **written: str
) -> None:
    """Chosen, confirmed and seen to be done."""
    before = page.locator(".done li").count()
    item = menu_of(page, subject, table).get_by_role("menuitem", name=label)
    expect(item).to_have_attribute("aria-disabled", "false")
    item.press("Enter")
    dialog = page.get_by_role("dialog", name=label)
    go = dialog.get_by_role("button", name="Do it")
    for name, word in written.items():
        dialog.locator(f"#act-{name}").fill(word)
    if typed:
        expect(go).to_be_disabled()
        dialog.locator("#act-typed").fill(typed[:-1])
        expect(go).to_be_disabled()
        dialog.locator("#act-typed").fill(typed)
    page.keyboard.press("Enter")

    def is_taken() -> bool:
        if dialog.get_by_role("alert").count():  # asked while the machine was too busy to answer
            page.keyboard.press("Enter")
        return dialog.count() == 0

    wait_for(is_taken, f"{label} to be taken")
    expect(page.locator(".done li")).to_have_count(before + 1)
    expect(page.locator(".done li").first).to_have_attribute("data-state", "done")


def faults_of(page: Page) -> list[str]:
    """What goes wrong in it from now on."""
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    return faults


def test_an_operator_acts_on_the_page_and_nothing_takes_a_quorum_away(
    context: BrowserContext, site: LiveSite
) -> None:
    page = sign_in(context, site)
    faults = faults_of(page)
    known = page.locator(".done li").count()  # of tests before
    edges = page.locator(".table", has=page.get_by_role("heading", name="Edges"))
    edge = edges.locator("tbody tr", has_text="node-2").locator("td:nth-child(3)")
    menu = menu_of(page, "node-2 edge-0", "Edges")
    expect(menu.get_by_role("menuitem").first).to_be_focused()
    page.keyboard.press("Escape")
    expect(menu).to_have_count(0)
    button = edges.get_by_role("button", name="Acts on node-2 edge-0")
    expect(button).to_be_focused()
    act(page, "node-2 edge-0", "Edges", "Drain node-2")
    expect(edge).to_have_text("stopped")
    expect(button).to_be_focused()
    act(page, "node-2 edge-0", "Edges", "Let node-2 take clients again")
    expect(edge).not_to_have_text("stopped")
    act(page, "node-2 metadata", "Processes", "Stop metadata")
    act(page, "node-2 metadata", "Processes", "Start metadata")
    leader = page.locator(".table", has_text="Shards").locator("tbody td:nth-child(2)")
    led = leader.inner_text()
    act(page, "shard 0", "Shards", "Let another replica lead shard 0")
    expect(leader).not_to_have_text(led)
    act(page, "node-2 replica-0", "Replicas", "Stop replica-0", typed="node-2")
    replicas = page.locator(".table", has_text="Replicas")
    state = replicas.locator("tbody tr", has_text="node-2").locator("td:nth-child(5)")
    expect(state).to_have_text("stopped")
    url = site.console_url(1)
    asked = {"act": "stop", "about": {"node": 0, "process": "replica-0"}, "typed": "node-0"}
    refused = context.request.post(url + "/acts", data=asked)
    sentence = (
        "without node-0 shard 0 has 1 of 2 needed replicas: nothing could be acknowledged; bring "
        "the others up first (`tigerchat status`)"
    )
    assert (refused.status, refused.json()["error"]) == (409, sentence)
    act(page, "node-2 replica-0", "Replicas", "Start replica-0")
    expect(state).to_have_text("normal")
    asked = {"act": "stop", "about": {"node": 2, "process": "replica-0"}}
    assert "type node-2 to say" in context.request.post(url + "/acts", data=asked).json()["error"]
    expect(page.locator(".done li", has_text="audit waits")).to_have_count(0)

    site.kill(0)
    expect(page.locator('[data-alarm="replica_down"]')).to_contain_text("shard 0 on node-0")
    menu = menu_of(page, "node-2 replica-0", "Replicas")
    item = menu.get_by_role("menuitem", name="Stop replica-0")
    expect(item).to_have_attribute("aria-disabled", "true")
    expect(item.locator(".why")).to_have_text(sentence.replace("node-0", "node-2"))
    item.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Escape")
    words = ["node", "stop", "node-2", "--process", "replica-0", "--local", str(site.folder)]
    said = forked.run(words)
    assert said.returncode == 1
    assert said.stderr.strip().endswith(sentence.replace("node-0", "node-2") + ", or say --force")
    site.start(0)

    hostile = '<img src=x onerror="document.title=1">'
    note = {"act": "drain", "what": hostile, "who": hostile, "came_from": "terminal", "verb": "v"}
    door = site.folder / "node-1" / SOCKETS_FOLDER
    wish = {"note": note}
    noted = ask_status(door, cluster=site.site.cluster, shard=0, kind="console", wish=wish)
    assert noted == {"noted": True}
    expect(page.locator(".done li b").first).to_have_text(hostile)
    page.reload()
    expect(page.locator(".done li")).to_have_count(known + 8)
    expect(page.locator(".done li b").first).to_have_text(hostile)
    expect(page.locator(".done li b").nth(7)).to_have_text("drain node-2")
    assert page.locator(".done img").count() == 0 and faults == []


def test_an_operator_acts_on_the_site_and_takes_what_is_given_once(
    context: BrowserContext, site: LiveSite
) -> None:
    page = sign_in(context, site)
    menu = menu_of(page, "the site", "")
    expect(menu.get_by_role("group")).to_have_count(2)  # of the site, of nodes
    menu.get_by_role("menuitem", name="Create a room").press("Enter")
    dialog = page.get_by_role("dialog", name="Create a room")
    go = dialog.get_by_role("button", name="Do it")
    expect(go).to_be_disabled()
    dialog.get_by_label("Name of the room").fill(" operators")
    go.click()
    expect(dialog.get_by_role("alert")).to_contain_text("no space at either end")
    page.keyboard.press("Escape")
    faults = faults_of(page)
    act(page, "the site", "", "Create a room", room="operators")
    expect(page.locator(".done li .words").first).to_have_text("created")
    act(page, "the site", "", "Make a token for a user", user="anna")
    page.get_by_role("button", name="Show once").press("Enter")
    given = page.get_by_role("dialog", name="Shown once").get_by_role("textbox")
    token = given.input_value()
    assert token.count(".") == 2
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Show once")).to_have_count(0)
    assert token not in page.content()
    assert token not in context.request.get(site.console_url(1) + "/status").text()
    act(page, "the site", "", "Support bundle of node-2")
    with page.expect_download() as taken:
        page.get_by_role("button", name="Download").press("Enter")
    assert taken.value.suggested_filename == "tigerchat-node-2.tar.gz"
    with tarfile.open(taken.value.path()) as bundle:
        assert any(name.endswith("/status.json") for name in bundle.getnames())
    again = context.request.post(site.console_url(1) + "/acts/given", data={"number": 1})
    assert again.status == 404 and faults == []


def test_acts_come_from_this_page_alone(context: BrowserContext, site: LiveSite) -> None:
    """As a form and a fetch of another site send them, with the operator's session."""
    url = site.console_url(1)
    assert context.request.post(url + "/sign-in", data={"secret": site.secret(1)}).status == 204
    asked = {"act": "drain", "about": {"node": 2}}
    for heads in (
        {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
        {"origin": "null", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
        {"sec-fetch-site": "same-site"},
        {"host": "evil.example"},
    ):
        answer = context.request.post(url + "/acts", data=asked, headers=heads)
        assert answer.status == 403, heads
    form = context.request.post(url + "/acts", form={"act": "drain"})
    assert form.status == 400
    assert context.request.get(url + "/acts").status == 405
    told = context.request.get(url + "/status").json()
    assert [act for act in told["operator_acts"] if act["state"] == "running"] == []
    context.request.post(url + "/sign-out")
    assert context.request.post(url + "/acts", data=asked).status == 401
