"""A real browser for tests of pages: Chromium as the system has it, driven by Playwright, one page a test.

Without it a page would be tested by its text alone, and nobody would see that a policy blocks its script.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from tests.support.services import service_missing

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
PHONE = {"width": 390, "height": 844}


def chromium() -> str:
    """The browser's program; without one, or without what drives it, the test skips, and fails in CI."""
    program = next((found for name in _PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        service_missing("no Chromium on the PATH: apt-get install chromium")
    for package in ("playwright", "axe_playwright_python"):
        if importlib.util.find_spec(package) is None:
            service_missing(f"no {package}: pip install playwright axe-playwright-python")
    return program


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A browser of this test's own: what drives it holds an event loop, which Django would mind in other tests."""
    program = chromium()
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as playwright:
        # Root, as which CI runs, has no sandbox.
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Any, live_server: Any) -> Iterator[Callable[..., Any]]:
    """Open a page of the site as a user; at the end no script may have failed nor anything been refused by the site's
    policy, or asked of another host."""
    faults: list[str] = []

    def start(client: Client | None = None, **options: Any) -> Any:
        context = browser.new_context(base_url=live_server.url, **options)
        if client is not None:
            name = settings.SESSION_COOKIE_NAME
            context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": live_server.url}])
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.route("**/*", lambda route: _at_home(route, live_server.url, faults))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda said: faults.append(said.text) if "Content Security Policy" in said.text else None)
        page.on("dialog", lambda dialog: (faults.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
        return page

    yield start
    assert faults == []


def _at_home(route: Any, url: str, faults: list[str]) -> None:
    if route.request.url.startswith(url):
        route.continue_()
        return
    faults.append(f"asked of another host: {route.request.url}")
    route.abort()


def fits(page: Any) -> bool:
    """Whether the page is no wider than its window, once its styles are there."""
    page.wait_for_load_state()
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def barriers(page: Any, within: str = "body") -> list[str]:
    """What axe finds that keeps people out: the rule, and where it is broken."""
    from axe_playwright_python.sync_playwright import Axe  # noqa: PLC0415

    found = Axe().run(page, context=within).response["violations"]
    return [f"{rule['id']}: {node['html']} {node['failureSummary']}" for rule in found for node in rule["nodes"]]


def keep_picture(page: Any, name: str) -> None:
    """Write a picture of the page into the folder that PICTURES names, if it names one."""
    if folder := os.environ.get("PICTURES"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


__all__ = ["barriers", "browser", "fits", "keep_picture", "open_page"]
