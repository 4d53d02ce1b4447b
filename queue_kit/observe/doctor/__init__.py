"""Says how a set-up can lose or double work, one verdict a line; without it each way would be found by losing something."""

from queue_kit.observe.doctor.diagnosis import as_json, as_line, examine, examine_project, exit_status
from queue_kit.observe.doctor.facts import Facts, Finding, Verdict, WorkerFacts

__all__ = ["Facts", "Finding", "Verdict", "WorkerFacts", "as_json", "as_line", "examine", "examine_project", "exit_status"]
