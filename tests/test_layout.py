"""The reading order is the import order, and some libraries belong to one module."""

import ast
import pathlib

import pytest

import daskgrad

ROOT = pathlib.Path(daskgrad.__file__).parent

ORDER = [
    "values",
    "values.trees",
    "values.caches",
    "random",
    "values.protection",
    "values.signatures",
    "values.fingerprints",
    "values.rows",
    "values.cotangents",
    "values.tuples",
    "values.ownership",
    "values.choices",
    "values.summation",
    "values.compensated",
    "models",
    "models.travel",
    "models.travel.policy",
    "models.travel.packing",
    "backends.layouts",
    "backends.calls",
    "backends.unchanged",
    "backends.autograd.tracing",
    "backends.autograd.arithmetic",
    "backends.autograd.linear",
    "backends.autograd.indexing",
    "backends.autograd.corrections.registry",
    "backends.autograd.corrections.arrangements",
    "backends.autograd.corrections.elementwise",
    "backends.autograd.corrections.reductions",
    "backends.autograd.corrections.products",
    "backends.autograd.corrections.linalg",
    "backends.autograd.corrections.fourier",
    "backends.autograd.corrections.special",
    "backends.autograd.corrections.scipy_linalg",
    "backends.autograd.corrections.distributions",
    "backends.autograd.corrections",
    "backends.autograd.guards",
    "backends.autograd.ruled",
    "backends.autograd.pickling",
    "backends.autograd.tape",
    "backends.autograd.linearize",
    "backends.autograd.roots",
    "backends.autograd.unboxing",
    "backends.autograd.hints",
    "backends.autograd",
    "backends.jax.outputs",
    "backends.jax.pickling",
    "backends.jax.reach",
    "backends.jax.programs",
    "backends.jax.tape",
    "backends.jax.loops",
    "backends.jax.blocks",
    "backends.jax.cuts",
    "backends.jax.hints",
    "backends.jax",
    "backends.torch.tensors",
    "backends.torch.tape",
    "backends.torch.pickling",
    "backends.torch.cuts",
    "backends.torch.hints",
    "backends.torch",
    "backends",
    "models.model",
    "models.determinism",
    "rules",
    "rules.rule",
    "rules.implicit",
    "models.writes",
    "models.portable_errors",
    "models.failures",
    "models.captured",
    "models.pullbacks",
    "rules.differences",
    "models.duals",
    "sums",
    "sums.item_cotangents",
    "sums.block_pullback",
    "sums.block_tasks",
    "sums.term_gradients",
    "models.portions",
    "sums.nested",
    "models.finite",
    "tasks",
    "tasks.progress",
    "tasks.clients",
    "tasks.supervision",
    "tasks.task_graph",
    "tasks.spilling",
    "graph",
    "graph.hidden_nodes",
    "graph.nodes",
    "graph.variables",
    "graph.stopping",
    "graph.activity",
    "graph.forward",
    "graph.backward",
    "graph.black_boxes",
    "graph.tangents",
    "graph.batches",
    "sums.node_sum",
    "sums.cutting",
    "resident",
    "resident.messages",
    "resident.malloc",
    "resident.presence",
    "resident.jobs",
    "resident.routes",
    "resident.plugin",
    "resident.balance",
    "resident.spread",
    "resident.holdings",
    "resident.requests",
    "resident.evaluator",
    "resident.evaluation",
    "resident.shards",
    "sums.sources",
    "sums.zipping",
    "resident.placing",
    "sums.item_sum",
    "sums.map_sum",
    "derivatives",
    "derivatives.in_line",
    "derivatives.at_once",
    "derivatives.shipping",
    "derivatives.inputs",
    "derivatives.evaluation",
    "derivatives.recording",
    "derivatives.gradient",
    "derivatives.per_item",
    "derivatives.jvp",
    "derivatives.matrices",
    "derivatives.hessian",
    "derivatives.jacobian",
    "derivatives.directions",
    "checks",
    "checks.directional",
    "checks.taylor",
    "checks.first_wrong_rule",
    "checks.check_grads",
]

WORKER = ORDER[: ORDER.index("tasks.progress")]

RESIDENT = [name for name in ORDER if name.startswith("resident.")]
LOCAL = [  # plain Python and NumPy
    "resident.balance",
    "resident.spread",
    "resident.routes",
    "resident.malloc",
]

BORDERS = {  # library -> the modules that may import it
    "dask": [
        "tasks.clients",
        "tasks.task_graph",
        "graph.nodes",
        "resident.evaluator",
        "resident.evaluation",
        "derivatives.in_line",
        "derivatives.shipping",
        "derivatives.evaluation",
        "checks.first_wrong_rule",
    ],
    "dask.task_spec": ["tasks.task_graph"],
    "dask.highlevelgraph": ["tasks.task_graph"],
    "distributed": [
        "tasks.clients",
        "tasks.supervision",
        *[name for name in RESIDENT if name not in LOCAL],
        "resident.shards",
        "derivatives.in_line",
        "tasks.spilling",
    ],
    "autograd": ["backends.autograd", *[m for m in ORDER if m.startswith("backends.autograd.")]],
    "jax": [m for m in ORDER if m.startswith("backends.jax.")],
    "torch": [m for m in ORDER if m.startswith("backends.torch.")],
    "bokeh": [],
    "scipy": [],
}


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}
MODULES.pop("")


def imports_of(name):
    """The absolute names that a module imports, wherever in it; a name may be a module's member."""
    for node in ast.walk(ast.parse(MODULES[name].read_text())):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name} has a relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def upward_imports(name, order):
    """What a module imports that does not stand above it."""
    below = order[order.index(name) :]
    ours = {i.removeprefix("daskgrad.") for i in imports_of(name) if i.startswith("daskgrad.")}
    return sorted(ours.intersection(below))


def trespasses(name, borders):
    """The libraries that a module imports and may not."""
    found = set(imports_of(name))
    return [
        library
        for library, allowed in borders.items()
        if name not in allowed and any(i == library or i.startswith(library + ".") for i in found)
    ]


def test_every_module_has_its_place():
    assert sorted(MODULES) == sorted(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_a_module_imports_only_modules_above_it(name):
    assert upward_imports(name, ORDER) == []


@pytest.mark.parametrize("name", ORDER)
def test_libraries_stay_behind_their_borders(name):
    assert trespasses(name, BORDERS) == []


@pytest.mark.parametrize("name", WORKER)
def test_worker_modules_import_no_dask(name):
    assert trespasses(name, {"dask": [], "distributed": []}) == []


def test_the_check_sees_an_upward_import_and_a_trespass():
    assert upward_imports("graph.backward", ["graph.backward", "graph.forward"]) == [
        "graph.forward"
    ]
    assert trespasses("tasks.task_graph", {"dask.task_spec": []}) == ["dask.task_spec"]


@pytest.mark.parametrize("name", [*ORDER, ""])
def test_every_module_says_what_it_is_for(name):
    path = MODULES[name] if name else ROOT / "__init__.py"
    assert ast.get_docstring(ast.parse(path.read_text()))
