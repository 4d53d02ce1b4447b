"""A message as kombu hands it on, whose body is read by the quick reader where that reads the same; without it kombu would call a
function for each object in it, to look for types that JSON has no word for.
"""

from __future__ import annotations

import json
from typing import Any, Final

from kombu.serialization import registry
from kombu.transport.virtual import base

from queue_kit.transport.envelope import CONTENT

_JSON: Final = "application/json"
_MARKS_A_TYPE: Final = b'"__type__"'
#: Kombu's own way to read JSON; a project may have registered another.
_KOMBUS: Final = registry._decoders[_JSON]

#: What ours is derived from; kombu is untyped.
_Base: Any = base.Message


class JobMessage(_Base):
    """Of a job or of anything else."""

    def __init__(self, payload: dict[str, Any], channel: Any = None, **kwargs: Any) -> None:
        self._content = payload.pop(CONTENT, None)
        super().__init__(payload, channel=channel, **kwargs)

    def _decode(self) -> Any:
        plain = self.content_type == _JSON and self.content_encoding == "utf-8" and type(self.body) is bytes
        if plain and _MARKS_A_TYPE not in self.body and registry._decoders.get(_JSON) is _KOMBUS and self._is_accepted:
            if self._content is not None:
                return self._content
            try:
                return json.loads(self.body)
            except ValueError:
                pass  # kombu has its own word for it
        return super()._decode()

    @property
    def _is_accepted(self) -> bool:
        return (_JSON in self.accept) if self.accept is not None else _JSON not in registry._disabled_content_types
