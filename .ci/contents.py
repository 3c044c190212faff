"""Checks that the wheel and the source distribution in a folder have what git has, and no more."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

MADE = {"PKG-INFO", "setup.cfg"}  # by setuptools, beside the folders of metadata
BUILD = {"LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"}


def tracked(folder):
    listed = subprocess.run(["git", "ls-files", folder], capture_output=True, text=True, check=True)
    return set(listed.stdout.split())


def in_wheel(path):
    """Its files, without the metadata."""
    with zipfile.ZipFile(path) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def in_sdist(path):
    """Its files, below its one folder, without the metadata."""
    with tarfile.open(path) as archive:
        names = {each.name.split("/", 1)[1] for each in archive.getmembers() if each.isfile()}
    return {name for name in names if not name.startswith("daskgrad.egg-info/")} - MADE


def main(folder):
    package, dashboards = tracked("daskgrad"), tracked("dashboards")
    (wheel,), (sdist,) = Path(folder).glob("*.whl"), Path(folder).glob("*.tar.gz")
    installed = package | {f"daskgrad/{name}" for name in dashboards}
    for path, found, expected in (
        (wheel, in_wheel(wheel), installed),
        (sdist, in_sdist(sdist), package | dashboards | BUILD),
    ):
        missing, more = sorted(expected - found), sorted(found - expected)
        if missing or more or len(expected) < 100:
            sys.exit(f"{path.name} of {len(expected)} files: missing {missing}; too many {more}")


if __name__ == "__main__":
    main(sys.argv[1])
