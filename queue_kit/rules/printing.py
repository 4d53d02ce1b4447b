"""Makes a text safe to print; without it the name of a job could move the cursor of whoever lists it."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """A text that can do nothing to a terminal: what an error quotes was chosen by whoever sent the job."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)
