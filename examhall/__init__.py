"""ExamHall: attempts at exams, and how each gets its score. It knows the queue kit's front door and no other app."""
