"""Prints the lowest versions that pyproject.toml allows of what the package and its tests need."""

import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
of_extras = (extras[name] for name in ("scipy", "test"))
for requirements in (project["dependencies"], *of_extras):
    print(*(requirement.replace(">=", "==") for requirement in requirements), sep="\n")
