"""The version has one place, `daskgrad.__version__`, and whatever else tells it agrees."""

import re
from pathlib import Path

import yaml

import daskgrad as dg

ROOT = Path(__file__).parent.parent
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text())
RELEASES = re.findall(r"^## (\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_the_newest_entry_of_the_changelog_and_the_citation_are_of_this_version():
    newest, date = RELEASES[0]
    assert newest == CITATION["version"] == dg.__version__
    assert date == CITATION["date-released"].isoformat()
