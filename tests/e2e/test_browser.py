"""The console in a real browser (Debian's Chromium, headless): sign in, see the job's steps, chat with the model."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from tests.stack import MODEL, Stack

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.xdist_group("stack"),
    pytest.mark.skipif(
        CHROMIUM is None,
        reason="LEFT OUT: no chromium on PATH, so no page was opened (Debian: apt-get install chromium)",
    ),
]


@pytest.fixture
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, stack: Stack) -> Iterator[Page]:
    """A page whose user has signed in. Whatever a script logs as an error, or the policy refuses, fails the test."""
    context = browser.new_context(base_url=stack.url)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
    page.on("console", lambda said: problems.append(f"{page.url}: {said.text}") if _is_defect(said.text) else None)
    page.goto("/")
    page.get_by_label("Username").fill(stack.quickstart["LLMGW_ADMIN_USER"])
    page.get_by_label("Password").fill(stack.quickstart["LLMGW_ADMIN_PASSWORD"])
    page.get_by_role("button", name="Log in").click()
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
    expect(answer.locator(".foot")).to_contain_text(re.compile(r"first token after \d+(\.\d+)? m?s"), timeout=20_000)
    expect(answer.locator(".chat-text")).not_to_be_empty()
    expect(answer).not_to_have_attribute("aria-busy", "true")


def test_a_job_that_is_opened_elsewhere_shows_up_by_itself(page: Page, stack: Stack) -> None:
    page.goto("/admin/jobs")
    expect(page.locator("[data-fresh]")).to_contain_text("Live")
    job = stack.api().post("jobs", {"kind": "serve", "args": {"name": "absent", "path": "/nowhere/absent.gguf"}})
    row = page.locator("tr", has=page.get_by_role("link", name="Serve absent"))
    expect(row).to_contain_text("failed", timeout=15_000)
    row.get_by_role("link").click()
    expect(page).to_have_url(re.compile(job["id"]))
    expect(page.locator(".lg-step.failed")).to_contain_text("/nowhere/absent.gguf")
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_text("Attempt")).to_be_visible()


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
