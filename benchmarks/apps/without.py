"""queue_kit with one guarantee cut out of its scripts, before any is sent: BENCH_WITHOUT names it.

The product has no such switches, but what a guarantee costs is only seen without it.
"""

import hashlib
import os
import re

from queue_kit import NonRetryableError, job
from queue_kit.store.script import all_scripts

#: What the scripts' functions do first instead, by their names; `enqueue` names the place behind the arguments of `add`.
CUTS = {
    "": {},
    "events": {"event": "do return end"},
    "history": {
        "remember_run": "do return end",
        "finish": "if state == 'completed' then redis.call('UNLINK', job_key(job.id)) count(job.queue, job.name, state)"
        " release_key(job, now) return end",
    },
    "dead_letters": {"dead_letter": "do return '' end"},
    "dedup": {"release_key": "do return end", "holder": "do return nil end", "take_key": "do return end"},
}


def cut(what: str) -> None:
    """Cut it out of every script. Fails if a function of that name is nowhere: it has been renamed."""
    for function, instead in CUTS[what].items():
        pattern = rf"(local function {function}\([^)]*\))"
        changed = [known for known in all_scripts() if re.search(pattern, known.source)]
        assert changed, f"no script has a function {function}"
        for known in changed:
            source = re.sub(pattern, lambda found, instead=instead: f"{found[1]} {instead}", known.source)
            object.__setattr__(known, "source", source)
            object.__setattr__(known, "sha", hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


cut(os.environ.get("BENCH_WITHOUT", ""))

from benchmarks.apps.kit import app, noop  # noqa: E402, F401 - the scripts first


@job("bench.fails")
def fails(filler: str) -> None:
    """Fail for good."""
    raise NonRetryableError("as asked")
