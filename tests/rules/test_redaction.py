"""Redaction: what is hidden in payloads, errors and stacks, and what is left readable."""

from __future__ import annotations

import pytest

from queue_kit.rules.redaction import Redactor
from queue_kit.settings import Settings
from tests.support.waiting import Stopwatch

REDACTOR = Redactor.of(Settings().dead_letter_redact)


@pytest.mark.parametrize(
    "field",
    ["password", "PASSWORD", "userPassword", "password_hash", "Authorization", "x-api-key", "apiKey", "access_token",
     "client.secret", "api key"],
)  # fmt: skip
def test_a_field_whose_name_contains_a_hidden_word_is_hidden(field: str) -> None:
    assert REDACTOR.tree({field: "hunter2", "user": "ada"}) == {field: "[redacted]", "user": "ada"}


@pytest.mark.parametrize("field", ["user", "pass", "key", "api", "to"])
def test_other_fields_are_shown(field: str) -> None:
    assert REDACTOR.tree({field: "hunter2"}) == {field: "hunter2"}


def test_nested_values_are_found_and_the_original_stays_whole() -> None:
    payload = {"to": [{"name": "ada", "login": {"token": ["a", {"b": 1}]}}]}
    assert REDACTOR.tree(payload) == {"to": [{"name": "ada", "login": {"token": "[redacted]"}}]}
    assert payload["to"][0]["login"]["token"] == ["a", {"b": 1}]  # type: ignore[index]


def test_a_secret_that_an_error_quotes_is_hidden_there_too() -> None:
    secrets = REDACTOR.secrets({"login": {"token": ["hunter2", {"deep": "swordfish"}]}, "pin_secret": 12345})
    assert secrets == {"hunter2", "swordfish", "12345"}
    assert REDACTOR.text("no hunter2 for swordfish, 12345", secrets) == "no [redacted] for [redacted], [redacted]"


def test_a_secret_within_another_leaves_no_rest() -> None:
    assert REDACTOR.text("abcdef abcd", {"abcd", "abcdef"}) == "[redacted] [redacted]"


def test_values_too_short_to_be_told_from_words_are_not_looked_for() -> None:
    assert REDACTOR.secrets({"token": "abc", "secret": None, "password": ""}) == set()


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("password=hunter2 refused", "password=[redacted] refused"),
        ("{'password': 'hunter 2', 'user': 'ada'}", "{'password': [redacted], 'user': 'ada'}"),
        ('{"api_key": "k-1", "n": 1}', '{"api_key": [redacted], "n": 1}'),
        (r'body {\"token\": \"t-1\"}', r"body {\"token\": [redacted]}"),
        ("Authorization: Bearer abc.def, Accept: */*", "Authorization: [redacted], Accept: */*"),
        ("GET /?access-token=abc&page=2", "GET /?access-token=[redacted]&page=2"),
        ("redis://user:hunter2@host:6379/0 is away", "redis://[redacted]@host:6379/0 is away"),
        ("redis://:hunter2@host", "redis://[redacted]@host"),
        ("no secrets here: 3 of 4", "no secrets here: 3 of 4"),
        ("KeyError: 'user'", "KeyError: 'user'"),
    ],
)
def test_errors_lose_what_stands_behind_a_hidden_name_and_credentials_of_urls(said: str, shown: str) -> None:
    assert REDACTOR.text(said) == shown


def test_source_code_in_a_stack_stays_readable() -> None:
    stack = (
        'Traceback (most recent call last):\n  File "app.py", line 3, in log_in\n    token = fetch(password=given)\n'
        "ValueError: password=hunter2"
    )
    assert REDACTOR.text(stack) == stack.replace("hunter2", "[redacted]")


def test_what_is_redacted_stays_so() -> None:
    once = REDACTOR.text("token=abcd; see {'secret': 'x'}")
    assert REDACTOR.text(once) == once


def test_an_empty_setting_hides_nothing_but_credentials() -> None:
    nothing = Redactor.of("")
    assert nothing.tree({"password": "hunter2"}) == {"password": "hunter2"}
    assert nothing.text("password=a at amqp://u:p@h") == "password=a at amqp://[redacted]@h"


def test_names_of_ones_own_replace_the_defaults() -> None:
    own = Redactor.of("iban, Card-Number ,,")
    assert own.names == ("iban", "cardnumber")
    assert own.tree({"card_number": "4", "token": "t"}) == {"card_number": "[redacted]", "token": "t"}


@pytest.mark.parametrize("piece", ["a", "token", "token ", "token=", "://:", "://a", "'", "token='", "password:\\t", "Bearer "])
def test_no_text_takes_long(piece: str) -> None:
    """What a task raises is not chosen by whoever reads it."""
    watch = Stopwatch()
    REDACTOR.text(piece * (20_000 // len(piece)))
    assert watch.elapsed_s < 0.5
