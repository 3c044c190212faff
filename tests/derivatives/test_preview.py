"""Pictures of a graph and its mirror show the tasks that run, with what they return."""

import re
import shutil
import sys
import xml.etree.ElementTree as xml
from collections import Counter

import autograd.numpy as np
import numpy
import pytest
from small_models import term

import daskgrad as dg
from daskgrad.dashboards import drawing
from daskgrad.dashboards.progress import PASS_OF

pytest.importorskip("graphviz")
if shutil.which("dot") is None:
    pytest.skip("needs Graphviz: apt-get install graphviz", allow_module_level=True)

X = numpy.linspace(0.1, 1.0, 6).reshape(3, 2)
EVIL = '<script>\\n"a"'
RUNS = Counter()


@pytest.fixture(autouse=True)
def none_has_run():
    RUNS.clear()


def wave(x):
    RUNS["wave"] += 1
    return np.sin(x)


def total(y):
    RUNS["total"] += 1
    return np.sum(y * y)


def graph(x):
    y = dg.delayed(wave)(x)
    return dg.delayed(total)(y) + dg.delayed(total)(dg.delayed(wave)(y))


def boxes(picture):
    """How often each pair of stage and model, and what it tells, are in a picture."""
    labels = re.findall(r'^\s*\d+ \[label="(.*?)" ', picture.source, re.M)
    return Counter([tuple(label.split("\\n")) for label in labels])


def test_the_boxes_are_the_tasks_that_run(scheduler, tmp_path):
    """What a report counts while the same gradient is evaluated, and the variable."""
    pytest.importorskip("bokeh")
    found = boxes(dg.visualize(graph, X))
    with dg.report(tmp_path / "run.html") as records:
        dg.grad(graph)(X)
    (evaluation,) = records.evaluations.values()
    expected = {kind: count.total for kind, count in evaluation.counts.items()}
    drawn = Counter()
    for (model, stage, _), count in found.items():
        drawn[stage, model] += count
    assert drawn.pop(("variable", "x")) == 1
    at_end = drawn.pop(("cotangent", "x"))
    assert at_end == 1
    expected.pop(("cotangent", "x"), None)
    expected.pop(("value", "x"), None)
    expected = {kind: count for kind, count in expected.items() if kind in drawn or count}
    assert drawn == expected
    assert {PASS_OF[stage] for stage, _ in drawn} == {"forward", "backward"}


def test_the_labels_tell_the_shapes(synchronous):
    labels = boxes(dg.visualize(graph, X))
    for label, count in {
        ("x", "variable", "float64[3, 2]"): 1,
        ("wave", "forward", "float64[3, 2]"): 2,
        ("total", "forward", "float64[]"): 2,
        ("total", "backward", "float64[3, 2]"): 2,
        ("add", "backward", "float64[]; float64[]"): 1,
        ("x", "cotangent", "float64[3, 2]"): 1,
    }.items():
        assert labels[label] == count
    with dg.debug_nans():
        labels = boxes(dg.visualize(lambda p: dg.delayed(total)(p["a"]), {"a": X, "b": X}))
    assert labels["p", "variable", "float64[3, 2]"] == 1
    assert labels["total", "backward", "float64[3, 2]"] == 1


def test_without_shapes_no_model_runs(synchronous):
    found = boxes(dg.visualize(graph, X, shapes=False))
    assert found["wave", "forward"] == 2
    assert RUNS == {}
    dg.visualize(graph, X)
    assert RUNS == {"wave": 2, "total": 2}


def test_each_backward_task_stands_beside_its_forward_task(synchronous):
    source = dg.visualize(graph, X, shapes=False).source
    stages = dict(re.findall(r'^\s*(\d+) \[label="\w+\\n(\w+)" ', source, re.M))
    names = dict(re.findall(r'^\s*(\d+) \[label="(\w+)\\n', source, re.M))
    pairs = re.findall(r"(\d+) -> (\d+) \[.*style=dashed\]", source)
    assert len(pairs) == 5
    for forward, backward in pairs:
        assert (stages[forward], stages[backward]) == ("forward", "backward")
        assert names[forward] == names[backward]
    (ends,) = re.findall(r"(\d+) -> (\d+) \[.*style=invis\]", source)
    assert [(names[end], stages[end]) for end in ends] == [("x", "variable"), ("x", "cotangent")]
    upwards = re.findall(r"(\d+) -> (\d+) \[dir=back\]", source)
    assert {stages[end] for pair in upwards for end in pair} == {"backward", "cotangent"}


def test_a_model_has_one_hue(synchronous):
    source = dg.visualize(graph, X, shapes=False).source
    outlines = re.findall(r'label="(\w+)\\n.*? color="(#\w+)"', source)
    assert len(set(outlines)) == len({name for name, _ in outlines}) == 4


def test_of_many_tasks_those_that_do_the_same_are_one_box(synchronous):
    items = [float(number) for number in range(100)]
    found = boxes(dg.visualize(lambda x: dg.map_sum(term, items, x, grainsize=1), X))
    assert found["term", "forward × 100", "float64[]"] == 1
    assert sum(found.values()) < 12
    few = boxes(dg.visualize(lambda x: dg.map_sum(term, items[:9], x, grainsize=1), X))
    assert few["term", "forward", "float64[]"] >= 9


def test_a_node_draws_itself_for_a_cotangent_of_ones(synchronous):
    x = dg.variable({"a": X, "b": X[0]}, name="x")
    found = boxes(dg.visualize(dg.delayed(wave)(x["a"])))
    assert found["x", "variable", "float64[3, 2]"] == 1
    assert found["wave", "backward", "float64[3, 2]"] == 1
    constant = boxes(dg.visualize(dg.delayed(wave)(X)))
    assert constant == {("wave", "value", "float64[3, 2]"): 1}


def test_names_are_escaped_and_the_format_is_the_suffix(synchronous, tmp_path):
    file = tmp_path / "graph.svg"
    dg.visualize(dg.delayed(total, name=EVIL), X, filename=str(file))
    texts = [each.text for each in xml.parse(file).iter() if each.tag.endswith("text")]
    assert EVIL in texts
    assert "<script>" not in file.read_text()
    dg.visualize(graph, X, filename=str(tmp_path / "graph.png"), shapes=False)
    assert (tmp_path / "graph.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture(params=["program", "package"])
def no_graphviz(request, monkeypatch):
    """What an error says to install."""
    if request.param == "program":
        monkeypatch.setenv("PATH", "")
        return RuntimeError, "program dot, which is not on the PATH: install"
    monkeypatch.setitem(sys.modules, "graphviz", None)
    return ModuleNotFoundError, r"package graphviz, which is not installed: run .*\[visualize\]"


def test_without_graphviz_it_is_the_text_of_a_flowchart(no_graphviz, synchronous, tmp_path):
    text = dg.visualize(graph, X)
    labels = re.findall(r'^    (\d+)[\[(]+"(\w+)<br>(\w+)<br>(.*?)"', text, re.M)
    names = {number: (stage, name) for number, name, stage, _ in labels}
    assert ("x", "variable", "float64#91;3, 2#93;") in [label[1:] for label in labels]
    arrows = [(names[a], names[b]) for a, b in re.findall(r"(\d+) --> (\d+)", text)]
    assert (("forward", "wave"), ("forward", "total")) in arrows
    assert (("backward", "total"), ("backward", "wave")) in arrows
    pairs = [(names[a], names[b]) for a, b in re.findall(r"(\d+) -\.- (\d+)", text)]
    assert len(pairs) == 5
    assert all(a[0] == "forward" and b == ("backward", a[1]) for a, b in pairs)
    assert repr(text) == text.source == text._repr_mimebundle_()["text/vnd.mermaid"] == text
    dg.visualize(dg.delayed(total, name=EVIL), X, filename=str(tmp_path / "graph.mmd"))
    assert "#60;script#62;#92;n#34;a#34;<br>forward" in (tmp_path / "graph.mmd").read_text()
    assert dg.visualize(dg.variable(X)).startswith("flowchart TD")


def test_a_file_that_needs_graphviz_is_an_error_before_anything_runs(no_graphviz):
    kind, message = no_graphviz
    with pytest.raises(kind, match=message) as caught:
        dg.visualize(graph, X, filename="graph.svg")
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert RUNS == {}


def test_colours_of_texts_read():
    assert drawing.is_light("#B8D8E9")
    assert not drawing.is_light("#005686")
