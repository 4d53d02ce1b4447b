"""The errors: one tree, drawn in full, whose members say what they are and survive the way from a child to its parent."""

from __future__ import annotations

import pickle
import re
import textwrap
from typing import Any

import pytest
from kombu.exceptions import OperationalError

from queue_kit import errors
from queue_kit.errors import ConfigurationError, JobTimeoutError, NonRetryableError, QueueKitError, QueueUnavailable

#: Errors that cannot be made of words alone.
MADE_OF = {"Snooze": (200,), "RateLimited": (200,)}
TREE = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, QueueKitError)}


def drawn() -> dict[str, str]:
    """Each error that the docstring draws, with the one it hangs from ('' for the root)."""
    path: list[str] = []
    parents = {}
    drawing = (errors.__doc__ or "").partition("\n\n")[2]
    for line in textwrap.dedent(drawing).splitlines():  # Python 3.13 takes the indentation out of docstrings itself
        found = re.match(r"^((?:[│ ]   )*)(?:[├└]── )?([A-Z]\w+)", line)
        if found:
            branches, name = found.groups()
            depth = len(branches) // 4 + ("──" in line)
            path = [*path[:depth], name]
            parents[name] = path[-2] if depth else ""
    return parents


def test_the_drawing_of_the_tree_is_complete_and_true() -> None:
    bases = {
        name: next((base.__name__ for base in kind.__bases__ if base.__name__ in TREE), "")
        for name, kind in TREE.items()
    }
    assert drawn() == bases


@pytest.mark.parametrize("kind", TREE.values(), ids=list(TREE))
def test_without_words_an_error_says_what_it_is(kind: type[QueueKitError]) -> None:
    assert kind.__doc__
    if kind is not ConfigurationError:
        error = kind(*MADE_OF.get(kind.__name__, ()))
        assert str(error) == kind.__doc__.strip().splitlines()[0]
        assert str(error).endswith(".")


def test_a_subclass_without_words_of_its_own_says_what_its_parent_says() -> None:
    """A9: users make their own."""

    class CardRefused(NonRetryableError):
        pass

    assert str(CardRefused()) == "The job cannot succeed, however often it runs."
    assert str(CardRefused("card 7")) == "card 7"


@pytest.mark.parametrize("kind", TREE.values(), ids=list(TREE))
def test_an_error_survives_pickling(kind: type[QueueKitError]) -> None:
    """A9: classification works by type, also when the error comes from a child."""
    error = kind(*MADE_OF.get(kind.__name__, ()), "boom")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (kind, "boom", vars(error))


@pytest.mark.parametrize("kind", [errors.Snooze, errors.RateLimited])
@pytest.mark.parametrize("delay_ms", [-1, 1.5, "200", None, True])
def test_how_long_a_job_goes_back_for_is_whole_milliseconds(kind: Any, delay_ms: Any) -> None:
    with pytest.raises(ValueError, match="delay_ms: a whole number of milliseconds, 0 or more"):
        kind(delay_ms)


def test_a_transient_error_keeps_how_long_it_was_asked_to_wait() -> None:
    """SPEC 6: `Retry-After` is kept."""
    error = errors.TransientError("busy", retry_after_ms=2_000)
    assert pickle.loads(pickle.dumps(error)).retry_after_ms == 2_000
    assert errors.TransientError("busy").retry_after_ms is None


def test_unavailable_keeps_what_a_caller_needs_to_send_again() -> None:
    """H4: kombu's own name for it, with the id and whether it was sent."""
    error = QueueUnavailable("Redis does not answer", job_id="j-1", sent="no")
    assert isinstance(error, OperationalError)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.job_id, copy.sent) == ("Redis does not answer", "j-1", "no")
    assert QueueUnavailable().sent == "unknown"


def test_a_configuration_error_lists_every_fault() -> None:
    error = ConfigurationError(["A: one", "B: two"])
    assert (str(error), error.problems) == ("A: one; B: two", ["A: one", "B: two"])
    assert ConfigurationError("A: one").problems == ["A: one"]
    assert pickle.loads(pickle.dumps(error)).problems == ["A: one", "B: two"]


def test_a_timeout_is_transient_and_nothing_is_both() -> None:
    assert issubclass(JobTimeoutError, errors.TransientError)
    assert not any(
        issubclass(kind, errors.TransientError) and issubclass(kind, NonRetryableError) for kind in TREE.values()
    )
