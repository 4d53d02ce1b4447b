"""`celery -A ... queue-doctor`, for projects without Django; Celery finds it by its entry point."""

from __future__ import annotations

import click
from celery.bin.base import CeleryCommand, handle_preload_options

from queue_kit.errors import ConfigurationError
from queue_kit.observe.doctor import as_json, as_line, exit_status
from queue_kit.worker.operating.doctor import KEYS, examine_app


@click.command("queue-doctor", cls=CeleryCommand)
@click.option("--json", "-j", "as_document", is_flag=True, help="Print one JSON document.")
@click.option("--keys", default=KEYS, show_default=True, type=click.IntRange(0), help="Keys to look at for forgotten ones.")
@click.pass_context
@handle_preload_options
def queue_doctor(ctx: click.Context, as_document: bool, keys: int) -> None:
    """Say how this set-up can lose or double work. Exit status: 0 all is well; 1 something to look at; 2 work is lost,
    doubled or stuck."""
    ctx.obj.app.loader.import_default_modules()  # its tasks are part of what is examined
    try:
        findings = examine_app(ctx.obj.app, keys=keys)
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from error
    for line in [as_json(findings)] if as_document else map(as_line, findings):
        click.echo(line)
    ctx.exit(exit_status(findings))
