"""Rooms are import order, nothing imports in a circle, and some libraries belong to few modules."""

import ast
import functools
import pathlib
import subprocess
import sys

import pytest

import daskgrad

ROOT = pathlib.Path(daskgrad.__file__).parent
DASHBOARDS = ROOT.parent / "dashboards"  # installed as daskgrad.dashboards

# A room imports rooms before it; ``random`` is a module, which all may import.
ROOMS = "values backends compiled scipy models rules tasks graph sums loops grids arrays".split()
ROOMS += ["resident", "derivatives", "optim", "checks", "adapters", "dashboards"]
APART = {("rules", "tasks"), ("tasks", "rules")}  # neither imports the other
WORKER = "random values backends compiled scipy models rules".split()  # plain Python and NumPy

LONGEST = 8  # modules in a row within a room, each of which imports the next

LIBRARIES = {  # library -> the rooms and modules that may import it
    "dask": [
        "tasks",
        "graph.nodes",
        "grids.grid",
        "arrays.array",
        "resident",
        "derivatives",
        "checks.first_wrong_rule",
    ],
    "dask.task_spec": [
        "tasks.task_graph",
        "tasks.task_functions",
        "tasks.held_data",
        "tasks.collections",
    ],
    "dask.highlevelgraph": ["tasks.task_graph", "tasks.collections"],
    "distributed": ["tasks", "resident", "derivatives.in_line", "dashboards"],
    "autograd": ["backends.autograd", "compiled"],
    "jax": ["backends.jax"],
    "torch": ["backends.torch"],
    "pytensor": ["adapters.pytensor_ops"],
    "bokeh": ["dashboards.pages"],
    "graphviz": ["dashboards.drawing", "dashboards.visualize"],
    "rich": ["dashboards.progress", "dashboards.screens"],
    "scipy": [
        *("backends.autograd.rules", "scipy"),
        *("compiled.special_calls", "compiled.density_calls", "values.rows"),
    ],
}
LOCAL = ["resident.balance", "resident.spread", "resident.routes"]
LOCAL += ["dashboards.recorder", "dashboards.trace", "dashboards.grains"]
LOCAL += ["dashboards.bars", "dashboards.palette", "dashboards.screens"]
LOCAL += ["dashboards.drawing", "tasks.allocator"]


def name_of(path):
    root = DASHBOARDS.parent if DASHBOARDS in path.parents else ROOT
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


PATHS = sorted([*ROOT.rglob("*.py"), *DASHBOARDS.rglob("*.py")])
MODULES = {name_of(path): path for path in PATHS}
NAMES = sorted(name for name in MODULES if name)


@functools.cache
def imports_of(name):
    """What a module imports, wherever in it, by absolute names: modules, and not their members."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name} has a relative import"
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            inner = {i for i in members if i.removeprefix("daskgrad.") in NAMES}
            found |= inner | ({node.module} if inner != members else set())
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def ours(name):
    """The modules of the package that a module imports."""
    found = {i.removeprefix("daskgrad.") for i in imports_of(name) if i.startswith("daskgrad.")}
    return found - {name}


def room(name):
    return name.partition(".")[0]


def is_below(name, other):
    """Whether a module may import another one, of another room."""
    if room(other) == "random":
        return True
    if (room(name), room(other)) in APART:
        return False
    return ROOMS.index(room(other)) < ROOMS.index(room(name))


def upward_imports(name):
    others = [other for other in ours(name) if room(other) != room(name)]
    return {(name, other) for other in others if not is_below(name, other)}


def trespasses(name, libraries):
    """The libraries that a module imports and may not."""
    found = imports_of(name)
    return [
        library
        for library, allowed in libraries.items()
        if not any(name == place or name.startswith(f"{place}.") for place in allowed)
        and any(i == library or i.startswith(f"{library}.") for i in found)
    ]


def chain(name, above=()):
    """The longest chain of imports within a room from a module on."""
    assert name not in above, f"a circle: {' → '.join([*above, name])}"
    inner = [other for other in ours(name) if room(other) == room(name)]
    return [name, *max([chain(other, (*above, name)) for other in inner], key=len, default=[])]


def test_every_module_is_in_a_room():
    assert {room(name) for name in NAMES} == {*ROOMS, "random"}


def test_rooms_import_the_rooms_before_them():
    assert set().union(*map(upward_imports, NAMES)) == set()


@pytest.mark.parametrize("place", [*ROOMS, "random"])
def test_no_chain_of_imports_within_a_room_is_long_and_none_a_circle(place):
    longest = max([chain(name) for name in NAMES if room(name) == place], key=len)
    assert len(longest) <= LONGEST, " → ".join(longest)


def test_libraries_stay_behind_their_borders():
    local = LIBRARIES | {"dask": [], "distributed": []}
    found = {
        name: trespasses(name, local if name in LOCAL or room(name) in WORKER else LIBRARIES)
        for name in NAMES
    }
    assert {name: libraries for name, libraries in found.items() if libraries} == {}


def test_bokeh_is_imported_by_the_pages_alone():
    """Nobody who does not look at pages waits for it."""
    code = "import sys, daskgrad as dg; dg.dashboards, dg.report; print('bokeh' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_the_checks_see_an_upward_import_a_circle_and_a_trespass(monkeypatch):
    monkeypatch.setattr(f"{__name__}.ROOMS", ROOMS[::-1])
    assert ("graph.forward", "tasks.task_graph") in upward_imports("graph.forward")
    assert trespasses("tasks.task_graph", {"dask.task_spec": []}) == ["dask.task_spec"]
    circle = {"tasks.a": {"tasks.b"}, "tasks.b": {"tasks.a"}}
    monkeypatch.setattr(f"{__name__}.ours", circle.get)
    with pytest.raises(AssertionError, match=r"a circle: tasks.a → tasks.b → tasks.a"):
        chain("tasks.a")


def test_every_module_says_what_it_is_for():
    docstrings = {
        name: ast.get_docstring(ast.parse(path.read_text())) for name, path in MODULES.items()
    }
    assert [name for name, docstring in docstrings.items() if not docstring] == []
