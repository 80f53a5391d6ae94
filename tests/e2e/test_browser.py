"""The console in a real browser (Debian's Chromium, headless): sign in, see the job's steps, chat with the model."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, StorageState, expect, sync_playwright

from tests.processes import wait_for
from tests.stack import MODEL, Stack

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.live("stack"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="LEFT OUT: no chromium on PATH, so no page was opened (Debian: apt-get install chromium)",
    ),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For the tests of this file, which follow each other: while it lives, Playwright's loop runs in this thread."""
    expect.set_options(timeout=60_000)  # beside other tests a page takes its time
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def session(browser: Browser, shared_stack: Stack) -> StorageState:
    """The cookies of a user who has signed in."""
    context = browser.new_context(base_url=shared_stack.url)
    page = context.new_page()
    page.goto("/")
    page.get_by_label("Username").fill(shared_stack.quickstart["LLMGW_ADMIN_USER"])
    page.get_by_label("Password").fill(shared_stack.quickstart["LLMGW_ADMIN_PASSWORD"])
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    found = context.storage_state()
    context.close()
    return found


@pytest.fixture
def page(browser: Browser, session: StorageState, stack: Stack) -> Iterator[Page]:
    """The overview, whose user has signed in. Whatever a script logs as an error, or the policy refuses, fails the test."""
    context = browser.new_context(base_url=stack.url, storage_state=session)
    page = context.new_page()
    page.bring_to_front()  # one that is hidden asks for nothing
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
    page.on("console", lambda said: problems.append(f"{page.url}: {said.text}") if _is_defect(said.text) else None)
    page.goto("/")
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    yield page
    context.close()
    assert problems == []


def _is_defect(text: str) -> bool:
    return "Content Security Policy" in text or "SyntaxError" in text or "TypeError" in text


def sidebar(page: Page, title: str) -> Locator:
    return page.locator("#nav-sidebar-apps a", has=page.get_by_text(title, exact=True))


def test_from_sign_in_over_the_job_to_a_streamed_answer(page: Page) -> None:
    expect(page.locator("[data-part=models]")).to_contain_text("ready")
    expect(page.locator("[data-part=nodes]")).to_contain_text("online")

    sidebar(page, "Jobs").click()
    page.get_by_role("link", name=f"Serve {MODEL}", exact=True).click()
    steps = page.locator(".lg-step")
    expect(steps).to_have_count(6)
    expect(page.locator(".lg-step.done")).to_have_count(6)
    expect(steps.last).to_contain_text("Ask it something")
    expect(page.locator("[data-fresh]")).to_contain_text("Live")

    sidebar(page, "Chat").click()
    expect(page.get_by_label("Model")).to_have_value(MODEL)
    message = page.get_by_label("Message")
    message.fill("line one")
    message.press("Shift+Enter")
    message.press_sequentially("line two")
    message.press("Enter")
    expect(page.locator(".chat-turn.user")).to_have_text(re.compile("line one\nline two"))
    answer = page.locator(".chat-turn.assistant")
    expect(answer.locator(".foot")).to_contain_text(re.compile(r"first token after \d+(\.\d+)? m?s"))
    expect(answer.locator(".chat-text")).not_to_be_empty()
    expect(answer).not_to_have_attribute("aria-busy", "true")


def test_a_job_that_is_opened_elsewhere_shows_up_by_itself(page: Page, stack: Stack) -> None:
    page.goto("/admin/jobs")
    expect(page.locator("[data-fresh]")).to_contain_text("Live")
    job = stack.api().post("jobs", {"kind": "serve", "args": {"name": "absent", "path": "/nowhere/absent.gguf"}})
    row = page.locator("tr", has=page.get_by_role("link", name="Serve absent"))
    expect(row).to_contain_text("failed")
    row.get_by_role("link").click()
    expect(page).to_have_url(re.compile(job["id"]))
    expect(page.locator("[data-part=message]")).to_contain_text("/nowhere/absent.gguf")
    expect(page.locator(".lg-step.failed")).to_be_visible()
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_text("Attempt")).to_be_visible()
    ended = lambda: (now := stack.api().get(f"jobs/{job['id']}"))["state"] == "failed" and now["attempt"] > 1  # noqa: E731
    wait_for(ended, what="the second try to end, which no other test shall see", every=0.1)


def test_a_node_goes_into_maintenance_with_a_reason_and_comes_back(page: Page, stack: Stack) -> None:
    sidebar(page, "Nodes").click()
    node = page.locator("[data-part=nodes] article")
    expect(node).to_contain_text("online")
    expect(node.get_by_label("Modules")).to_contain_text("inference")
    expect(node.get_by_label("Replicas")).to_contain_text(MODEL)

    node.get_by_role("button", name="Maintenance").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Start maintenance").click()
    expect(dialog).to_be_visible()  # it asks for a reason first
    dialog.get_by_label("Reason").fill("a <b>new</b> disk")
    dialog.get_by_role("button", name="Start maintenance").click()
    expect(node).to_contain_text("Cordoned: a <b>new</b> disk")
    expect(page.get_by_role("link", name="Maintenance 1")).to_be_visible()
    node.get_by_role("button", name="Uncordon").click()
    expect(node).not_to_contain_text("Cordoned")

    row = stack.api().all("nodes")[0]
    stack.api().post(f"nodes/{row['id']}/cordon", {"reason": "from elsewhere"})
    expect(node).to_contain_text("Cordoned: from elsewhere")  # by itself
    stack.api().post(f"nodes/{row['id']}/uncordon")
    expect(node).not_to_contain_text("Cordoned")

    node.get_by_role("button", name="Remove").click()
    dialog.get_by_label("Reason").fill("sold")
    dialog.get_by_role("button", name="Take it out").click()
    expect(dialog).to_contain_text("last_controller")
    expect(dialog.get_by_label("Reason")).to_have_value("sold")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    node.get_by_role("button", name="Remove").click()
    expect(dialog).not_to_contain_text("last_controller")
    expect(dialog.get_by_label("Reason")).to_have_value("")
    dialog.get_by_role("button", name="Cancel").click()
    assert [item["id"] for item in stack.api().all("nodes")] == [row["id"]]


def test_a_node_is_added_by_a_command_that_is_shown_once(page: Page) -> None:
    page.goto("/admin/nodes")
    page.get_by_role("link", name="Add a node").click()
    page.get_by_label("Machines").fill("2")
    page.get_by_role("button", name="Make a join token").click()
    command = page.locator("#join-command")
    expect(command).to_have_text(re.compile(r"^llmgw node join llmgw-join\.\S+ --controller http"))
    expect(page.get_by_text("No other machine can reach")).to_be_visible()
    row = page.locator("[data-part=tokens] tr", has_text="0 of 2")
    row.get_by_role("button", name="Revoke").click()
    expect(page.locator("[data-part=tokens]")).to_contain_text("No open token")
    expect(command).to_have_count(0)


def test_the_cluster_setup_is_ticked_refused_saved_and_cleared(page: Page, stack: Stack) -> None:
    name = stack.api().all("nodes")[0]["name"]
    sidebar(page, "Cluster setup").click()
    controller = page.get_by_label(f"{name}: controller")
    expect(controller).to_be_disabled()
    expect(controller).to_be_checked()
    page.get_by_label(f"{name}: set here").check(force=True)
    controller.uncheck()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("without a controller")
    expect(controller).not_to_be_checked()
    controller.check()
    page.get_by_role("button", name="Save").click()
    try:
        expect(page.locator("#setup")).to_contain_text("version")
        expect(page.get_by_label(f"{name}: set here")).to_be_checked()
        expect(page.locator("[data-fresh]")).to_contain_text("Live")
        assert stack.api().get("cluster/setup")["nodes"][name][0] == "controller"
    finally:
        page.get_by_role("button", name="Clear").click()
        page.get_by_role("button", name="Clear it").click()
    expect(page.get_by_label(f"{name}: set here")).not_to_be_checked()
    assert stack.api().get("cluster/setup")["nodes"] == {}


def test_a_models_page_draws_its_replica_with_cpu_and_memory_and_takes_orders(page: Page, stack: Stack) -> None:
    model, node = stack.api().all("models")[0], stack.api().all("nodes")[0]["name"]
    page.locator("[data-part=models]").get_by_role("link", name=MODEL, exact=True).click()
    row = page.locator(".lg-replicas tbody tr")
    expect(row).to_contain_text(node)
    expect(row).to_contain_text(re.compile(r"\d+ % of \d+ cores? (of the node)?\s*told \d+ s ago"))
    expect(row).to_contain_text("reserved")
    expect(page.get_by_role("article", name=node)).to_contain_text("1 replica here")
    expect(page.get_by_label("Standing")).to_contain_text("1 of 1 ready")
    page.get_by_label("At most under load").fill("2")
    page.get_by_role("button", name="Set the scaling").click()
    try:
        expect(page.get_by_text(f"The scaling of {MODEL} is set.")).to_be_visible()
        expect(page.locator("[data-part=model]")).to_contain_text("1 to 2 replicas by its load")
        expect(page.locator(".lg-pips i")).to_have_count(2)
        expect(page.locator(".lg-log li", has_text="max_replicas none → 2").first).to_be_visible()
        expect(page.get_by_role("img", name=re.compile("one more from 1 request that waits"))).to_be_visible()
        page.get_by_label("Always run (0: on demand)").fill("5000")
        page.get_by_label("At most under load").fill("6000")
        page.get_by_role("button", name="Set the scaling").click()
        expect(page.get_by_role("alert")).to_contain_text("min_not_placeable")
        expect(page.get_by_label("Always run (0: on demand)")).to_be_focused()
        expect(page.get_by_label("Always run (0: on demand)")).to_have_value("5000")
        expect(page.get_by_label("At most under load")).to_have_value("6000")
    finally:
        stack.api().patch(f"models/{model['id']}", {"max_replicas": None})


def test_no_page_is_wider_than_a_phone(page: Page, stack: Stack) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    card = f"/admin/model/{stack.api().all('models')[0]['id']}"
    for path in (
        "/admin/",
        card,
        "/admin/quotas",
        "/admin/usage",
        "/admin/limits",
        "/admin/budgets",
        "/admin/registry",
        "/admin/nodes",
        "/admin/nodes/add",
        "/admin/setup",
        "/admin/jobs",
        "/admin/chat",
    ):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, path


def test_the_focus_stays_where_it_is_when_a_part_is_drawn_anew(page: Page, stack: Stack) -> None:
    node = stack.api().all("nodes")[0]["id"]
    page.goto("/admin/nodes")
    button = page.get_by_role("button", name="Maintenance")
    button.focus()
    stack.api().post(f"nodes/{node}/cordon", {"reason": "a test"})
    try:
        expect(page.locator("[data-part=nodes]")).to_contain_text("Cordoned: a test")
        expect(button).to_be_focused()
    finally:
        stack.api().post(f"nodes/{node}/uncordon")


def test_what_has_not_changed_is_left_alone(page: Page) -> None:
    page.goto("/admin/jobs")
    page.evaluate("document.querySelector('[data-part=jobs]').kept = true")
    for _ in range(2):
        with page.expect_response(re.compile("parts=1")):
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # asks at once
    assert page.evaluate("document.querySelector('[data-part=jobs]').kept") is True


def test_what_a_model_writes_never_becomes_markup(page: Page) -> None:
    page.goto("/admin/chat")
    made = page.evaluate(
        """async (text) => {
            const { render } = await import("/static/js/markdown.js");
            const box = document.createElement("div");
            document.body.append(box);
            for (let end = 1; end <= text.length; end++) render(box, text.slice(0, end));  // as it streams
            return { text: box.textContent, tags: [...new Set([...box.querySelectorAll("*")].map((n) => n.tagName))] };
        }""",
        'a <img src=x onerror="document.title=1"> **b** `c`\n\n```html\n<script>document.title=2</script>\n```\n[x](javascript:1)',
    )
    assert "<script>document.title=2</script>" in made["text"]
    assert '<img src=x onerror="document.title=1">' in made["text"]
    assert set(made["tags"]) <= {"P", "STRONG", "CODE", "FIGURE", "FIGCAPTION", "SPAN", "BUTTON", "PRE"}
    assert page.title().endswith("llmgw")
