"""A paper with real questions, for demos and rehearsals; without it nobody could see the hall before the first exam is set."""

from datetime import datetime

from examhall.models import Exam

# Number, text, what can be ticked, right letters, weight.
QUESTIONS = [
    (1, "Which glass keeps colours from fading?", "Float glass\nMuseum glass\nFrosted glass", "b", 4),
    (2, "What may touch a watercolour?", "Acid-free board\nThe glass\nCotton rag", "ac", 4),
    (3, "At which angle are the corners mitred?", "30 degrees\n45 degrees\n60 degrees", "b", 2),
    (4, "Which marks a mount that was botched?", "A bevel\nAn overcut\nA hinge", "b", 3),
    (5, "Which hold a print reversibly?", "Paper hinges\nPhoto corners\nSpray glue", "ab", 6),
    (6, "How long does wood glue stay in the clamp?", "1 minute\n30 minutes\nTwo days", "b", 4),
    (7, "Which hanger carries 20 kg?", "A sawtooth\nTwo D-rings\nA pin", "b", 8),
]

# Half of question 2, a letter too many in question 5, a slip in question 6: 22 of 31 points, a score of 71.
ANSWERS = {"1": "b", "2": "a", "3": "b", "4": "b", "5": "abc", "6": "c", "7": "B"}


def set_paper(slug: str, title: str, bell_at: datetime | None) -> Exam:
    """Make the exam, or set it again: its title, its bell and these questions."""
    exam, _ = Exam.objects.update_or_create(slug=slug, defaults={"title": title, "bell_at": bell_at})
    for number, text, choices, right, weight in QUESTIONS:
        values = {"text": text, "choices": choices, "right": right, "weight": weight}
        exam.questions.update_or_create(number=number, defaults=values)
    return exam
