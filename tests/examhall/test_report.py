"""The report of an exam: the same file from every run, never half of one, and a word now and then of how far it is."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from examhall.models import Attempt
from examhall.report import GenerateReport, generate_report, plain, watched, write_whole
from queue_kit import InvalidPayload, JobCancelled, ResourceGone

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def folder(settings: Any, tmp_path: Path) -> Path:
    """Where reports go in this test: a folder that nobody has made yet."""
    settings.EXAMHALL_REPORTS_DIR = str(tmp_path / "reports")
    return tmp_path / "reports"


def run(exam: str) -> str:
    return str(generate_report.apply(kwargs={"exam": exam}, throw=True).get())


def lines(folder: Path, name: str) -> list[list[str]]:
    with (folder / name).open(newline="") as file:
        return list(csv.reader(file))


def test_a_report_has_a_line_for_each_attempt(folder: Path, attempt: Attempt) -> None:
    attempt.store_score(71)
    name = run(attempt.exam.slug)
    assert name == f"{attempt.exam.slug}.csv"
    head, *rest = lines(folder, name)
    assert head == ["attempt", "candidate", "status", "score", "handed in"]
    assert ["a-5521", attempt.candidate, "graded", "71", ""] in rest
    assert len(rest) == attempt.exam.attempts.count()


def test_a_second_run_writes_the_same_file(folder: Path, attempt: Attempt) -> None:
    """SPEC 6: a naturally idempotent write."""
    names = [run(attempt.exam.slug) for _ in range(2)]
    first = (folder / names[0]).read_bytes()
    assert names[0] == names[1]
    run(attempt.exam.slug)
    assert (folder / names[0]).read_bytes() == first
    assert [path.name for path in folder.iterdir()] == [names[0]]


def test_a_run_that_fails_half_way_leaves_the_old_report(folder: Path, attempt: Attempt) -> None:
    name = run(attempt.exam.slug)
    before = (folder / name).read_bytes()

    def broken() -> Any:
        yield ("half",)
        raise OSError("the database is gone")

    with pytest.raises(OSError, match="the database is gone"):
        write_whole(folder / name, broken())
    assert (folder / name).read_bytes() == before
    assert [path.name for path in folder.iterdir()] == [name]


class Watched:
    """What a report asks of its run, and says to it."""

    def __init__(self, stop_at: int = 10_000) -> None:
        self.said: list[int] = []
        self._stop_at = stop_at

    def progress(self, value: dict[str, int]) -> None:
        self.said.append(value["done"])

    def raise_if_cancelled(self) -> None:
        if self.said and self.said[-1] >= self._stop_at:
            raise JobCancelled


def test_it_says_how_far_it_is_and_stops_when_it_should() -> None:
    patient, stopped = Watched(), Watched(stop_at=100)
    lines = [("a",)] * 250
    assert list(watched(lines, 250, patient)) == lines
    assert patient.said == [0, 100, 200, 250]
    with pytest.raises(JobCancelled):
        list(watched(lines, 250, stopped))
    assert stopped.said == [0, 100]


def test_an_exam_that_is_gone_is_not_tried_again(folder: Path) -> None:
    with pytest.raises(ResourceGone, match="there is no exam nothing"):
        run("nothing")


@pytest.mark.parametrize("exam", ["", "../../etc/passwd", "a b", "x" * 51])
def test_a_name_that_could_leave_the_folder_is_refused(exam: str) -> None:
    with pytest.raises(InvalidPayload, match="exam"):
        generate_report.declared.dump({"exam": exam})


def test_what_a_candidate_calls_himself_is_no_formula() -> None:
    assert [plain(text) for text in ("=1+1", "@x", "Ada", "")] == ["'=1+1", "'@x", "Ada", ""]


def test_a_model_names_the_exam() -> None:
    assert GenerateReport(exam="glass-1").exam == "glass-1"
