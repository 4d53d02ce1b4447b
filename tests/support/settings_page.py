"""Writes docs/settings.md from the settings themselves: `python -m tests.support.settings_page`.

Written by hand it would name settings that are gone and miss those that came.
"""

from __future__ import annotations

from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from queue_kit.settings import Settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"

_HEAD = """# Settings

Each is optional. The call wins over the task, the task over the options of `install(app, {...})` (in Django: `QUEUE_KIT`), these
over an environment variable of the same name, that over the default. They are read when the app is made; a value that does not
fit is refused then, by name and without being echoed, and so is an option that no setting has.

`_MS` is milliseconds, `_S` seconds. The connection is Celery's own `broker_url`, and the number of jobs at once its `-c`.

This page is made from the code: `python -m tests.support.settings_page`.

| setting | default | may be | what it does |
|---|---|---|---|
"""


def page() -> str:
    """The page as it should be."""
    return _HEAD + "".join(_row(setting) for setting in fields(Settings))


def _row(setting: Field[Any]) -> str:
    default = f"`{str(setting.default).lower() if isinstance(setting.default, bool) else setting.default}`"
    cells = f"`{setting.name.upper()}`", default if default != "``" else "none", _range(setting), setting.metadata["sentence"]
    return f"| {' | '.join(cells)} |\n"


def _range(setting: Field[Any]) -> str:
    if "least" in setting.metadata:
        return f"{setting.metadata['least']:,} to {setting.metadata['most']:,}"
    if "pattern" in setting.metadata:
        return "`" + setting.metadata["pattern"].replace("|", "\\|") + "`"
    return "true, false"


if __name__ == "__main__":
    PAGE.write_text(page())
