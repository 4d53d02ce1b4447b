"""How an answer sheet becomes a score out of 100.

Kept free of Django, HTTP and the queue: if the web request and the worker could mark differently, a retry could change a score.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

LONGEST_ANSWER, LONGEST_NUMBER = 20, 5


@dataclass(frozen=True)
class Question:
    """One question of the answer key: its number, the letters that are right, and what it weighs."""

    number: int
    right: frozenset[str]
    weight: int

    def __post_init__(self) -> None:
        if not self.right:
            raise ValueError(f"question {self.number}: right must name at least one letter")
        if self.weight < 1:
            raise ValueError(f"question {self.number}: weight must be 1 or more, not {self.weight}")


def letters(text: str) -> frozenset[str]:
    """Return the letters of an answer such as "A, c", whatever their case and the marks between them."""
    return frozenset(mark for mark in text.lower() if mark.isalnum())


def is_sheet(answers: object) -> bool:
    """Say whether this maps question numbers to letters, in characters that every database takes."""
    return isinstance(answers, dict) and all(is_answer(number, given) for number, given in answers.items())


def is_answer(number: object, given: object) -> bool:
    is_number = isinstance(number, str) and number.isascii() and number.isdecimal() and len(number) <= LONGEST_NUMBER
    return is_number and isinstance(given, str) and len(given) <= LONGEST_ANSWER and given.isprintable()


def credit(question: Question, answer: str) -> Fraction:
    """Return the share of a question that an answer earns, 0 to 1: a wrong letter takes back a right one, never more."""
    given = letters(answer)
    hits, misses = len(given & question.right), len(given - question.right)
    return Fraction(max(0, hits - misses), len(question.right))


def grade(questions: Iterable[Question], answers: Mapping[int, str]) -> int:
    """Return the weighted score, 0 to 100, a half rounded up; raises ValueError for an exam without questions."""
    key = list(questions)
    if not key:
        raise ValueError("questions must hold at least one question")
    earned = sum(question.weight * credit(question, answers.get(question.number, "")) for question in key)
    return int(Fraction(100) * earned / sum(question.weight for question in key) + Fraction(1, 2))
