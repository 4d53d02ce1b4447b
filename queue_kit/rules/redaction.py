"""What of a payload and of an error may be shown; without one rule for it a password would reach a page, a log or an export.

What is stored stays whole: a replay needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

REDACTED: Final = "[redacted]"

#: Shorter ones stand in too many words by chance to be looked for in a text.
_SHORTEST_SECRET: Final = 4
#: User and password of a URL.
_CREDENTIALS: Final = re.compile(r"(?<=://)[^\s/@:]*:[^\s/@]*(?=@)")
#: In a stack: where the next line is source code, which is no secret and reads better whole.
_FRAME: Final = '  File "'


@dataclass(frozen=True)
class Redactor:
    """Hides the values of fields whose name contains one of ``names``, whatever its case, dashes and underscores."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, setting: str) -> Redactor:
        """Read the names from a setting: commas between them, none if it is empty."""
        return cls(tuple(name for name in map(_plain, setting.split(",")) if name))

    def hides(self, field: str) -> bool:
        """Whether the value of a field of this name is a secret."""
        plain = _plain(field)
        return any(name in plain for name in self.names)

    def tree(self, value: Any) -> Any:
        """A copy of nested mappings and lists in which each secret is replaced."""
        if isinstance(value, dict):
            return {key: REDACTED if self.hides(str(key)) else self.tree(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.tree(inner) for inner in value]
        return value

    def secrets(self, value: Any, hidden: bool = False) -> set[str]:
        """The texts that :meth:`tree` replaces, to be looked for where an error has quoted them."""
        if isinstance(value, dict):
            return set().union(*(self.secrets(v, hidden or self.hides(str(key))) for key, v in value.items()))
        if isinstance(value, list):
            return set().union(*(self.secrets(inner, hidden) for inner in value))
        text = str(value)
        return {text} if hidden and value is not None and len(text) >= _SHORTEST_SECRET else set()

    def text(self, text: str, secrets: Iterable[str] = ()) -> str:
        """A copy of an error or a stack without these secrets, without ``name=value`` of a hidden name, and without the
        credentials of URLs."""
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, REDACTED)
        lines = _CREDENTIALS.sub(REDACTED, text).split("\n")
        before = ["", *lines]
        return "\n".join(
            line if above.startswith(_FRAME) else self._line(line) for above, line in zip(before, lines, strict=False)
        )

    def _line(self, line: str) -> str:
        return self._assignment.sub(rf"\g<1>{REDACTED}", line) if self.names else line

    @cached_property
    def _assignment(self) -> re.Pattern[str]:
        """A hidden name, an equals sign or colon, and the value: quoted, or up to the next blank or bracket.

        What stands between them is bounded, so that no text, however it is made, takes longer than its length asks for.
        """
        names = "|".join(r"[-_. ]?".join(map(re.escape, name)) for name in self.names)
        value = r"""(?:\\?"[^"]*"|\\?'[^']*'|(?:(?:Bearer|Basic|Token)\s+)?[^\s,;&)\]}]+)"""
        field = rf"""(?:{names})[\w.-]{{0,40}}\\?["']?\s{{0,5}}[:=]\s{{0,5}}(?:[bru](?=["']))?"""
        return re.compile(rf"({field})(?!{re.escape(REDACTED)}){value}", re.IGNORECASE)


def _plain(name: str) -> str:
    return re.sub(r"[-_.\s]", "", name).lower()
