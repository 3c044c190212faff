"""The files of ``docs/clusters`` start clusters here, on stand-ins of Kubernetes, SLURM and SSH."""

import contextlib
import os
import runpy
import signal
import stat
import subprocess
import sys
import types
import urllib.request
from pathlib import Path

import autograd.numpy as np
import dask
import pytest
import yaml
from clusters import free_port
from distributed import Client
from waiting import wait_until

import daskgrad as dg

FILES = Path(__file__).parent.parent.parent / "docs" / "clusters"
ITEMS = [np.linspace(0.1, 1.0, n) for n in range(5, 25)]
X = np.array([0.3, -0.7])
SECONDS = 60  # for anything to start


def gradient_over(items):
    """Its models are closures, which are sent by value: the workers cannot import the tests."""

    def term(item, x):
        return np.sum(np.sin(x[0] * item) * np.exp(x[1] * item))

    def square(x):
        return x**2

    def objective(x):
        return dg.map_sum(term, items, x) + dg.map_sum(term, ITEMS, dg.delayed(square)(x)) ** 2

    return dg.value_and_grad(objective)(X)


def assert_right_on(address, workers=1):
    """A gradient over items that are placed there has the bits of that in this process."""
    with dask.config.set(scheduler="sync"):
        value, gradient = gradient_over(ITEMS)
    with Client(address, timeout=SECONDS) as client:
        client.wait_for_workers(workers, timeout=SECONDS)
        with dg.place(ITEMS) as shards:
            found, slope = gradient_over(shards)
    assert found == value
    assert slope.tobytes() == gradient.tobytes()


def run_as_program(name, monkeypatch, check, *arguments):
    """Runs a file with another ``fit_schools``, whose ``main`` is ``check``."""
    stub = types.ModuleType("fit_schools")
    stub.main = check
    monkeypatch.setitem(sys.modules, "fit_schools", stub)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(FILES / name), run_name="__main__")


# --------------------------------------------------------------------------------- Kubernetes


def manifests():
    documents = yaml.safe_load_all((FILES / "kubernetes.yaml").read_text())
    return {(found["kind"], found["metadata"]["name"]): found for found in documents}


def container(kind, name):
    (found,) = manifests()[kind, name]["spec"]["template"]["spec"]["containers"]
    return found


@contextlib.contextmanager
def started(arguments):
    """A process with these arguments of an image, which runs Python's module ``dask``."""
    process = subprocess.Popen([sys.executable, "-m", *arguments], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=SECONDS)


def answers(url):
    """Whether a page is there."""
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5) as page:
        return page.status == 200


def test_the_commands_of_the_manifests_start_a_cluster():
    ports = {"8786": str(free_port()), ":8787": f"127.0.0.1:{free_port()}"}
    address = f"tcp://127.0.0.1:{ports['8786']}"
    scheduler, worker = container("Deployment", "scheduler"), container("Deployment", "workers")
    told = [ports.get(argument, argument) for argument in scheduler["args"]]
    assert not {"8786", ":8787"} & {*told}
    joins = [address if argument.startswith("tcp://") else argument for argument in worker["args"]]
    probes = {scheduler[probe]["httpGet"]["path"] for probe in ("readinessProbe", "livenessProbe")}
    with started(told), started([*joins, "--host", "127.0.0.1"]):
        for path in probes:
            wait_until(lambda path=path: answers(f"http://{ports[':8787']}{path}"))
        assert_right_on(address)


def test_pods_find_each_other():
    found = manifests()
    service = found["Service", "scheduler"]["spec"]
    scheduler = found["Deployment", "scheduler"]["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= scheduler.items()
    address = f"tcp://scheduler:{service['ports'][0]['port']}"
    for kind, name in (("Deployment", "workers"), ("Job", "fit")):
        assert address in container(kind, name)["args"]
    program = container("Job", "fit")["args"][1]
    assert f"COPY {program}" in (FILES / "Dockerfile").read_text()
    assert (FILES.parent / program).exists()
    (policy,) = [one for (kind, _), one in found.items() if kind == "NetworkPolicy"]
    chosen = policy["spec"]["podSelector"]["matchLabels"].items()
    pods = [one for (kind, _), one in found.items() if kind in ("Deployment", "Job")]
    assert len(pods) == 3
    assert all(chosen <= pod["spec"]["template"]["metadata"]["labels"].items() for pod in pods)


# -------------------------------------------------------------------------------------- SLURM

SBATCH = """#!{python}
import os, subprocess, sys
out = open(os.path.join({folder!r}, "out"), "a")
process = subprocess.Popen(["bash", sys.argv[-1]], stdout=out, stderr=out, start_new_session=True)
with open(os.path.join({folder!r}, "jobs"), "a") as jobs:
    jobs.write(f"{{process.pid}}\\n")
print("Submitted batch job", process.pid)
"""
SCANCEL = "#!/bin/sh\nfor job in $*; do kill -KILL -$job; done\n"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A machine with ``sbatch`` and ``scancel``, which start and kill jobs here."""
    commands = {"sbatch": SBATCH.format(python=sys.executable, folder=str(tmp_path))}
    for name, text in {**commands, "scancel": SCANCEL}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(stat.S_IRWXU)
    (tmp_path / "jobs").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    kill_groups(jobs_of(tmp_path))


def kill_groups(leaders):
    for leader in leaders:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)


def jobs_of(folder):
    return [int(line) for line in (folder / "jobs").read_text().split()]


@pytest.mark.optional
@pytest.mark.filterwarnings("ignore")  # dask-jobqueue's, of Dask's and its own
def test_workers_that_slurm_starts(slurm, monkeypatch):
    # imported first, since it enters its defaults then
    pytest.importorskip("dask_jobqueue", reason='needs pip install "daskgrad[clusters]"')
    settings = yaml.safe_load((FILES / "jobqueue.yaml").read_text())["jobqueue"]["slurm"]
    seen = []

    def check(address):
        assert_right_on(address, workers=2)
        first, _ = jobs_of(slurm)
        subprocess.run(["scancel", str(first)], check=True)
        assert_right_on(address)
        wait_until(lambda: len(jobs_of(slurm)) == 3)
        assert_right_on(address, workers=2)
        seen.append(address)

    given = {f"jobqueue.slurm.{name}": value for name, value in settings.items()}
    with dask.config.set({**given, "distributed.deploy.lost-worker-timeout": "1s"}):
        run_as_program("slurm_fit.py", monkeypatch, check)
    assert len(seen) == 1


# ---------------------------------------------------------------------------------------- SSH


SSH_SERVER = """
import asyncio, sys
import asyncssh

async def forward(source, sink):
    while data := await source.read(4096):
        sink.write(data)

async def run(process):
    pipes = dict.fromkeys(("stdout", "stderr"), asyncio.subprocess.PIPE)
    found = await asyncio.create_subprocess_shell(process.command, **pipes)
    both = forward(found.stdout, process.stdout), forward(found.stderr, process.stderr)
    await asyncio.gather(*both)
    process.exit(await found.wait())

async def serve(key, clients):
    options = {"server_host_keys": [key], "authorized_client_keys": clients, "encoding": None}
    server = await asyncssh.listen("127.0.0.1", 0, process_factory=run, **options)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.wait_closed()

asyncio.run(serve(*sys.argv[1:]))
"""


@contextlib.contextmanager
def ssh_server(home):
    """A server for SSH on loopback, where names of nodes lead to."""
    asyncssh = pytest.importorskip("asyncssh", reason='needs pip install "daskgrad[clusters]"')
    folder = home / ".ssh"
    folder.mkdir(mode=0o700)
    key, public = folder / "key", folder / "key.pub"
    made = asyncssh.generate_private_key("ssh-ed25519")
    made.write_private_key(str(key))
    made.write_public_key(str(public))
    command = [sys.executable, "-c", SSH_SERVER, str(key), str(public)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as server:
        try:
            port = int(server.stdout.readline())
            (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {public.read_text()}")
            there = f"HostName 127.0.0.1\n  Port {port}\n  IdentityFile {key}"
            (folder / "config").write_text(f"Host node*\n  {there}\n")
            yield
        finally:
            kill_groups([server.pid])  # and all that it has started


@pytest.mark.optional
@pytest.mark.filterwarnings("ignore")  # asyncssh's and cryptography's
def test_workers_over_ssh(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    seen = []

    def check(address):
        assert_right_on(address, workers=4)
        seen.append(address)

    with ssh_server(tmp_path):
        run_as_program("ssh_fit.py", monkeypatch, check, "node1", "node2", "node3")
    assert len(seen) == 1
