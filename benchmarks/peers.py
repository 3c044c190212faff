"""Beside other libraries: value and gradient of five works, in processor time of all processes.

``python benchmarks/peers.py [W1 ...] [--peers stan jax ...]``. Each folder of ``benchmarks/peers/``
is a peer: programs as its own users write them, and their requirements, which go into an
environment of its own, ``.venv-peers/``. W1 is a logistic regression as a vectorised partial sum,
W2 ragged groups with parameters of their own, W3 ordinary differential equations, W4 a graph of
larger models, W5 data that stay on two workers. Each run has the sixth, W6: time and memory of the
first call. The programs of a work take turns, and the others are stopped meanwhile; values and
gradients agree to 1e-10. The tables go into ``docs/comparison.md``; claims are ratios to peers.
"""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from hosts import BLAS_THREADS, SETTLE
from peer_tables import claims_of, table_of, versions, wanted_table, written
from report import judged, machine, options

PEERS, ROOT = Path(__file__).with_suffix(""), Path(__file__).parents[1]
COMMON, PAGE, ENVIRONMENTS = PEERS / "common", ROOT / "docs/comparison.md", ROOT / ".venv-peers"
WORKS = ("W1", "W2", "W3", "W4", "W5")
LIMIT = 600.0  # seconds for an answer
BLOCK = 0.15  # seconds of processor for which a program runs in a round
WARM, WARM_SECONDS = 8, 15.0  # requests before the first round, and when they end early
AGREE = 1e-10


class FailedPeer(Exception):
    """A peer that cannot be installed, or a program that gives no answer."""


def environment(folder: Path) -> Path:
    """The Python of a peer's environment, which is made if it is not there."""
    place = ENVIRONMENTS / folder.name
    pip, installed = [place / "bin/pip"], place / "installed"
    if not installed.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        install = [*pip, "install", "-q", "--no-compile", "-r", folder / "requirements.txt"]
        ran = subprocess.run(install, cwd=ROOT, capture_output=True, text=True)
        if ran.returncode:
            raise FailedPeer(f"cannot be installed: {last_line(ran.stderr)}")
        listed = subprocess.run([*pip, "list", "--format", "freeze"], stdout=-1, check=True)
        installed.write_bytes(listed.stdout)
    return place / "bin/python"


def last_line(text: str) -> str:
    return text.strip().split("\n")[-1] or "it said nothing"


class Program:
    """A program of a peer in a process group of its own, which is stopped until it is asked."""

    def __init__(self, path: Path, python: Path, is_quick: bool):
        self.path, self._log = path, tempfile.TemporaryFile("w+")
        plain = {**dict.fromkeys(BLAS_THREADS, "1"), "PYTHONPATH": f"{COMMON}:{path.parent}"}
        plain["DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL"] = "null"  # no heartbeats while stopped
        self._process = subprocess.Popen(
            [python, COMMON / "serving.py", path, *["--quick"] * is_quick],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **plain},
            text=True,
            process_group=0,
        )

    def start(self) -> None:
        """Waits until it is ready."""
        self.ready = self._answer()
        self.ready["processor"] += self._of_children()
        self._signal(signal.SIGSTOP)

    def ask(self, name: str, calls: int) -> dict[str, Any]:
        """Evaluates at so many points; with 0, at the one where results are compared."""
        self._signal(signal.SIGCONT)
        time.sleep(SETTLE)
        before = self._of_children()
        with contextlib.suppress(BrokenPipeError):  # then there is no answer
            self._process.stdin.write(json.dumps([name, calls]) + "\n")
            self._process.stdin.flush()
        answer = self._answer()
        answer["processor"] += self._of_children() - before
        self._signal(signal.SIGSTOP)
        return answer

    def _answer(self) -> dict[str, Any]:
        timer = threading.Timer(LIMIT, self._signal, [signal.SIGKILL])
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if not line:
            self._log.seek(0)
            raise FailedPeer(f"gives no answer: {last_line(self._log.read())}")
        return json.loads(line)

    def _processes(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            own = psutil.Process(self._process.pid)
            return [own, *own.children(recursive=True)]
        return []

    def _of_children(self) -> float:
        return sum(sum(each.cpu_times()[:2]) for each in self._processes()[1:])

    def peak(self) -> float:
        """The most MB of all processes, or of one that has ended."""
        states = [Path(f"/proc/{each.pid}/status").read_text() for each in self._processes()]
        most = sum(int(re.search(r"VmHWM:\s*(\d+)", state)[1]) for state in states) / 1024
        return max(most, self.ready["peak of ended"])

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # all have ended
            os.killpg(self._process.pid, number)

    def end(self) -> None:
        self._signal(signal.SIGCONT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=20.0)
        self._signal(signal.SIGKILL)
        self._process.communicate()
        self._log.close()


def lines_of(path: Path) -> int:
    """Lines of code of a program, with the Stan models and what it imports from beside it."""
    names = re.findall(r"^from (by_hand|w\d) import", path.read_text(), re.MULTILINE)
    beside = [folder / f"{name}.py" for name in names for folder in (COMMON, path.parent)]
    used = [path, *filter(Path.exists, beside), *path.parent.glob(f"{path.stem}*.stan")]
    lines = [line.strip() for each in used for line in each.read_text().split("\n")]
    return sum(bool(line) and not line.startswith(("#", '"""')) for line in lines)


def warmed(program: Program, name: str, is_quick: bool) -> dict[str, Any]:
    """The row of a function: its first call, and how often it is called in a round."""
    first = program.ask(name, 0)
    least, end = first["processor"], time.monotonic() + WARM_SECONDS
    block, requests = (BLOCK / 100, 2) if is_quick else (BLOCK, WARM)
    for _ in range(requests):
        if time.monotonic() < end:
            calls = 1 + int(block / (least + 1e-5))
            least = min(least, program.ask(name, calls)["processor"] / calls)
    row = {"value": first["value"], "gradient": first["gradient"], "first": first["processor"]}
    row |= {"ready": program.ready["processor"], "lines": lines_of(program.path), "used": []}
    return row | {"seconds": [], "calls": 1 + int(block / (least + 1e-5))}


def measure(work: str, folders: Sequence[Path], rounds: int, is_quick: bool) -> dict[str, Any]:
    """The rows of a work by label, each with its figures, or with what failed."""
    rows, running = {}, {}
    with contextlib.ExitStack() as stack:
        for path in [path for each in folders for path in sorted(each.glob(f"{work.lower()}*.py"))]:
            folder, label = path.parent, f"{path.parent.name}: {path.stem}"
            try:
                python = Path(sys.executable) if is_quick else environment(folder)
                program = Program(path, python, is_quick)
                stack.callback(program.end)
                program.start()
                for name in program.ready["names"]:
                    label = f"{folder.name}: {name}"
                    rows[label] = warmed(program, name, is_quick)
                    running[label] = program, name
                    print(f"{work}, {label}: {1e3 * rows[label]['first']:.3g} ms", flush=True)
            except FailedPeer as error:
                rows[label] = {"failed": str(error)}
        load = [os.getloadavg()[0]]
        for number in range(rounds):
            for label in random.Random(number).sample(list(running), len(running)):
                (program, name), row = running[label], rows[label]
                try:
                    answer = program.ask(name, row["calls"])
                except FailedPeer as error:
                    rows[label] = {"failed": str(error)}
                    del running[label]
                    continue
                row["used"].append(answer["processor"] / row["calls"])
                row["seconds"].append(answer["seconds"] / row["calls"])
        for label, (program, _) in running.items():
            rows[label]["peak"] = program.peak()
        load.append(os.getloadavg()[0])
    compare(rows)
    return {"rows": rows, "load": load, "rounds": rounds, "machine": machine()}


def compare(rows: dict[str, Any]) -> None:
    """With the first row; one that differs has failed."""
    ran = [label for label, row in rows.items() if "failed" not in row]
    gradients = {label: np.array(rows[label].pop("gradient")) for label in ran}
    first = gradients[ran[0]]
    for label in ran:
        error = np.abs(gradients[label] - first).max() / np.abs(first).max()
        error = max(error, abs(rows[label]["value"] / rows[ran[0]]["value"] - 1))
        if not error <= AGREE:
            rows[label] = {"failed": f"differs from {ran[0]} by {error:.1e}"}


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("works", nargs="*", default=WORKS, help="some of " + ", ".join(WORKS))
    parser.add_argument("--peers", nargs="*", help="folders beside daskgrad's; none if quick")
    given = parser.parse_args()
    every = [] if given.quick else [each.parent.name for each in PEERS.glob("*/requirements.txt")]
    names = {"daskgrad", *(every if given.peers is None else given.peers)}
    folders = [PEERS / name for name in ("daskgrad", *sorted(names - {"daskgrad"}))]
    rounds, path, found = given.rounds or (1 if given.quick else 5), given.results, {}
    path.mkdir(parents=True, exist_ok=True)
    if not given.quick:
        found = {
            each.stem[-2:]: json.loads(each.read_text()) for each in path.glob("peers-W?.json")
        }
    for work in given.works:
        found[work] = measure(work, folders, rounds, given.quick)
        print(f"\n{table_of(work, found[work])}\n")
        if not given.quick:
            (path / f"peers-{work}.json").write_text(json.dumps(found[work], indent=1) + "\n")
    if not given.quick:
        tables = {work: table_of(work, found[work]) for work in sorted(found)}
        tables |= {"wanted": wanted_table(found)}
        tables["versions"] = versions(ENVIRONMENTS.glob("*/installed"))
        PAGE.write_text(written(PAGE.read_text(), tables))
    return judged(claims_of(found), given.quick)


if __name__ == "__main__":
    sys.exit(main())
