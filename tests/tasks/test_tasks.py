"""What is handed to Dask: keys, graphs, the collection protocol, annotations; and what of Dask,
distributed and optree is relied upon.
"""

import inspect
import operator
import pickle

import autograd.numpy as np
import dask
import distributed
import hypothesis
import hypothesis.strategies as st
import optree
import probes
import pytest
from dask._task_spec import fuse_linear_task_spec
from dask.base import tokenize
from dask.delayed import single_key
from dask.graph_manipulation import checkpoint, clone, wait_on
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.task_spec import DataNode, GraphNode, List, Task, TaskRef
from dask.utils import key_split
from distributed import get_worker
from inputs import X, double, energy
from numpy.testing import assert_allclose, assert_array_equal
from samples import askew, decades

import daskgrad as dg
from daskgrad.autodiff.values.trees import NAMESPACE
from daskgrad.tasks import keys
from daskgrad.tasks.keys import Names, dashboard_name
from daskgrad.tasks.task_functions import KeptTask
from daskgrad.tasks.task_graph import TaskGraph, Where

STAGES = ("forward", "value", "backward", "cotangent", "tangent")


pytestmark = pytest.mark.usefixtures("synchronous")


def stage_of(key):
    return key_split(key).partition("-")[0]


# --------------------------------------------------------------------------------------- keys


SPOKEN = {
    "log_lik": "log-lik",
    "layer1": "layer-b",
    "layer10": "layer-ba",
    "<lambda>": "lambda",
    "": "model",
    "😀": "model",
    "#1": "b",
    "größe": "größe",
    "中文模型": "中文模型",
    "deadbeef": "dead-beef",
    "cafebabe_1": "cafe-babe-b",
    "backward": "back-ward",
    "quantity": "quantity",
    "a" * 100: "a" * 100,
    "Heat.flux (2 m)": "Heat-flux-c-m",
    "x😀y": "x-y",
    "__call__": "call",
    "-a--b-": "a-b",
    "('a', 1)": "a-b",
    "naïve_π²": "naïve-π",
    "ab12cd34": "ab-bc-cd-de",
    "a\nb\0c\t": "a-b-c",
    "0x1f": "a-x-b-f",
    "d41d8cd98f00b204e9800998ecf8427e": "d-eb-d-i-cd-ji-f-aa-b-cae-e-jiaajji-ecf-iech-e",
}


@pytest.mark.parametrize("name", SPOKEN)
def test_a_key_tells_dask_and_us_its_stage_and_model(name):
    """The stock dashboard groups and colours tasks by what ``key_split`` makes of their keys."""
    assert dashboard_name(name) == SPOKEN[name]
    for stage in STAGES:
        make = Names().key
        key = make(stage, name)
        assert key_split(key) == key_split(str(key)) == f"{stage}-{SPOKEN[name]}"
        parts = keys.key_parts(key)
        assert parts[:2] == (stage, SPOKEN[name])
        assert keys.known_name(parts.model) == name
        assert keys.key_parts(make("value", "other")).evaluation == parts.evaluation
        assert keys.key_parts(Names().key(stage, name)).evaluation != parts.evaluation


@hypothesis.given(st.text(max_size=30) | st.text("abcdefgz_-1 ", max_size=30))
@hypothesis.settings(max_examples=300)
def test_dask_reads_stage_and_model_whatever_the_name(name):
    assert key_split(Names().key("forward", name)) == f"forward-{dashboard_name(name)}"


def test_the_tasks_of_a_gradient_are_named_by_stage_and_model():
    v = dg.variable(X, "x")
    _, gradient = dg.differentiate(energy(double(v)), v)
    names = sorted(key_split(key) for key in gradient.__dask_graph__())
    assert names == [
        "backward-double",
        "backward-energy",
        "cotangent-x",
        "forward-double",
        "forward-energy",
        "value-double",
        "value-energy",
        "value-x",
    ]


def test_all_parts_of_a_variable_are_one_group_of_tasks():
    """On the stock dashboard's pages each prefix has a bar of its own."""
    weights = dg.variable({"a": X, "b": [X, X], "large_1": X}, "ws")
    total = energy(double(weights["a"]) + weights["b"][0] * weights["b"][1] + weights["large_1"])
    _, gradient = dg.differentiate(total + energy(weights["a"]), weights)
    names = {key_split(key) for key in gradient.__dask_graph__()}
    assert {name for name in names if "ws" in name} == {"value-ws", "cotangent-ws"}


def test_keys_of_others_have_no_parts():
    others = ["x", ("x", 1), "value-shard-0123", ("forward-a-b", 1, 2), ("sum-" + "0" * 32, 0, 0)]
    assert [keys.key_parts(key) for key in others] == [None] * 5


def test_a_sum_is_called_by_its_name():
    v = dg.variable(X, "x")
    terms = dg.map_sum(lambda a, x: a * np.sum(x), [1.0, 2.0], v, name="prior")
    slices = dg.reduce_sum(lambda a, x: len(a) * np.sum(x), [1.0, 2.0], v, name="likelihood")
    total = dg.sum([terms, slices], name="posterior")
    assert [node.name for node in (terms, slices, total)] == ["prior", "likelihood", "posterior"]
    _, gradient = dg.differentiate(total, v)
    names = {key_split(key) for key in gradient.__dask_graph__()}
    assert {"forward-prior", "forward-likelihood", "value-posterior"} <= names
    assert not [name for name in names if "lambda" in name]
    for add_up in (dg.map_sum, dg.reduce_sum):
        items = [double(v), double(v)]
        assert add_up(lambda item: np.sum(item), items, name="total", grainsize=1).name == "total"


# ---------------------------------------------------------------------- the collection protocol


def test_nodes_and_gradients_are_dask_collections():
    y, v = double(X), dg.variable(X)
    node = energy(y)
    assert dask.is_dask_collection(node)
    assert not dask.is_dask_collection(energy)
    assert_allclose(node.compute(), 4.0 * np.sum(X**2))
    nested, part, plain = dask.compute({"a": [y, 1], "b": (node, "text")}, y[0], 3.0)
    assert_allclose(nested["a"][0], 2.0 * X)
    assert (nested["a"][1], part, plain) == (1, 0.6, 3.0)
    assert nested["b"] == (pytest.approx(4.0 * np.sum(X**2)), "text")
    value, gradient = dg.differentiate(energy(v), v)
    assert_allclose(dask.delayed(sum)(gradient).compute(), np.sum(2.0 * X))
    assert_allclose(gradient.persist().compute(), 2.0 * X)
    assert_allclose(dask.persist(value, gradient)[0].compute(), np.sum(X**2))


@pytest.mark.parametrize("scheduler", ["sync", "cluster"], indirect=True)
def test_values_that_look_like_tasks_or_keys_are_data(scheduler):
    odd = {"task": (sum, [1, 2]), "list": ["value-double", ("x", 0)]}
    node = dg.delayed(lambda odd, x: odd, name="odd")(odd, double(X))
    assert node.compute() == odd
    assert node.persist().compute() == odd
    assert dask.delayed(lambda value: value)(node).compute() == odd


def test_nodes_are_arguments_of_other_collections():
    y = double(X)
    assert_allclose(dask.delayed(np.sum)(y).compute(), np.sum(2.0 * X))
    assert_allclose(dask.delayed(lambda d: d["a"][0])({"a": [y]}).compute(), 2.0 * X)
    array = pytest.importorskip("dask.array").from_delayed(dask.delayed(y), (3,), dtype=float)
    assert_allclose((array + 1.0).sum().compute(), np.sum(2.0 * X + 1.0))
    node = energy(y)
    assert checkpoint(node, y).compute() is None
    waiting = wait_on(node)
    assert waiting.key != node.key
    assert_allclose((waiting + 1.0).compute(), 4.0 * np.sum(X**2) + 1.0)


def test_dask_optimizes_nodes_by_culling_alone():
    y = double(X)
    (optimized,) = dask.optimize(energy(y))
    assert_allclose(optimized.compute(), 4.0 * np.sum(X**2))
    x = dg.variable(X)
    total = dg.differentiate(energy(double(x)), x)[0]
    (optimized,) = dask.optimize(total)
    stages = {stage_of(key) for key in optimized.__dask_graph__()}
    assert stages == {"forward", "value"}


def test_the_token_of_a_node_is_its_key():
    y = double(X)
    assert tokenize(y) == tokenize(y)
    assert tokenize(y) != tokenize(double(X))


@pytest.mark.parametrize("make", [double, dask.delayed(lambda x: 2.0 * x)])
@pytest.mark.xfail(raises=ValueError, reason="Dask renames the keys, and not their references")
def test_clone_takes_collections(make):
    cloned = clone(make(make(X)))
    assert_allclose(cloned.compute(), 4.0 * X)


def test_a_client_computes_nodes(client):
    y = double(X)
    future = client.compute(energy(y))
    assert_allclose(future.result(), 4.0 * np.sum(X**2))
    futures = client.compute([y, energy(y)])
    assert_allclose(client.gather(futures)[0], 2.0 * X)
    assert_array_equal(client.persist(y).compute(), 2.0 * X)
    assert_allclose(client.submit(operator.add, future, 1.0).result(), 4.0 * np.sum(X**2) + 1.0)


# -------------------------------------------------------------------------------- annotations


def annotations(collection):
    """What every key of a graph is annotated with."""
    found = {key: {} for key in collection.__dask_graph__()}
    for layer in collection.__dask_graph__().layers.values():
        for kind, value in (layer.annotations or {}).items():
            for key in layer:
                at_key = value(key) if callable(value) else value
                if at_key is not None:
                    found[key][kind] = at_key
    return found


def by_name(collection):
    return {key_split(key): found for key, found in annotations(collection).items()}


def test_annotations_of_a_call_hold_for_both_its_passes():
    v = dg.variable(X, "x")
    given = {"workers": ["a"], "priority": 3, "retries": 2, "resources": {"GPU": 1}}
    with dask.annotate(**given):
        y = double(v)
    with dask.annotate(retries=7):
        total = energy(y)
    _, gradient = dg.differentiate(total, v)
    found = by_name(gradient)
    for stage in ("forward", "value", "backward"):
        assert found[f"{stage}-double"] == given
        assert found[f"{stage}-energy"] == {"retries": 7}
    assert found["value-x"] == found["cotangent-x"] == {}
    assert by_name(total)["value-double"] == given


def test_annotations_of_a_sum_hold_for_its_blocks_and_its_adders():
    v = dg.variable(X, "x")
    with dask.annotate(priority=5):
        total = dg.map_sum(lambda i, x: i * np.sum(x), [1.0, 2.0, 3.0], v, grainsize=1)
    found = by_name(dg.differentiate(total, v)[1])
    assert [found[f"{stage}-lambda"] for stage in ("forward", "backward")] == [{"priority": 5}] * 2


AROUND = [  # annotations of a call, and around the evaluation; what both mean for it, and others
    ({"priority": 1}, {"retries": 4}, {"priority": 1, "retries": 4}, {"retries": 4}),
    ({"retries": 1}, {"retries": 4}, {"retries": 1}, {"retries": 4}),
    ({}, {"priority": 2}, {"priority": 2}, {"priority": 2}),
]


@pytest.mark.parametrize(("of_call", "around", "at_call", "elsewhere"), AROUND)
def test_annotations_around_the_evaluation_hold_where_calls_say_nothing_else(
    of_call, around, at_call, elsewhere
):
    v = dg.variable(X, "x")
    with dask.annotate(**of_call):
        y = double(v)
    total = energy(y)
    with dask.annotate(**around):
        _, gradient = dg.differentiate(total, v)
    named = by_name(gradient)
    assert named["forward-double"] == named["backward-double"] == at_call
    for name in ("forward-energy", "backward-energy", "value-x", "cotangent-x"):
        assert named[name] == elsewhere


def test_an_annotation_may_be_a_function_of_the_key():
    v = dg.variable(X)
    with dask.annotate(priority=lambda key: len(stage_of(key))):
        y = double(v)
    with dask.annotate(workers=lambda key: [stage_of(key)]):
        _, gradient = dg.differentiate(energy(y), v)
    for key, annotation in annotations(gradient).items():
        stage = stage_of(key)
        of_call = {"priority": len(stage)} if key_split(key).endswith("double") else {}
        assert annotation == {"workers": [stage], **of_call}


@pytest.mark.parametrize("number", [0, 1])
def test_annotated_workers_run_both_passes(client, number, tmp_path):
    log = tmp_path / "log"
    address = sorted(client.scheduler_info()["workers"])[number]

    def model(x):
        probes.write(log, f"forward {get_worker().address}")
        return probes.watched(x, log, "backward")

    def objective(x):
        with dask.annotate(workers=[address], allow_other_workers=False):
            ys = [dg.delayed(model)(x * float(n)) for n in range(4)]
        return dg.sum([energy(y) for y in ys])

    assert_allclose(dg.grad(objective)(X), 2.0 * X * (0 + 1 + 4 + 9))
    assert sorted(probes.lines(log)) == [f"backward {address}"] * 4 + [f"forward {address}"] * 4


def test_annotated_retries_run_a_model_again(client, tmp_path):
    log = tmp_path / "log"
    log.touch()

    def flaky(x):
        with open(log, "r+") as file:
            tries = len(file.read())
            file.write("x")
        if tries < 2:
            raise OSError("try again")
        return np.sum(x**2)

    def objective(x):
        with dask.annotate(retries=2):
            return dg.delayed(flaky)(x)

    assert_allclose(dg.grad(objective)(X), 2.0 * X)
    assert log.read_text() == "xxx"


# --------------------------------------------------------------------------- task graphs alone


def test_a_graph_is_one_layer_above_the_collections_it_uses():
    other = dask.delayed(lambda: X)()
    graph = double(other).__dask_graph__()
    assert len(graph.layers) == 1 + len(other.__dask_graph__().layers)


@pytest.mark.parametrize("what", ["value", "gradient"])
def test_no_task_of_ours_is_fused_by_other_collections(what):
    """Fused with its consumer, a forward task would send its residuals away, or run twice."""
    v = dg.variable(X)
    node = energy(double(v))
    asked = node if what == "value" else dg.differentiate(node, v)[1]
    graph = dict(asked.__dask_graph__())
    fused = fuse_linear_task_spec(graph, {asked.key})
    assert all(fused[key] is task for key, task in graph.items())


def test_an_array_of_a_node_and_the_process_scheduler_fuse_nothing(pool):
    array = pytest.importorskip("dask.array")
    v = dg.variable(X)
    _, gradient = dg.differentiate(energy(double(v)), v)
    chunk = array.from_delayed(dask.delayed(gradient), (3,), dtype=float)
    (optimized,) = dask.optimize(chunk + 1.0)
    ours = [key for key in optimized.__dask_graph__() if stage_of(key) in STAGES]
    assert {stage_of(key) for key in ours} == {"forward", "value", "backward"}
    with dask.config.set(scheduler="processes", pool=pool):
        assert_allclose((chunk + 1.0).compute(), 8.0 * X + 1.0)


# ------------------------------------------------ what is relied upon, and not promised by others


def test_dasks_task_classes_are_what_we_take_them_for():
    assert issubclass(Task, GraphNode)
    assert issubclass(DataNode, GraphNode)
    assert not Task("key", int, 1).block_fusion
    assert KeptTask("key", int, 1).block_fusion
    assert Task("key", operator.add, TaskRef("a"), 2).dependencies == {"a"}
    assert List(TaskRef("a"), 1).dependencies == {"a"}
    assert DataNode("key", [1])() == [1]
    assert Task("key", operator.add, 1, 2)() == 3
    assert pickle.loads(pickle.dumps(KeptTask("key", int, 1))).block_fusion
    assert issubclass(distributed.Future, TaskRef)
    assert single_key([5]) == 5


def test_a_layers_annotation_may_be_a_function_that_leaves_keys_out(client):
    """``dict.get`` is one; ``None`` must mean that a key is not annotated."""
    layer = MaterializedLayer(
        {("a", 0): Task(("a", 0), int, 1), ("b", 0): Task(("b", 0), int, 2)},
        annotations={"retries": {("a", 0): 5}.get},
    )
    graph = HighLevelGraph.from_collections("layer", layer)
    futures = client.get(graph, [("a", 0), ("b", 0)], sync=False)
    assert client.gather(futures) == [1, 2]
    assert client.run_on_scheduler(retries_of, ["('a', 0)", "('b', 0)"]) == [5, 0]


def retries_of(names, dask_scheduler):
    found = {str(key): task.retries for key, task in dask_scheduler.tasks.items()}
    return [found[name] for name in names]


def test_a_layers_own_annotations_are_not_merged_by_dask():
    """So we merge them with ``dask.get_annotations()`` ourselves."""
    with dask.annotate(retries=3):
        assert dask.get_annotations() == {"retries": 3}
        assert MaterializedLayer({}, annotations={"priority": 1}).annotations == {"priority": 1}
    assert dask.get_annotations() == {}


def test_optrees_registry_lists_the_classes_of_our_namespace():
    class Registered:
        pass

    assert optree.register_pytree_node.get(Registered, namespace=NAMESPACE) is None
    optree.register_pytree_node(
        Registered, lambda r: ((), None, None), lambda _, __: Registered(), namespace=NAMESPACE
    )
    entries = optree.register_pytree_node.get(namespace=NAMESPACE)
    entry = entries[Registered]
    assert entry is optree.register_pytree_node.get(Registered, namespace=NAMESPACE)
    assert {"flatten_func", "unflatten_func", "path_entry_type"} <= set(dir(entry))
    assert callable(entry.flatten_func)
    optree.unregister_pytree_node(Registered, namespace=NAMESPACE)


def test_dask_asks_a_collection_what_we_answer():
    from dask.base import DaskMethodsMixin
    from dask.typing import DaskCollection

    asked = {name for name in vars(DaskCollection) if name.startswith("__dask_")}
    assert {name for name in asked if not hasattr(dg.variable(1.0), name)} == set()
    assert {"compute", "persist", "visualize"} <= set(vars(DaskMethodsMixin))
    assert "rename" in inspect.signature(dg.variable(1.0)._with_graph).parameters


def test_a_task_never_sees_arrays_askew_which_numpy_adds_up_in_another_order():
    numbers = decades(20_000)
    assert np.sum(askew(numbers)) != np.sum(numbers)

    def summed(item):
        assert item["a"].flags.aligned
        return np.sum(item["a"])

    tasks = TaskGraph()
    reference = tasks.add(tasks.key("value", "sum"), summed, TaskRef("item"))
    task = tasks.high_level_graph()[reference.key]
    assert task({"item": {"a": askew(numbers)}}) == np.sum(numbers)


def test_parts_of_results_are_tasks_where_the_rest_of_a_graph_is_handed_over():
    """So that the part travels without the rest."""
    tasks = TaskGraph(Where.HERE)

    def add(fun, *args):
        return tasks.add(tasks.key("forward", "model"), fun, *args)

    whole = add(lambda: (1.0, "residuals"))
    part = tasks.pick("value", "model", lambda result, number: result[number], whole, 0)
    ends = [add(lambda x: 2.0 * x, part), add(lambda xs: 3.0 * xs[0], [part])]
    keys = [end.key for end in ends]

    here = {whole.key: tasks.run_one(whole.key, {})}
    assert [tasks.run_one(key, here) for key in keys] == [2.0, 3.0]
    for done, forward in (({}, 3), (here, 2)):
        rest = tasks.rest(keys, done)
        planned = rest.planned()
        assert [stage_of(key) for key in planned].count("forward") == forward
        (value,) = [key for key in planned if stage_of(key) == "value"]
        assert [planned[key] for key in keys] == [(value,), (value,)]
        assert rest.compute(keys) == (2.0, 3.0)


def test_threads_that_make_more_names_than_are_remembered(monkeypatch, quick_switches):
    monkeypatch.setattr(keys, "NAMES", 8)
    monkeypatch.setattr(keys, "_named", {})
    probes.in_threads(
        lambda thread, number: Names().key("value", "abcdefgh"[thread] + f"_{number}")
    )
    assert 0 < len(keys._named) <= 8 + 8


@pytest.mark.parametrize("where", ["here", "kept"])
def test_all_results_of_a_graph_are_one_collection(monkeypatch, where):
    """Of n collections Dask would look at n results for each of them."""
    handed = []
    monkeypatch.setattr(dask.base, "unpack_collections", lambda *args, **_: handed.append(args))
    xs = [X + n for n in range(20)]
    tasks = TaskGraph(Where.HERE)
    found = [tasks.add(("forward", n), np.sum, x).key for n, x in enumerate(xs)]
    if where == "kept":
        tasks = tasks.persist()
    assert_array_equal(tasks.compute(found), list(map(np.sum, xs)))
    assert handed == []
