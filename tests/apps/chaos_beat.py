"""A beat that writes down each look at its schedules that has come to its end.

Without it a fire time that was missed could not be told from one at which no beat could have looked.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from queue_kit.worker.sending.beat import Scheduler


class Told(Scheduler):
    """Celery's beat takes it by its path."""

    def _look(self) -> float:
        begin_ms = int(time.time() * 1000)
        wait_s = super()._look()
        line = json.dumps({"name": os.environ["CHAOS_NAME"], "begin_ms": begin_ms, "end_ms": int(time.time() * 1000)})
        with (Path(os.environ["CHAOS_FOLDER"]) / "looks").open("a") as looks:
            looks.write(line + "\n")
        return wait_s
