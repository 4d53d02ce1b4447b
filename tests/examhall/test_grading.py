"""The marking rule, by example and by property."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examhall.grading import Question, credit, grade, letters

LETTERS = st.text("abcd", max_size=4)
QUESTIONS = st.lists(
    st.builds(lambda right, weight: (right, weight), st.text("abcd", min_size=1, max_size=4), st.integers(1, 9)),
    min_size=1,
)


def paper(rows: list[tuple[str, int]]) -> list[Question]:
    return [Question(number, letters(right), weight) for number, (right, weight) in enumerate(rows, 1)]


@pytest.mark.parametrize(
    ("right", "answer", "share"),
    [
        ("b", "b", Fraction(1)),
        ("b", " B. ", Fraction(1)),
        ("b", "a", Fraction(0)),
        ("b", "", Fraction(0)),
        ("ac", "a", Fraction(1, 2)),
        ("ac", "c, a", Fraction(1)),
        ("ac", "abc", Fraction(1, 2)),
        ("ac", "bd", Fraction(0)),
    ],
)
def test_a_wrong_letter_takes_back_a_right_one_and_never_more(right: str, answer: str, share: Fraction) -> None:
    assert credit(Question(1, letters(right), 1), answer) == share


def test_a_score_is_the_weighted_share_of_the_points() -> None:
    assert grade(paper([("a", 3), ("b", 1)]), {1: "a", 2: "c"}) == 75


def test_a_half_point_is_rounded_up() -> None:
    assert grade(paper([("a", 1), ("b", 199)]), {1: "a"}) == 1


def test_an_unanswered_paper_scores_nothing() -> None:
    assert grade(paper([("a", 3), ("b", 1)]), {}) == 0


@given(QUESTIONS)
def test_the_answer_key_itself_scores_100(rows: list[tuple[str, int]]) -> None:
    assert grade(paper(rows), {number: right for number, (right, _) in enumerate(rows, 1)}) == 100


@given(QUESTIONS, st.dictionaries(st.integers(1, 20), LETTERS))
def test_no_answer_sheet_leaves_the_range(rows: list[tuple[str, int]], answers: dict[int, str]) -> None:
    assert 0 <= grade(paper(rows), answers) <= 100


def test_an_exam_without_questions_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="questions must hold at least one"):
        grade([], {})


@pytest.mark.parametrize(("right", "weight", "field"), [("", 1, "right"), ("a", 0, "weight")])
def test_a_question_that_cannot_be_marked_is_refused_by_field(right: str, weight: int, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        Question(1, letters(right), weight)
