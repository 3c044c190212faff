"""With TLS, nobody gets in without a certificate of the authority; daskgrad opens nothing.

The authority and the knock without a certificate are those of `examples/secure_cluster.py`.
"""

import ast
import asyncio
import importlib
import re
import ssl
import stat
from pathlib import Path

import autograd.numpy as np
import dask
import distributed
import psutil
import pytest
import yaml
from clusters import cluster
from dask.utils import parse_timedelta
from distributed import Client
from distributed.comm import connect
from distributed.comm.core import CommClosedError
from distributed.security import Security
from numpy.testing import assert_array_equal
from probes import lines, write
from secure_cluster import Authority, knock_without_certificate
from test_layout import MODULES, imports_of

import daskgrad as dg
from daskgrad.placed.messages import LARGE_POINT

QUICKLY = {"distributed.comm.timeouts.connect": "3s"}

# ---------------------------------------------------------------------------- a cluster with TLS


def security(authority, identity):
    """One identity in all roles."""
    certificate, key = map(str, identity)
    return Security(
        require_encryption=True,
        tls_ca_file=str(authority.certificate),
        **{f"tls_{role}_cert": certificate for role in ("client", "scheduler", "worker")},
        **{f"tls_{role}_key": key for role in ("client", "scheduler", "worker")},
    )


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority("authority", tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def member(authority):
    return security(authority, authority.identity("member"))


@pytest.fixture(scope="module")
def stranger(authority, tmp_path_factory):
    """Knows the cluster's authority, which is public, and has a certificate of another one."""
    others = Authority("others", tmp_path_factory.mktemp("others"))
    return security(authority, others.identity("stranger"))


@pytest.fixture(scope="module")
def secured(member):
    with cluster(security=member) as client:
        yield client


def ports(client):
    """Everything of a cluster that accepts connections: its scheduler, workers and nannies."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    nannies = [worker["nanny"] for worker in workers.values()]
    return [client.scheduler.address, *workers, *nannies]


def test_only_its_owner_can_read_a_key(authority):
    identity = authority.identity("someone")
    assert stat.S_IMODE(identity.key.stat().st_mode) == 0o600
    assert b"PRIVATE" in identity.key.read_bytes()
    assert b"PRIVATE" not in identity.certificate.read_bytes()


def term(item, x):
    return item * np.sum(np.sin(x))


def scale(x):
    return 0.5 * x


def program(items, x):
    """A node, and a sum whose point is so large that workers pass it on to each other."""
    assert x.nbytes >= LARGE_POINT
    return dg.value_and_grad(lambda x: dg.map_sum(term, items, x) + dg.delayed(scale)(x) @ x)(x)


def test_a_gradient_over_tls_has_the_same_bits_and_nothing_goes_unencrypted(secured):
    x, items = np.linspace(0.0, 1.0, LARGE_POINT // 8), [1.0, 1e9, -3.0, 0.1]
    with dask.config.set(scheduler="sync"):
        value, gradient = program(items, x)
    with dg.place(items, grainsize=1) as shards:
        found_value, found_gradient = program(shards, x)
        by_client = ciphers(secured.rpc)
        by_workers = secured.run(lambda dask_worker: ciphers(dask_worker.rpc))
    assert found_value == value
    assert_array_equal(found_gradient, gradient)
    workers = set(secured.scheduler_info(n_workers=-1)["workers"])
    assert set(by_client) & workers, "the client called a worker"
    called = [address for by_worker in by_workers.values() for address in by_worker]
    assert set(called) & workers, "a worker called the other one"
    for found in (by_client, *by_workers.values()):
        assert all(address.startswith("tls://") for address in found)
        assert all(found.values())


def ciphers(pool):
    """For each address that a pool is connected with, how that is encrypted."""
    connections = [*pool.available.items(), *pool.occupied.items()]
    return {
        address: [comm.extra_info.get("cipher") for comm in comms]
        for address, comms in connections
        if comms
    }


def test_every_port_is_open_to_members_alone(secured, member, stranger, authority):
    assert len(ports(secured)) == 5
    for address in ports(secured):
        connected(address, member.get_connection_args("client"))
        with pytest.raises(ssl.SSLError, match="certificate required"):
            knock_without_certificate(address, authority)
        with pytest.raises(CommClosedError):
            connected(address, stranger.get_connection_args("client"))
        with pytest.raises(CommClosedError):
            connected(address.replace("tls://", "tcp://"), {})


def connected(address, arguments):
    async def connect_and_close():
        comm = await connect(address, timeout=60, **arguments)
        await comm.close()

    asyncio.run(connect_and_close())


@pytest.mark.parametrize("scheme", ["tls", "tcp"])
def test_a_client_is_refused(secured, stranger, scheme):
    address = secured.scheduler.address.replace("tls", scheme)
    its = stranger if scheme == "tls" else None

    async def join():
        async with Client(address, security=its, asynchronous=True):
            pass

    with dask.config.set(QUICKLY), pytest.raises(CommClosedError):
        asyncio.run(join())


# --------------------------------------------------------------------------------- open ports


def listening():
    """The sockets of this process that anybody could send something to."""
    connections = psutil.Process().net_connections("inet")
    waiting = [
        each for each in connections if each.status in (psutil.CONN_LISTEN, psutil.CONN_NONE)
    ]
    return sorted((each.type.name, *each.laddr) for each in waiting)


def watched_term(item, x, path):
    write(path, repr(listening()))
    return np.sum(item * x)


def test_an_evaluation_opens_no_port(client, tmp_path):
    """Neither of a graph nor over placed items, in the client or on a worker, now or then."""
    path = tmp_path / "log"
    before, theirs = set(listening()), client.run(listening)
    assert all(theirs.values()), "a worker of Dask's listens"
    x = np.ones(2)
    with dg.place([1.0, 2.0, 3.0]) as shards:
        dg.grad(lambda x: dg.map_sum(watched_term, shards, x, path))(x)
        dg.grad(lambda x: dg.delayed(watched_term)(2.0, x, path) ** 2)(x)
        assert set(listening()) <= before
        assert client.run(listening) == theirs
    assert set(lines(path)) <= {repr(ports) for ports in theirs.values()}
    assert len(lines(path)) == 4


OPENING = {  # what makes a socket that others can connect to
    *"accept bind create_datagram_endpoint create_server create_unix_server listen".split(),
    *"serve_forever socketpair start_server start_unix_server HTTPServer Listener".split(),
    *"Manager SyncManager TCPServer UDPServer".split(),
}

SERVERS = ("http.server", "multiprocessing", "socketserver", "tornado", "xmlrpc", "aiohttp", "zmq")


def words(tree):
    """All names and attributes in a module."""
    for node in tree:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute) and not is_bind_of_signature(node):
            yield node.attr


def is_bind_of_signature(node):
    return node.attr == "bind" and ast.unparse(node).endswith("signature.bind")


def opens(tree):
    """What in a module opens a port."""
    of_socket = {
        node.attr
        for node in tree
        if isinstance(node, ast.Attribute) and getattr(node.value, "id", None) == "socket"
    }
    for node in tree:
        if isinstance(node, ast.ImportFrom) and node.module == "socket":
            of_socket |= {alias.name for alias in node.names}
    return sorted(OPENING.intersection(words(tree)) | (of_socket - {"gethostname"}))


def nodes(source):
    return list(ast.walk(ast.parse(source)))


@pytest.fixture(scope="module")
def modules():
    """The nodes of the source of each module."""
    return {name: nodes(path.read_text()) for name, path in MODULES.items()}


PAGES = {"dashboards.pages", "dashboards.feeding"}  # of the server that Dask has opened


def test_no_module_opens_a_port(modules):
    assert {name: ports for name, tree in modules.items() if (ports := opens(tree))} == {}
    imports = {name: imports_of(name) for name in MODULES}
    assert {name for name in MODULES if any(i.startswith(SERVERS) for i in imports[name])} == PAGES


@pytest.mark.parametrize(
    ("source", "ports"),
    [
        ("import socket\nsocket.socket().listen()", ["listen", "socket"]),
        ("import socket\nsocket.gethostname()", []),
        ("from socket import create_server", ["create_server"]),
        ("await asyncio.start_server(answer)", ["start_server"]),
    ],
)
def test_the_check_sees_an_open_port(source, ports):
    assert opens(nodes(source)) == ports


# --------------------------------------------------------------------------- what is unpickled

UNPICKLED = {  # module -> what it loads, and why that came over Dask's own channels
    "autodiff.libraries.registry": "a registered backend: part of a model",
    "autodiff.tape.pickling": "a model's function: `autodiff.models.model` calls it",
    "autodiff.libraries.jax.arrays": "a model's function: `autodiff.models.model` calls it",
    "autodiff.libraries.torch": "a model's function: `autodiff.models.model` calls it",
    "autodiff.libraries.by_hand": "a model's function: `autodiff.models.model` calls it",
    "autodiff.programs.program": "the program that it wrote itself of a model's calls",
    "autodiff.programs.references": "names and keys of things, as text that it wrote itself",
    "autodiff.programs.backend": "a model's function, by autograd's backend",
    "autodiff.models.model": "a model's function: part of a task, or of a parcel",
    "autodiff.models.failures": "what it has just pickled, to see if another process can load it",
    "autodiff.values.memory": "a tape that a worker or a spill file had: Dask loads its bytes",
    "autodiff.models.travel": "a tape, by `autodiff.values.memory`",
    "autodiff.models.pullbacks": "a tape, by `autodiff.models.travel`",
    "tasks.task_functions": "what Dask's serializers of messages and spill files hand to it",
    "placed.call": "a worker's reply to a call of the client's",
    "placed.connection": "workers' replies to a question about attached arrays",
    "placed.attached": "what this process itself packed for a call that it repeats",
    "placed.worker_sums": "the replies of the workers that a worker has passed a call on to",
    "placed.messages": "lists in a task's data, and what the modules around it unpack",
    "placed.worker_store": "an array, or what changed of it, that came with a call",
    "placed.worker": "what a worker is asked to do: an argument of its handler",
}

PICKLERS = ("pickle", "cloudpickle", "marshal", "shelve", "dill", "joblib")
LOADING = {
    *"loads pickle_loads unpack Unpickler _Unpickler read_pickle eval exec".split(),
}


def is_loading(node):
    if isinstance(node, ast.ImportFrom):
        return node.module in PICKLERS or "unpack" in [each.name for each in node.names]
    if isinstance(node, ast.Attribute):
        owner = getattr(node.value, "id", None)
        return node.attr in LOADING or (node.attr == "load" and owner in (*PICKLERS, "np", "numpy"))
    return isinstance(node, ast.Call) and getattr(node.func, "id", None) in LOADING - {"loads"}


def test_only_these_modules_unpickle(modules):
    assert {name for name, tree in modules.items() if any(map(is_loading, tree))} == set(UNPICKLED)


SOURCES = "pickle.loads(data)|pickle.load(file)|from pickle import loads|unpack(frames)|eval(text)"


@pytest.mark.parametrize("source", [*SOURCES.split("|"), "numpy.load(path, allow_pickle=True)"])
def test_the_check_sees_what_is_unpickled(source):
    assert any(map(is_loading, nodes(source)))
    assert not any(map(is_loading, nodes("json.dumps(data)\nbackends.load(name)\nmodel.load()")))


def test_no_module_reads_a_file(modules):
    """So what is unpickled came in memory: from Dask."""
    for name, tree in modules.items():
        assert not set(words(tree)) & {"open", "read_bytes", "fromfile", "urlopen"}, name


# ------------------------------------------------------------------------- docs/deployment.md

DEPLOYMENT = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text()


def defaults():
    """What Dask, distributed and daskgrad ship as their configuration, whatever is set here."""
    shipped = {}
    for package in (dask, distributed, dg):
        path = Path(package.__file__).parent / f"{package.__name__}.yaml"
        shipped |= yaml.safe_load(path.read_text())
    return shipped


def leaves(tree, above=()):
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*above, key))
        else:
            yield ".".join((*above, key))


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", DEPLOYMENT, re.MULTILINE | re.DOTALL)


def test_every_configuration_key_in_the_docs_exists():
    known = set(leaves(defaults()))
    named = re.findall(r"`((?:distributed|daskgrad)\.[\w.-]+|temporary-directory)`", DEPLOYMENT)
    assert len(named) > 10
    assert set(named) <= known
    in_files = [key for block in blocks("yaml") for key in leaves(yaml.safe_load(block))]
    assert len(in_files) > 5
    assert set(in_files) <= known


def test_every_option_of_a_command_in_the_docs_exists():
    found = re.findall(r"^dask (scheduler|worker) (.*)$", "".join(blocks("bash")), re.MULTILINE)
    assert len(found) == 6
    for command, line in found:
        module = importlib.import_module(f"distributed.cli.dask_{command}")
        known = {name for each in module.main.params for name in each.opts}
        assert set(re.findall(r"--[\w-]+", line)) <= known


def test_the_defaults_that_the_docs_state_are_those():
    rows = re.findall(r"^\| `(d[a-z]+\.[\w.-]+)` \| ([\w ]+) \|", DEPLOYMENT, re.MULTILINE)
    assert len(rows) == 7
    for key, stated in rows:
        default = dask.config.get(key, config=defaults())
        assert parse_timedelta(default) == parse_timedelta(None if stated == "none" else stated)
