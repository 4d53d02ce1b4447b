"""A task message in as few bytes as it can be made again from; as Celery writes it, what every message says alike, twice the
payload and four times the id would fill Redis while jobs wait.

Left out is what Celery says by default, what the job's record says already, and the arguments as they are shown, where those
follow from the body. A message that does not fit stays as kombu writes it; both kinds are read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from itertools import count, takewhile
from typing import Any, Final

from queue_kit.rules.brief import brief_repr

#: First character of a packed message; kombu's are JSON objects.
MARK: Final = "="
#: How a body ends that names no callbacks.
TAIL: Final = ', {"callbacks": null, "errbacks": null, "chain": null, "chord": null}]'
#: Stands in a packed message whose body is whole.
_WHOLE: Final = "whole"
_HEADERS: Final[Mapping[str, Any]] = {
    "lang": "py", "shadow": None, "eta": None, "expires": None, "group": None, "group_index": None, "retries": 0,
    "parent_id": None, "ignore_result": False, "replaced_task_nesting": 0, "stamped_headers": None,
}  # fmt: skip
_PROPERTIES: Final[Mapping[str, Any]] = {"body_encoding": "utf-8", "priority": 0}
_KIND: Final[Mapping[str, Any]] = {"content-encoding": "utf-8", "content-type": "application/json"}
#: Arguments as Celery shows them: header, place in the body, what it shows of none.
_SHOWN: Final = (("argsrepr", 0, "()"), ("kwargsrepr", 1, "{}"))
_REPRS: Final = frozenset(header for header, *_ in _SHOWN)
_APART: Final = frozenset({"body", "headers", "properties"})


def pack(
    message: Mapping[str, Any], queue: str, arguments: tuple[Any, ...] | None, dumps: Callable[[Any], str]
) -> str | None:
    """Pack a message of kombu's; ``None`` if it lacks what a task message has.

    :param arguments: args and kwargs that the body was made from, if it is JSON of them.
    """
    headers, properties, body = message["headers"], message["properties"], message["body"]
    job_id, name = headers.get("id"), headers.get("task")
    usual = (*_facts(job_id, name, queue), _KIND)
    given = (headers, properties, {part: value for part, value in message.items() if part not in _APART})
    whole = all(expected.keys() <= parts.keys() for expected, parts in zip(usual, given, strict=True))
    if not (whole and headers.keys() >= _REPRS and all(type(text) is str for text in (job_id, name, body))):
        return None
    said = [_unusual(parts, expected) for parts, expected in zip(given, usual, strict=True)]
    for header, place, empty in _SHOWN:
        if arguments is not None and _follows(headers[header], arguments[place], place, empty):
            del said[0][header]
    if body.endswith(TAIL):
        body = body[: -len(TAIL)]
    else:
        said[2][_WHOLE] = 1
    return f"{MARK}{dumps(said)}\n{body}"


def unpack(text: str, job_id: str, name: str, queue: str, loads: Callable[[str], Any] = json.loads) -> Any:
    """Make the message again, of the job with this id, task name and queue.

    :raises ValueError, TypeError, LookupError, AttributeError: it is no message.
    """
    if not text.startswith(MARK):
        return loads(text)
    return opened(text, job_id, name, queue, loads)[0]


def opened(text: str, job_id: str, name: str, queue: str, read_head: Callable[[str], Any]) -> tuple[dict[str, Any], Any]:
    """The message of a packed text, and its body as plain JSON says it, where that had to be read (else ``None``).

    :param read_head: reads what was packed beside the body; what it answers is not changed, and may be answered again.
    """
    head, _, body = text[1:].partition("\n")
    headers, properties, kind = read_head(head)
    if _WHOLE in kind:
        kind = {part: value for part, value in kind.items() if part != _WHOLE}
    else:
        body += TAIL
    content = None
    if not headers.keys() >= _REPRS:
        content = args, kwargs, _ = json.loads(body)
        headers = {"argsrepr": repr(tuple(args)), "kwargsrepr": repr(kwargs), **headers}
    usual_headers, usual_properties = _facts(job_id, name, queue)
    message = {
        "body": body, **_KIND, **kind, "headers": {**usual_headers, **headers},
        "properties": {**usual_properties, **properties},
    }  # fmt: skip
    return message, content


def is_flat(head: str) -> bool:
    """Whether a packed head surely holds nothing that a message could share with the next one that has the same head."""
    return head.count("{") == 3 and head.count("[") == 1


def unpacked(text: str, job_id: str, name: str, queue: str) -> str:
    """The same as kombu writes it, which is what people and other programs read; what is no message stays as it is."""
    if not text.startswith(MARK):
        return text
    try:
        return json.dumps(unpack(text, job_id, name, queue))
    except (ValueError, TypeError, LookupError, AttributeError):
        return text


def joined(record: Mapping[str, str]) -> str:
    """The message in a job's record, where it is cut into the fields `1`, `2`, ...: a longer value would take more memory."""
    if "message" in record:
        return record["message"]
    return "".join(record[part] for part in takewhile(record.__contains__, map(str, count(1))))


def _facts(job_id: Any, name: Any, queue: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What headers and properties say where nobody has asked for anything."""
    headers = {**_HEADERS, "task": name, "id": job_id, "root_id": job_id, "timelimit": [None, None], "stamps": {}}
    info = {"exchange": "", "routing_key": queue}
    return headers, {**_PROPERTIES, "correlation_id": job_id, "delivery_info": info}


def _unusual(given: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    said = {}
    for name, value in given.items():
        expected = usual.get(name, usual)
        if value is not expected and (value != expected or type(value) is not type(expected)):
            said[name] = value
    return said


def _follows(shown: Any, arguments: Any, place: int, empty: str) -> bool:
    """Whether the worker, which has the arguments as JSON gives them, would show the same."""
    again = tuple(arguments) if place == 0 else arguments
    return isinstance(shown, str) and shown == brief_repr(again, empty, len(shown) + 1)
