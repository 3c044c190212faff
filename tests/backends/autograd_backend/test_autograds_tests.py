"""autograd's own tests, taken from its source distribution, run through our tape in both modes."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys
import tarfile

import pytest

import daskgrad

pytestmark = [pytest.mark.optional, pytest.mark.timeout(1200)]

HERE = pathlib.Path(__file__).parent
MODES = ("rev", "fwd")
SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # not before Python 3.11.4


@pytest.fixture(scope="module")
def tests(request, tmp_path_factory):
    """The folder with the tests of the autograd that is installed."""
    if "optional" not in request.config.getoption("markexpr"):
        pytest.skip("takes minutes, and a download: run with -m optional")
    folder = tmp_path_factory.mktemp("autograd")
    release = f"autograd=={importlib.metadata.version('autograd')}"
    download = [sys.executable, "-m", "pip", "download", "--no-binary=autograd", "--no-deps"]
    done = subprocess.run([*download, release], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        missing(f"the source distribution of {release} was not downloaded: {done.stderr[-2000:]}")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, **SAFELY)
    (found,) = folder.glob("*/tests")
    return found.rename(folder / "tests")  # beside no settings of autograd's, which want plugins


def missing(reason):
    """Skips, but not in CI, where nothing may be left out without anybody seeing it."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def run(tests, mode, *options):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "through_tape", f"--mode={mode}"]
    paths = [str(HERE), str(pathlib.Path(daskgrad.__file__).parents[1])]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", *options],
        cwd=tests,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("mode", MODES)
def test_autograds_own_tests_hold(mode, tests):
    done = run(tests, mode)
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr


@pytest.mark.parametrize("mode", MODES)
def test_a_wrong_rule_is_found(mode, tests):
    """So it is our rules that the tests run through."""
    done = run(tests, mode, "--broken", "-k", "tanh")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED test_systematic.py::test_tanh" in done.stdout


def test_in_ci_what_is_missing_is_a_failure(monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no network"):
        missing("no network")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="no network"):
        missing("no network")
