"""The packages: ``daskgrad/``, and ``dashboards/``, which becomes ``daskgrad.dashboards``."""

from setuptools import find_packages, setup

PAGES = [f"daskgrad.{name}" for name in find_packages(include=["dashboards*"])]

setup(
    packages=[*find_packages(include=["daskgrad*"]), *PAGES],
    package_dir={"daskgrad": "daskgrad", "daskgrad.dashboards": "dashboards"},
)
