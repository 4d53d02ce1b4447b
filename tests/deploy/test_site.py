"""What all pages share: the policy, the frame, the theme, and a page of our own for each refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from deploy.middleware import POLICY
from tests.support.browser import PHONE, barriers, browser, fits, open_page
from tests.support.site import site

__all__ = ["browser", "open_page", "site"]
pytestmark = pytest.mark.django_db(transaction=True)
OpenPage = Callable[..., Any]
PAGES = ("/", "/examhall/", "/ticketing/", "/admin/login/", "/nowhere/")


@pytest.mark.parametrize("path", [*PAGES, "/static/site.css", "/ticketing/holds/x"])
def test_every_answer_carries_the_policy(site: Client, path: str) -> None:
    assert site.get(path).headers["Content-Security-Policy"] == POLICY


@pytest.mark.parametrize("name", ["400", "403", "403_csrf", "404", "500", "503"])
def test_each_refusal_has_a_page_that_asks_no_database(name: str) -> None:
    from django.template.loader import render_to_string  # noqa: PLC0415

    page = render_to_string(f"{name}.html")
    assert "<h1>" in page
    assert "://" not in page


def test_a_missing_page_and_a_form_without_its_token_are_answered_in_the_sites_look() -> None:
    strict = Client(enforce_csrf_checks=True)
    assert "There is no such page" in strict.get("/nowhere/").content.decode()
    refused = strict.post("/admin/login/", {"username": "a"})
    assert (refused.status_code, "The form was too old" in refused.content.decode()) == (403, True)


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_barrier_and_a_phone_has_room(open_page: OpenPage, scheme: str) -> None:
    page = open_page(viewport=PHONE, color_scheme=scheme)
    for path in ("/", "/ticketing/", "/nowhere/"):
        page.goto(path)
        assert (path, fits(page), barriers(page)) == (path, True, [])


@pytest.mark.browser
def test_the_first_stop_of_the_keyboard_skips_to_the_content(open_page: OpenPage) -> None:
    page = open_page()
    page.goto("/")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


@pytest.mark.browser
def test_one_theme_holds_in_the_site_and_the_admin(open_page: OpenPage) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    page = open_page(client, color_scheme="light")
    page.goto("/")
    page.locator(".theme-toggle").click()
    assert paper(page) == "rgb(20, 23, 28)"
    page.goto("/admin/")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.locator(".theme-toggle").first.click()
    page.goto("/")
    assert paper(page) == "rgb(246, 247, 249)"


def paper(page: Any) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))
