"""Settings: where they come from, what is refused, and in which words."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from queue_kit.errors import ConfigurationError
from queue_kit.settings import Settings, load

SECRET = "redis://:hunter2@example"


def problems(options: dict[Any, Any] | None = None, environ: dict[str, str] | None = None) -> list[str]:
    """What is wrong with these settings, one line a fault."""
    with pytest.raises(ConfigurationError) as caught:
        load(options, environ or {})
    return caught.value.problems


def test_without_any_setting_the_defaults_of_the_contract_hold() -> None:
    """SPEC 14."""
    assert load({}, {}) == Settings(
        queue_prefix="qwk", job_attempts=5, job_backoff_delay_ms=2_000, job_timeout_ms=30_000,
        worker_lock_duration_ms=30_000, worker_stalled_interval_ms=5_000, worker_max_stalled_count=1,
        job_remove_on_complete_count=1_000, job_remove_on_fail_count=5_000, dead_letter_max_entries=5_000,
    )  # fmt: skip


def test_the_process_environment_is_read_when_none_is_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_ATTEMPTS", "7")
    assert load().job_attempts == 7


def test_options_win_over_the_environment_and_the_environment_over_the_default() -> None:
    environ = {"JOB_ATTEMPTS": "7", "JOB_TIMEOUT_MS": "9000"}
    settings = load({"JOB_ATTEMPTS": 3}, environ)
    assert (settings.job_attempts, settings.job_timeout_ms, settings.queue_prefix) == (3, 9_000, "qwk")


@pytest.mark.parametrize("name", ["JOB_ATTEMPTS", "job_attempts"])
def test_an_option_may_be_written_in_either_case(name: str) -> None:
    assert load({name: 3}, {}).job_attempts == 3


def test_an_option_of_none_is_not_given() -> None:
    assert load({"JOB_ATTEMPTS": None}, {}).job_attempts == 5


def test_settings_cannot_be_changed_afterwards() -> None:
    with pytest.raises(FrozenInstanceError):
        load({}, {}).job_attempts = 3  # type: ignore[misc]


@pytest.mark.parametrize("raw", [250, "250", "0250"])
def test_numbers_may_be_text_as_in_an_environment(raw: Any) -> None:
    assert load({"WORKER_STALLED_INTERVAL_MS": raw}, {}).worker_stalled_interval_ms == 250


@pytest.mark.parametrize(
    "raw", ["", " 250", "250ms", "2.5", 2.5, "1e3", True, [], "9" * 30, -1, "-1", 10**9, float("nan")]
)
def test_what_is_no_number_in_range_is_refused_with_the_range(raw: Any) -> None:
    assert problems({"WORKER_STALLED_INTERVAL_MS": raw}) == [
        "WORKER_STALLED_INTERVAL_MS: a whole number from 50 to 600000 is needed"
    ]


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (True, True),
        ("true", True),
        ("True", True),
        ("1", True),
        (False, False),
        ("false", False),
        ("0", False),
        ("", False),
    ],
)
def test_switches(raw: Any, value: bool) -> None:
    assert load({"PRODUCTION": raw}, {}).production is value


@pytest.mark.parametrize("raw", ["yes", "2", 1, []])
def test_what_is_no_switch_is_refused(raw: Any) -> None:
    assert problems({"PRODUCTION": raw}) == ["PRODUCTION: true or false is needed"]


@pytest.mark.parametrize("raw", ["", "a b", "x" * 65, "{qwk}", 5, "qwk\n"])
def test_a_prefix_that_would_make_odd_keys_is_refused(raw: Any) -> None:
    assert problems({"QUEUE_PREFIX": raw}) == ["QUEUE_PREFIX: a text that fits [A-Za-z0-9_.:-]{1,64} is needed"]


def test_a_wrong_name_is_met_with_the_one_that_was_meant() -> None:
    assert problems({"WORKER_LOCK_DURATON_MS": 1}) == ["WORKER_LOCK_DURATON_MS: did you mean WORKER_LOCK_DURATION_MS?"]
    assert problems({"job_atempts": 1}) == ["job_atempts: did you mean JOB_ATTEMPTS?"]


def test_a_name_that_resembles_nothing_is_called_unknown() -> None:
    assert problems({"ZZZ": 1, 5: 1}) == [
        "ZZZ: it is not a setting of queue_kit",
        "5: it is not a setting of queue_kit",
    ]


def test_an_environment_is_full_of_names_that_are_not_ours() -> None:
    assert load({}, {"PATH": "/bin", "ZZZ": "1"}) == Settings()


def test_every_fault_is_named_at_once() -> None:
    """Bad input: one error at start, so that a deployment is fixed in one go."""
    found = problems(
        {"WORKER_LOCK_DURATON_MS": 1, "QUEUE_PREFIX": "a b"}, {"JOB_ATTEMPTS": "0", "JOB_TIMEOUT_MS": "soon"}
    )
    assert [line.partition(":")[0] for line in found] == [
        "WORKER_LOCK_DURATON_MS", "QUEUE_PREFIX", "JOB_ATTEMPTS", "JOB_TIMEOUT_MS",
    ]  # fmt: skip


def test_a_value_is_never_echoed() -> None:
    """One may hold a password."""
    faults = {item.name.upper(): SECRET for item in fields(Settings)}
    with pytest.raises(ConfigurationError) as caught:
        load(faults, {})
    assert len(caught.value.problems) == len(fields(Settings))
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(caught.value)


def test_settings_that_contradict_each_other_are_refused() -> None:
    assert problems({"WORKER_LOCK_DURATION_MS": 500, "REDIS_TIMEOUT_MS": 600}) == [
        "REDIS_TIMEOUT_MS: at most WORKER_LOCK_DURATION_MS, or one slow call costs the lease"
    ]
    assert load({"WORKER_LOCK_DURATION_MS": 600, "REDIS_TIMEOUT_MS": 600}, {}).redis_timeout_ms == 600


def test_death_is_inferred_from_a_silence_that_is_one_and_ends_before_the_lease() -> None:
    for silence_ms in (0, 1_000, 30_000):
        assert load({"WORKER_INFERRED_DEATH_MS": silence_ms}, {}).worker_inferred_death_ms == silence_ms
    for silence_ms in (999, 30_001):
        assert problems({"WORKER_INFERRED_DEATH_MS": silence_ms}) == [
            "WORKER_INFERRED_DEATH_MS: 0, or from 1000 to WORKER_LOCK_DURATION_MS"
        ]


def test_a_contradiction_with_a_default_counts() -> None:
    assert len(problems({"REDIS_TIMEOUT_MS": 31_000})) == 1


def test_a_contradiction_is_named_beside_other_faults() -> None:
    assert len(problems({"WORKER_LOCK_DURATION_MS": 500, "JOB_ATTEMPTS": 0})) == 2


def test_a_setting_that_is_wrong_by_itself_contradicts_no_other() -> None:
    """Its default stands in for it, which the user never chose."""
    found = problems({"WORKER_LOCK_DURATION_MS": "long", "REDIS_TIMEOUT_MS": 31_000})
    assert [line.partition(":")[0] for line in found] == ["WORKER_LOCK_DURATION_MS"]


def test_every_setting_has_a_sentence_and_a_default_within_its_bounds() -> None:
    for item in fields(Settings):
        assert item.metadata["sentence"].endswith("."), item.name
        assert load({item.name: item.default}, {}) == Settings(), item.name
