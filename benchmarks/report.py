"""What a benchmark tells: the machine, tables, a JSON file, a plot, whether its claims hold."""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import dask
import distributed  # noqa: F401  its defaults become part of Dask's configuration

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("numpy", "dask", "distributed", "autograd", "joblib", "bokeh", "daskgrad")


class Claim(NamedTuple):
    text: str
    found: float
    holds: bool


def at_least(text: str, found: float, limit: float) -> Claim:
    return Claim(f"{text}: at least {limit:g}", found, found >= limit)


def at_most(text: str, found: float, limit: float) -> Claim:
    return Claim(f"{text}: at most {limit:g}", found, found <= limit)


def options(doc: str) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small and few; claims do not count")
    parser.add_argument("--rounds", type=int, help="how often each peer is measured")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON and HTML")
    return parser


def machine() -> dict[str, Any]:
    """What the times depend on besides the code."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        **{package: importlib.metadata.version(package) for package in PACKAGES},
        "BLAS threads": 1,
        "malloc": {
            "library": " ".join(platform.libc_ver()),
            "hosts": "the library's defaults",
            "workers as Dask's nanny starts them": malloc_settings(),
            "daskgrad.worker.malloc": dask.config.get("daskgrad.worker.malloc", True),
        },
    }


def cpu_model() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))


def malloc_settings() -> dict[str, Any]:
    environment = {
        **dask.config.get("distributed.nanny.pre-spawn-environ"),
        **dask.config.get("distributed.nanny.environ"),
    }
    return {name: value for name, value in environment.items() if name.startswith("MALLOC_")}


def table(header: Sequence[str], rows: Iterable[Sequence[str]], markdown: bool = False) -> str:
    """Rows of text under a header, the first column to the left and the others to the right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if markdown:
        lines.insert(1, ["-" * widths[0], *["-" * (width - 1) + ":" for width in widths[1:]]])
    text = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in lines]
    if markdown:
        return "\n".join(f"| {' | '.join(row)} |" for row in text)
    return "\n".join("  ".join(row) for row in text)


def ratio(times: Sequence[float], others: Sequence[float]) -> float:
    """The median over the rounds of one peer's time over another's."""
    return statistics.median(a / b for a, b in zip(times, others, strict=True))


def finish(
    name: str,
    arguments: argparse.Namespace,
    found: dict[str, Any],
    claims: Sequence[Claim],
    draw: Callable[[str], Any],
) -> int:
    """Writes the files, prints the claims, and returns the exit code.

    ``draw`` is given a line that states the machine, and returns what Bokeh shows.
    """
    stated = machine()
    settings = {"quick": arguments.quick, "rounds": arguments.rounds}
    content = {
        "benchmark": name,
        "machine": stated,
        "settings": settings,
        **found,
        "claims": [claim._asdict() for claim in claims],
    }
    arguments.results.mkdir(parents=True, exist_ok=True)
    path = arguments.results / f"{name}.json"
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    write_plot(path.with_suffix(".html"), name, draw(one_line(stated, settings)))
    print(f"\n{one_line(stated, settings)}\nwritten: {path} and .html")
    return judged(claims, arguments.quick)


def one_line(stated: dict[str, Any], settings: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {stated[name]}" for name in ("python", *PACKAGES[:4], "daskgrad"))
    kind = "a quick run" if settings["quick"] else f"medians of {settings['rounds']} rounds"
    return f"{stated['cpu']}, {stated['cores']} cores; {versions}; {kind}"


def write_plot(path: Path, title: str, layout: Any) -> None:
    from bokeh.embed import file_html  # here: processes that a benchmark starts do not need Bokeh
    from bokeh.resources import INLINE

    path.write_text(file_html(layout, INLINE, title.replace("_", " ")))


def judged(claims: Sequence[Claim], quick: bool) -> int:
    """Prints the claims; 1 where one does not hold, unless the run was a quick one."""
    verdicts = {True: "holds", False: "too short to tell" if quick else "DOES NOT HOLD"}
    rows = [(claim.text, f"{claim.found:.3g}", verdicts[claim.holds]) for claim in claims]
    print("\n" + table(("claim", "found", ""), rows))
    return 0 if quick else int(not all(claim.holds for claim in claims))
