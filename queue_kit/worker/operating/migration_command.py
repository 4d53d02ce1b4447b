"""`celery -A ... queue-migrate`, for projects without Django, and what it shares with Django's command: what it says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click
from celery.bin.base import CeleryCommand, handle_preload_options
from redis.exceptions import RedisError

from queue_kit.errors import ConfigurationError
from queue_kit.worker.apps import app_with_queue_kit
from queue_kit.worker.operating.migration import DONE, WOULD, Migration, Moved


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be moved. No ``queues``: all; ``held_for_s``: of what stock workers hold, what they have held for longer."""

    queues: Sequence[str] = ()
    back: bool = False
    dry_run: bool = False
    held_for_s: float | None = None


def migrate(app: Any, wish: Wish, counting: Callable[[int], Any]) -> tuple[list[str], bool]:
    """Move what is wished for; return what is to be said of it, and whether some stay.

    :param counting: given how many there are, makes a context in which each that is looked at is counted by ``advance``.
    """
    app = app_with_queue_kit(app)
    with app.connection_for_write().open_client(app.queue_kit.settings.redis_timeout_ms) as client:
        migration = Migration(app, client)
        queues, counts = wish.queues or migration.queues(), Counter[tuple[str, str]]()
        with counting(migration.waiting(queues, wish.back)) as progress:
            for moved in migration.move(queues, back=wish.back, dry_run=wish.dry_run, held_for_s=wish.held_for_s):
                counts[moved.queue, _word(moved, wish.back)] += 1
                progress.advance()
        staying = migration.staying(queues, wish.back)
    lines = [f"{queue}: {number} {word}" for (queue, word), number in sorted(counts.items())]
    end = f"{sum(counts.values())} looked at" + (f"; {staying}" if staying else "")
    return [*lines, end], any(word.startswith("stay") for _, word in counts)


def _word(moved: Moved, back: bool) -> str:
    if moved.outcome == WOULD:
        return "would be moved"
    if moved.outcome == "duplicated":
        return "taken away, their jobs are here already"
    if moved.outcome in DONE:
        return "moved" if back else f"moved, now {moved.outcome}"
    return f"stay: {moved.outcome}"


class _Silent:
    """Counts for nobody."""

    def __init__(self, total: int) -> None:
        self.total = total

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was opened."""

    def advance(self) -> None:
        """One more is done."""


@click.command("queue-migrate", cls=CeleryCommand)
@click.option("--queue", "queues", multiple=True, help="This queue alone; may be given more than once.")
@click.option("--back", is_flag=True, help="To stock Celery; what runs, and dead letters, stay.")
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be moved.")
@click.option("--held-for", type=float, metavar="SECONDS", help="Take what stock workers have held for so long.")
@click.pass_context
@handle_preload_options
def queue_migrate(ctx: click.Context, queues: tuple[str, ...], back: bool, dry_run: bool, held_for: float | None) -> None:
    """Make jobs of what stock Celery has waiting in the same Redis, or the other way round. May be ended and run again at any
    time. Exit status: 0 done; 1 some stay."""
    try:
        lines, some_stay = migrate(ctx.obj.app, Wish(queues, back, dry_run, held_for), _Silent)
    except (ConfigurationError, RedisError, OSError) as error:
        raise click.ClickException(str(error)) from error
    for line in lines:
        click.echo(line)
    ctx.exit(1 if some_stay else 0)
