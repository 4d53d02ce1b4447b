"""What Celery shows of a job's arguments, in the common case without its careful way there, which takes longer than all else
that it does for a send.
"""

from __future__ import annotations

from typing import Any, Final

_PLAIN: Final = frozenset({str, int, float, bool, type(None)})


def brief_repr(arguments: Any, empty: str, longest: int) -> str | None:
    """What ``saferepr`` makes of these arguments, or ``None`` where only it can tell: nested, long, or with quotes in them."""
    if not arguments:
        return empty
    kind = type(arguments)
    if kind is dict:
        plain = all(type(name) is str and type(value) in _PLAIN for name, value in arguments.items())
    else:
        plain = kind in (list, tuple) and all(type(value) in _PLAIN for value in arguments)
    if not plain:
        return None
    shown = repr(arguments)
    return shown if len(shown) < longest and "\\" not in shown and '"' not in shown else None
