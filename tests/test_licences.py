"""The list of licences, held against what the installed packages say of themselves; a list by hand would miss what a new version
brings along."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import metadata, requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.processes import ROOT

FAMILIES = ("LGPL", "BSD", "MIT", "Apache", "PSF")


def installed() -> set[str]:
    """All that comes with the project and its site, however far down."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found, left = set[str](), [*project["dependencies"], *project["optional-dependencies"]["site"]]
    while left:
        wanted = Requirement(left.pop())
        name = canonicalize_name(wanted.name)
        asked = any(wanted.marker.evaluate({"extra": extra}) for extra in ("", "binary", "redis")) if wanted.marker else True
        if asked and name not in found:
            found.add(name)
            left += requires(name) or []
    return found


def families(name: str) -> set[str]:
    """What a package says of its licence."""
    told = metadata(name)
    classifiers = [line for line in told.get_all("Classifier") or [] if line.startswith("License")]
    words = " ".join([told.get("License-Expression") or "", told.get("License") or "", *classifiers])
    words = words.replace("Lesser General Public", "LGPL")
    return {family for family in FAMILIES if family in words}


def listed() -> dict[str, set[str]]:
    """What the page says."""
    rows = re.findall(r"^\| (?:\*[a-z ]+:\* )?([a-z][^|]*) \| ([^|]+) \|$", (ROOT / "docs/security.md").read_text(), re.MULTILINE)
    return {
        name: {family for family in FAMILIES if family in licence}
        for names, licence in rows for name in names.split(", ") if licence != "licence"
    }  # fmt: skip


def test_the_page_lists_each_package_with_its_licence() -> None:
    page, names = listed(), installed()
    assert names - page.keys() == set()
    assert {name: (page[name], families(name)) for name in names if not families(name) & page[name]} == {}


def test_every_version_is_pinned() -> None:
    pins = {canonicalize_name(line.split("==")[0]) for line in (ROOT / ".constraints.txt").read_text().split() if "==" in line}
    assert installed() - pins == set()
