"""Rooms are import order, few modules import some libraries, and tests wait for no time to pass."""

import ast
import collections
import functools
import importlib
import importlib.util
import json
import pathlib
import subprocess
import sys

import pytest

import daskgrad

ROOT = pathlib.Path(daskgrad.__file__).parent
DASHBOARDS = ROOT.parent / "dashboards"  # installed as daskgrad.dashboards

# A room imports rooms on floors below; ``random`` is a module, which all may import.
BUILDING = [  # which imports no Dask, and runs on workers
    ["autodiff.values"],
    ["autodiff.rules"],
    ["autodiff.tape"],
    ["autodiff.programs", "autodiff.libraries"],
    ["autodiff.native"],
    ["autodiff.models", "autodiff"],
]
FLOORS = [
    *BUILDING,
    ["tasks", "optim", "scipy"],
    ["graph", "dashboards"],
    ["sums", "loops", "arrays"],
    ["placed"],
    ["derivatives"],
    ["adapters"],
]
WORKER = ["random", "scipy", *[room for rooms in BUILDING for room in rooms]]  # plain NumPy
ROOMS = [room for rooms in FLOORS for room in rooms]

LONGEST = 8  # modules in a row within a room, each of which imports the next

LIBRARIES = {  # library -> the rooms and modules that may import it
    "dask": ["tasks", "graph.nodes", "arrays.grid", "arrays.array", "placed", "derivatives"],
    "dask.task_spec": [
        *("tasks.task_graph", "tasks.task_functions", "tasks.kept_models", "tasks.collections"),
    ],
    "dask.highlevelgraph": ["tasks.task_graph", "tasks.collections"],
    "distributed": ["tasks", "placed", "derivatives.in_line", "dashboards"],
    "autograd": ["autodiff.rules", "autodiff.tape", "autodiff.programs", "autodiff.native"],
    "llvmlite": ["autodiff.native"],
    "jax": ["autodiff.libraries.jax"],
    "torch": ["autodiff.libraries.torch"],
    "threadpoolctl": ["autodiff.models.blas"],
    "pytensor": ["adapters.pytensor_ops"],
    "bokeh": ["dashboards.pages"],
    "graphviz": ["dashboards.digraph", "derivatives.preview"],
    "rich": ["dashboards.progress"],
    "scipy": [
        *("autodiff.rules", "scipy", "autodiff.values.rows", "autodiff.values.slopes"),
        *("autodiff.programs.special_calls", "autodiff.programs.density_calls", "autodiff.native"),
    ],
}
LOCAL = [
    "dashboards.recorder",
    "dashboards.palette",
    "dashboards.drawing",
    "dashboards.digraph",
    "tasks.allocator",
]


def name_of(path):
    root = DASHBOARDS.parent if DASHBOARDS in path.parents else ROOT
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


PATHS = sorted([*ROOT.rglob("*.py"), *DASHBOARDS.rglob("*.py")])
MODULES = {name_of(path): path for path in PATHS}
NAMES = sorted(name for name in MODULES if name)


@functools.cache
def tree_of(name):
    return ast.parse(MODULES[name].read_text())


@functools.cache
def imports_of(name):
    """What a module imports, wherever in it, by absolute names: modules, and not their members."""
    result = set()
    for node in ast.walk(tree_of(name)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name} has a relative import"
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            inner = {i for i in members if i.removeprefix("daskgrad.") in NAMES}
            result |= inner | ({node.module} if inner != members else set())
        elif isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "import_module":
            named = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            result |= {name for name in named if name.removeprefix("daskgrad.") in NAMES}
    return result


def ours(name):
    """The modules of the package that a module imports."""
    result = {i.removeprefix("daskgrad.") for i in imports_of(name) if i.startswith("daskgrad.")}
    return result - {name}


def room(name):
    """A room, or a part of the building ``autodiff``."""
    parts = name.split(".")
    return ".".join(parts[:2] if parts[0] == "autodiff" else parts[:1])


def floor(name):
    return next(number for number, rooms in enumerate(FLOORS) if room(name) in rooms)


def is_below(name, other):
    """Whether a module may import another one, of another room."""
    return room(other) == "random" or floor(other) < floor(name)


def upward_imports(name):
    others = [other for other in ours(name) if room(other) != room(name)]
    return {(name, other) for other in others if not is_below(name, other)}


def trespasses(name, libraries):
    """The libraries that a module imports and may not."""
    result = imports_of(name)
    return [
        library
        for library, allowed in libraries.items()
        if not any(name == place or name.startswith(f"{place}.") for place in allowed)
        and any(i == library or i.startswith(f"{library}.") for i in result)
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


def test_nothing_imports_machine_code():
    """The registry loads it by its name, for users who say so."""
    outside = [name for name in NAMES if room(name) != "autodiff.native"]
    assert [name for name in outside if any("autodiff.native" in i for i in imports_of(name))] == []


@pytest.mark.parametrize("place", [*ROOMS, "random"])
def test_no_chain_of_imports_within_a_room_is_long_and_none_a_circle(place):
    longest = max([chain(name) for name in NAMES if room(name) == place], key=len)
    assert len(longest) <= LONGEST, " → ".join(longest)


def test_libraries_stay_behind_their_borders():
    local = LIBRARIES | {"dask": [], "distributed": []}
    result = {
        name: trespasses(name, local if name in LOCAL or room(name) in WORKER else LIBRARIES)
        for name in NAMES
    }
    assert {name: libraries for name, libraries in result.items() if libraries} == {}


FRESH = """
import json, sys
import numpy as np
import daskgrad as dg
at_first = list(sys.modules)
import daskgrad.autodiff.models.pullbacks, daskgrad.autodiff.tape
engine = list(sys.modules)
dg.dashboards, dg.report, dg.progress, dg.adapters
looked_at = list(sys.modules)
assert dg.grad(dg.delayed(lambda x: np.sum(np.vdot(x, x) + np.copy(x))))(np.ones(2))[0] == 5.0
print(json.dumps([at_first, engine, looked_at, list(sys.modules)]))
"""
LAZY = {"bokeh", "rich", "graphviz", "jax", "torch", "scipy", "pandas", "pytensor"}
RULES = "daskgrad.autodiff.rules.linalg"


def test_libraries_and_rules_are_imported_where_they_are_first_needed():
    """SciPy takes as long as all else; nobody who looks at no page waits for Bokeh."""
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True)
    at_first, engine, looked_at, traced = map(set, json.loads(done.stdout))
    assert LAZY & traced == set()
    assert RULES not in looked_at
    assert RULES in traced
    assert {"dask", "distributed", "autograd"} & at_first == set()
    assert {"dask", "distributed"} & engine == set()
    assert {"dask", "daskgrad.derivatives.gradient"} <= traced


def test_the_checks_see_an_upward_import_a_circle_and_a_trespass(monkeypatch):
    monkeypatch.setattr(f"{__name__}.FLOORS", FLOORS[::-1])
    assert ("graph.forward", "tasks.task_graph") in upward_imports("graph.forward")
    assert trespasses("tasks.task_graph", {"dask.task_spec": []}) == ["dask.task_spec"]
    circle = {"tasks.a": {"tasks.b"}, "tasks.b": {"tasks.a"}}
    monkeypatch.setattr(f"{__name__}.ours", circle.get)
    with pytest.raises(AssertionError, match=r"a circle: tasks.a → tasks.b → tasks.a"):
        chain("tasks.a")


def test_every_module_says_what_it_is_for():
    assert [name for name in MODULES if not ast.get_docstring(tree_of(name))] == []


# ------------------------------------------------------------------------------------------- time

TESTS = pathlib.Path(__file__).parent
PAUSES = {"sleep", "usleep", "call_later", "Timer"}
SHORT = 10  # seconds: who waits so short for an event goes on without it
CLOCKS = {"perf_counter", "monotonic", "process_time", "thread_time"}
CLOCKS |= {f"{clock}_ns" for clock in CLOCKS}
PAUSING = [
    *("import time; time.sleep(1)", "from time import sleep", "nap = time.sleep", "sleep(0.1)"),
    *("asyncio.sleep(0.1)", "libc.usleep(9)", "loop.call_later(0.2, f)", "Timer(0.1, f)"),
    *("PROGRAM = 'time.sleep(1)'", "Event().wait(0.1)", "begun.wait(2)"),
]
WAITING = ["asyncio.sleep(0)", "begun.wait(60)", "barrier.wait()", "gate.wait('a')", "asleep = 1"]


def names_of(node):
    """The names that a piece of code has in it, without those of what it consists of."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.name for alias in node.names}
    return {getattr(node, "attr", None) or getattr(node, "id", None)}


def pauses(code):
    """The lines on which tests wait for a time to pass, and not for a condition."""
    if not any(word in code for word in (*PAUSES, "wait(")):
        return []  # most files need not be parsed
    nodes = list(ast.walk(ast.parse(code)))
    timed = {
        id(node.func): node.args[0].value
        for node in nodes
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)
    }

    def is_pause(node):
        if isinstance(node, ast.Constant):  # a program for another process
            return "sleep(" in str(node.value)
        seconds = timed.get(id(node), "unknown")
        is_short = isinstance(seconds, int | float) and seconds < SHORT
        is_wait = is_short and "wait" in names_of(node)
        return is_wait or (PAUSES & names_of(node) and seconds != 0)

    return sorted({node.lineno for node in nodes if is_pause(node)})


def test_tests_wait_for_conditions_and_only_their_support_sleeps():
    paths = {path.relative_to(TESTS).as_posix(): path for path in TESTS.rglob("*.py")}
    lines = {name: pauses(path.read_text()) for name, path in paths.items()}
    del lines["test_layout.py"]
    pausing = {name: at for name, at in lines.items() if at and not name.startswith("support/")}
    assert pausing == {}


def test_the_walk_sees_pauses_and_nothing_else():
    assert [code for code in PAUSING if pauses(code) != [1]] == []
    assert [code for code in WAITING if pauses(code)] == []


def test_whatever_the_package_decides_by_time_reads_its_clock():
    """Tests put another one there."""
    texts = {name: path.read_text() for name, path in MODULES.items()}
    likely = [name for name, text in texts.items() if any(clock in text for clock in CLOCKS)]
    nodes = [(name, node) for name in likely for node in ast.walk(tree_of(name))]
    reads = {name for name, node in nodes if CLOCKS & names_of(node)}
    assert reads == {"autodiff.values.clock"}


def test_no_two_modules_have_a_class_of_one_name():
    modules = collections.defaultdict(list)
    for path in [*ROOT.rglob("*.py"), *DASHBOARDS.rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(str(path))
    assert len(modules) > 300
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}


def test_scripts_import_names_that_there_are():
    """Benchmarks, examples and scripts of the documents, without running them."""
    root, missing = ROOT.parent, []
    for folder in ("benchmarks", "examples", "docs"):
        for path in (root / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                name = node.module if isinstance(node, ast.ImportFrom) else None
                if name is not None and name.startswith("daskgrad."):
                    module = importlib.import_module(name)
                    for alias in node.names:
                        place = f"{name}.{alias.name}"
                        is_module = hasattr(module, "__path__") and importlib.util.find_spec(place)
                        if not (hasattr(module, alias.name) or is_module):
                            missing.append((path.name, place))
    assert missing == []
