"""Names of queues and jobs as they stand in addresses of the admin; without it one named ``..`` would have no page: every
browser, and many a proxy, takes dots in an address for a way up, however they are escaped.
"""

from __future__ import annotations

from typing import Final

from django.contrib.admin.utils import quote, unquote

#: What Django's quoting, which escapes ``_`` itself, makes of no name.
_DOTS: Final = {".": "_2E", "..": "_2E_2E"}
_NAMES: Final = {quoted_: name for name, quoted_ in _DOTS.items()}


def quoted(name: str) -> str:
    """As Django's admin quotes ids, and dots too."""
    return _DOTS.get(name) or str(quote(name))


def unquoted(part: str) -> str:
    """The name that was quoted so."""
    return _NAMES.get(part) or str(unquote(part))
