"""What the fuzzed inputs are made of, and how many are tried.

Without one profile a run could find on one machine what it cannot show on another.
"""

from __future__ import annotations

import json
import os
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from queue_kit.rules.packing import MARK

#: The same inputs in every run; FUZZ_EXAMPLES asks for more, and for other ones.
MORE = int(os.environ.get("FUZZ_EXAMPLES", "0"))


def profile(examples: int, *, shrink: bool = True) -> settings:
    """Settings for one fuzzed test."""
    phases = [Phase.explicit, Phase.generate, *([Phase.shrink] if shrink else [])]
    return settings(
        max_examples=MORE or examples, derandomize=not MORE, database=None, deadline=None, phases=phases,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


#: Redis and JSON take any text but half a character of UTF-16.
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
numbers = st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from([0, -1, 1e308, 2**31, 2**63, 10**400])
#: What means something to somebody: keys of Redis, paths, formats, HTML, instants.
WORDS = (
    "", " ", "*", ":runs", "a:log", "{x}", "..", "../../etc/passwd", "\x00", "\r\n", "<script>alert(1)</script>", "%s%n", "'; --",
    "null", "NaN", "1e999", "-0", "None", "2026-11-30T18:00", "2026-13-45", "9999-12-31T23:59:59+00:00", "0001-01-01",
    "qwk:queues", "dead-letter", "utf-8", "base64",
    "zlib", "application/x-python-serialize", "application/json", "application/data", "json",
)  # fmt: skip
words = st.sampled_from(WORDS)
scalars = st.none() | st.booleans() | numbers | texts | words
junk = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts | words, inner, max_size=4))

HEADERS = (
    "id", "task", "lang", "root_id", "parent_id", "group", "group_index", "meth", "shadow", "eta", "expires", "retries",
    "timelimit", "argsrepr", "kwargsrepr", "origin", "ignore_result", "replaced_task_nesting", "stamped_headers", "stamps",
    "compression", "queue_kit", "chord", "reply_to", "correlation_id",
)  # fmt: skip
PROPERTIES = (
    "priority", "correlation_id", "reply_to", "delivery_info", "delivery_tag", "delivery_mode", "body_encoding", "queue_kit",
)  # fmt: skip
EMBEDDED = ("callbacks", "errbacks", "chain", "chord")


def _some_of(names: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), junk, max_size=2)


@st.composite
def _messages(draw: st.DrawFn, names: tuple[str, ...]) -> str:
    """A task message as Celery writes it, with something in it put wrong."""
    name = draw(st.sampled_from(names))
    headers = {"task": name, "id": "x", "lang": "py", "retries": 0, "timelimit": [None, None]} | draw(_some_of(HEADERS))
    embed: Any = dict.fromkeys(EMBEDDED) | draw(_some_of(EMBEDDED))
    body = json.dumps([[], {}, embed])
    message = {
        "body": body, "content-type": "application/json", "content-encoding": "utf-8", "headers": headers,
        "properties": {"body_encoding": "utf-8", "delivery_info": {}, "priority": 0} | draw(_some_of(PROPERTIES)),
    }  # fmt: skip
    wrong = draw(st.sampled_from(("", "", "", *message)))
    if wrong:
        message[wrong] = draw(junk)
    return json.dumps(message)


def messages(*names: str) -> st.SearchStrategy[str]:
    """What may lie in Redis as a job's message: nearly one of these tasks, other JSON, packed text, anything."""
    nearly = _messages(names)
    return nearly | nearly | nearly | junk.map(json.dumps) | texts.map(lambda text: MARK + text) | texts
