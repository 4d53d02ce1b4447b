"""Requests that no browser sends, to every address of the site, with hostile jobs behind it: refused or answered, never a 500."""

from __future__ import annotations

import json
import re
import string
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.admin.utils import quote as admin_quote
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import URLPattern, get_resolver
from hypothesis import given
from hypothesis import strategies as st

from queue_kit.store.moves import Unique
from tests.fuzz.strategies import WORDS, junk, messages, profile, texts, words
from tests.store.desk import LATER, Desk
from tests.support.redis_server import RedisServer

#: Names of fields of some form or query of the site.
FIELDS = (
    "action", "id", "ids", "state", "text", "queue", "name", "error", "cause", "since", "until", "replayed",
    "newest_ms", "p", "q", "o", "page", "all", "rate", "by", "from", "concurrency", "rate_max", "rate_s", "seconds",
    "delay_s", "key", "job", "confirm", "seat", "seats", "label", "hold", "visitor", "email", "answers", "mode",
    "version", "after", "next", "username", "password", "format", "export", "selected", "mapping", "_selected_action",
)  # fmt: skip
#: Of a queue, and of jobs and dead letters in it, as they are put there.
QUEUE, JOBS = "fuzz", [f"{word}{number}" for number, word in enumerate(WORDS)]
IDS = [*JOBS, *(f"dlq-{QUEUE}-{job}-1" for job in JOBS), QUEUE, "nothing", "1"]

ids = st.sampled_from(IDS) | texts | words
SEGMENTS: dict[str, st.SearchStrategy[str]] = {
    "int": st.sampled_from(["0", "1", "2", str(2**63), str(10**30)]),
    "slug": st.sampled_from(["a-5521", "demo", "-", "_", "x" * 300]),
    "uuid": st.just(str(uuid.UUID(int=7))) | st.uuids().map(str),
    "str": ids.map(admin_quote) | ids,
    "path": ids.map(admin_quote) | ids,
}
values = texts | words | st.sampled_from(IDS) | st.integers().map(str)
fields = st.dictionaries(st.sampled_from(FIELDS) | texts, values, max_size=5)


def _routes(patterns: list[Any], before: str = "") -> Iterator[str]:
    """Every address that is made of a route."""
    for pattern in patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield route
        else:
            yield from _routes(pattern.url_patterns, route)


ROUTES = sorted(route for route in _routes(get_resolver().url_patterns) if "(?" not in route and "$" not in route)


@st.composite
def paths(draw: st.DrawFn) -> str:
    """One of the site's addresses, with something in the place of each of its ids."""

    def segment(found: re.Match[str]) -> str:
        converter = found[1].rpartition(":")[0] or "str"
        return quote(draw(SEGMENTS[converter]), safe="/" if converter == "path" else "")

    return "/" + re.sub(r"<([^>]+)>", segment, draw(st.sampled_from(ROUTES)))


bodies = st.one_of(
    fields.map(lambda form: ("application/x-www-form-urlencoded", "&".join(f"{quote(k)}={quote(v)}" for k, v in form.items()))),
    junk.map(lambda value: ("application/json", json.dumps(value))),
    fields.map(lambda form: ("application/json", json.dumps(form))),
    st.tuples(st.sampled_from(["text/plain", "application/json", "multipart/form-data; boundary=x", "a/b", ""]), texts | words),
)
METHODS = ("GET", "GET", "POST", "POST", "PUT", "HEAD")
HEADERS = (
    "HTTP_ACCEPT", "HTTP_X_CORRELATION_ID", "HTTP_REFERER", "HTTP_IF_NONE_MATCH", "HTTP_IF_MODIFIED_SINCE", "HTTP_COOKIE",
    "HTTP_ACCEPT_LANGUAGE", "HTTP_X_REQUESTED_WITH", "HTTP_LAST_EVENT_ID", "HTTP_HX_REQUEST",
)  # fmt: skip
headers = st.dictionaries(st.sampled_from(HEADERS), words | st.text(string.printable, max_size=20), max_size=3)


@pytest.fixture
def hostile(queue: RedisServer, db: None) -> Desk:
    """The site with its demo data, and a queue with jobs of every state whose messages, ids and names are anything."""
    call_command("load_demo_exam", verbosity=0)
    call_command("load_demo_event", verbosity=0)
    desk = Desk(queue.client(), QUEUE)
    made: list[str] = []

    @profile(len(JOBS))
    @given(messages("celery.x", "examhall.grade"), texts | words)
    def put(message: str, name: str) -> None:
        if len(made) < len(JOBS):
            made.append(message)
            _bring(desk, JOBS[len(made) - 1], len(made), body=message, name=name)

    put()
    return desk


def _bring(desk: Desk, job_id: str, number: int, **message: str) -> None:
    """Put a job into one of the states."""
    if number % 5 == 0:
        desk.run(desk.moves.add(job_id, desk.message(**message), when=LATER, unique=Unique(f"qwk:dedup:{job_id}", "ttl", 10**6)))
        return
    token = desk.running(job_id, **message)
    moves = desk.moves
    if number % 5 == 1:
        desk.run(moves.complete(job_id, token))
    elif number % 5 in (2, 3):
        desk.run(moves.fail(job_id, token, "exhausted", f"<b>{job_id}", error_class=job_id, stack=job_id, tell=True))


@pytest.mark.timeout(300)
def test_no_request_is_answered_with_500(hostile: Desk) -> None:
    """Given a visitor, and a superuser."""
    User.objects.create_superuser("root", password="x")
    visitor, root = Client(raise_request_exception=False), Client(raise_request_exception=False)
    root.force_login(User.objects.get(username="root"))
    seen: dict[int, int] = {}

    @profile(900)
    @given(st.sampled_from([visitor, root, root]), st.sampled_from(METHODS), paths(), fields, bodies, headers)
    def ask(client: Client, method: str, path: str, query: dict[str, str], body: tuple[str, str], extra: dict[str, str]) -> None:
        if "logout" in path or "password" in path:
            return
        words_ = "&".join(f"{quote(name)}={quote(value)}" for name, value in query.items())
        answer = client.generic(method, path, body[1].encode(), content_type=body[0], QUERY_STRING=words_, **extra)
        seen[answer.status_code] = seen.get(answer.status_code, 0) + 1
        assert answer.status_code < 500, f"{method} {path} {query} {body} {extra}: {answer.status_code} {answer.exc_info}"
        b"".join(answer) if answer.streaming else answer.content

    ask()
    print(seen)
    assert {200, 302, 404, 405} <= seen.keys()
