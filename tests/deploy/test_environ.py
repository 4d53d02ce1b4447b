"""Settings from the environment: a wrong value is refused by name, at start."""

from __future__ import annotations

import pytest
from django.core.exceptions import ImproperlyConfigured

from deploy.environ import flag, required_outside_debug, whole_number, words


@pytest.mark.parametrize(("given", "value"), [("1", True), ("TRUE", True), ("on", True), ("0", False), ("", False)])
def test_a_flag_is_yes_or_no(monkeypatch: pytest.MonkeyPatch, given: str, value: bool) -> None:
    monkeypatch.setenv("SITE_FLAG", given)
    assert flag("SITE_FLAG", default=not value) is value


def test_what_is_not_set_has_its_default() -> None:
    assert flag("SITE_UNSET", default=True)
    assert whole_number("SITE_UNSET", 7) == 7
    assert words("SITE_UNSET", ["a"]) == ["a"]
    assert required_outside_debug("SITE_UNSET", debug=True, in_debug="x") == "x"


@pytest.mark.parametrize("given", ["maybe", "2"])
def test_a_flag_that_is_neither_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("SITE_FLAG", given)
    with pytest.raises(ImproperlyConfigured, match="SITE_FLAG must be one of"):
        flag("SITE_FLAG", default=False)


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "ten"])
def test_a_number_that_is_none_is_refused_by_name_and_not_repeated(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("SITE_NUMBER", given)
    with pytest.raises(ImproperlyConfigured, match=r"^SITE_NUMBER must be a whole number above 0$"):
        whole_number("SITE_NUMBER", None)


def test_words_are_split_at_commas_without_blanks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE_WORDS", "one, two,,")
    assert words("SITE_WORDS", []) == ["one", "two"]


def test_outside_debug_a_secret_has_no_stand_in() -> None:
    with pytest.raises(ImproperlyConfigured, match="SITE_SECRET must be set when DJANGO_DEBUG is off"):
        required_outside_debug("SITE_SECRET", debug=False, in_debug="x")
