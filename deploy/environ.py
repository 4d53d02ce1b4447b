"""Reads typed values from the environment; a misspelt number would otherwise surface deep inside a request."""

import os

from django.core.exceptions import ImproperlyConfigured

TRUE, FALSE = {"1", "true", "yes", "on"}, {"", "0", "false", "no", "off"}


def flag(name: str, default: bool) -> bool:
    """Return a yes/no variable; raises ImproperlyConfigured naming the variable when it is neither."""
    given = os.environ.get(name)
    if given is None:
        return default
    if given.lower() in TRUE | FALSE:
        return given.lower() in TRUE
    raise ImproperlyConfigured(f"{name} must be one of 1, 0, true, false, yes, no, on, off")


def whole_number(name: str, default: int | None) -> int | None:
    """Return a positive whole number, or the default when the variable is unset or empty."""
    given = os.environ.get(name, "")
    if not given:
        return default
    if given.isdecimal() and int(given) > 0:
        return int(given)
    raise ImproperlyConfigured(f"{name} must be a whole number above 0")


def words(name: str, default: list[str]) -> list[str]:
    """Return a comma-separated variable as a list, without blanks."""
    given = [word.strip() for word in os.environ.get(name, "").split(",")]
    return [word for word in given if word] or default


def required_outside_debug(name: str, debug: bool, in_debug: str) -> str:
    """Return the variable; only in debug may a stand-in take its place."""
    given = os.environ.get(name, "")
    if given:
        return given
    if debug:
        return in_debug
    raise ImproperlyConfigured(f"{name} must be set when DJANGO_DEBUG is off")
