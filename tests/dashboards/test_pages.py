"""The pages on a scheduler's dashboard: mounted, shown where nothing has run yet, and still right
after workers, clients and whole clusters have come and gone.
"""

import asyncio
import math
import urllib.request
from html.parser import HTMLParser

import dask
import numpy as np
import pytest
from clusters import cluster, kill
from distributed import Client, LocalCluster
from small_models import EVIL, X, graph, term, total
from waiting import SLOW, wait_until

import daskgrad as dg

pytest.importorskip("bokeh")
from bokeh.document import Document
from bokeh.models import Range, Range1d

from daskgrad.autodiff.values import descriptions
from daskgrad.dashboards.local import LocalObserver
from daskgrad.dashboards.pages import PAGES, SHARE, Turns, View, gradient, plots
from daskgrad.dashboards.pages.gradient import current_of, state_of
from daskgrad.dashboards.palette import HUES, INK, SHADES, shade
from daskgrad.dashboards.recorder import CallRecord, MemorySample, Recorder, Row, Task
from daskgrad.derivatives import evaluation
from daskgrad.tasks.observers import observed_by

STOCK = ("status", "workers", "tasks", "system", "profile", "graph", "groups")


def get(client, page):
    with urllib.request.urlopen(
        client.dashboard_link.replace("status", page), timeout=30 * SLOW
    ) as answer:
        return answer.read().decode()


def recorder_of(client):
    return client.cluster.scheduler.plugins["daskgrad-recorder"].recorder


class Links(HTMLParser):
    """The links in a page's navigation bar."""

    def __init__(self, page):
        super().__init__()
        self.found = set()
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.found.add(dict(attributes).get("href"))


# ------------------------------------------------------------------------------------ mounting


def test_every_page_leads_to_the_gradients_and_back():
    routes = {page.route for page in PAGES}
    with cluster(processes=False, protocol="tcp://", n_workers=1) as client:
        assert dg.dashboards.mount(client).endswith("/gradient")
        assert dg.dashboards.mount(client).endswith("/gradient")
        for page in STOCK:
            assert routes <= Links(get(client, page)).found, page
        for page in routes:
            assert routes | set(STOCK) <= Links(get(client, page)).found, page
        assert get(client, "status").count('href="gradient"') == 1, "mounted twice, shown once"
        assert "max-width: 1180px" in get(client, "statics/css/base.css")


def test_what_runs_is_counted(mounted):
    records = recorder_of(mounted)
    for _ in range(3):
        dg.value_and_grad(graph)(X)
    assert records.evaluation_count == 3
    for record in records.evaluations.values():
        counts = {kind: (each.total, each.done) for kind, each in record.counts.items()}
        assert counts["forward", "total"] == counts["backward", "total"] == (1, 1)
        assert all(total == done for total, done in counts.values())
    assert sorted(records.names.values()) == [EVIL, "total", "x"]


def test_tasks_that_two_graphs_share_are_counted_once(mounted):
    """The value of what is held is fetched after the tasks were submitted."""
    evaluations = recorder_of(mounted).evaluations
    _, pullback = dg.vjp(graph, X)
    held = len(mounted.cluster.scheduler.tasks)
    assert sum([each.total for each in evaluations.values()]) == held > 2
    pullback(1.0)
    wait_until(lambda: all(each.is_done for each in evaluations.values()))


def test_an_asynchronous_client_is_told_what_to_do():
    async def call():
        options = {"processes": False, "n_workers": 1, "dashboard_address": "127.0.0.1:0"}
        async with Client(asynchronous=True, **options) as client:
            with pytest.raises(TypeError, match="takes no asynchronous client"):
                dg.dashboards.mount(client)

    asyncio.run(call())


def test_models_have_hues_of_their_own_in_the_order_of_their_names():
    names = ["load", "left", "right", "merge", "climate", "ocean", "economy", "penalty"]
    recorders = [Recorder(), Recorder()]
    for recorder in recorders:
        for name in names:
            recorder.learn_name(name, name)
    one, other = [plots.View(gradient.PAGE, recorder) for recorder in recorders]
    colours = [one.colour(name, "forward") for name in names]
    assert len(set(colours)) == len(names)
    assert [other.colour(name, "forward") for name in reversed(names)] == colours[::-1]


def test_models_keep_the_order_of_the_program(mounted):
    def objective(x):
        a, b, c, d, e = [dg.delayed(np.sin, name=name) for name in "abcde"]
        y = a(x)
        return dg.delayed(np.sum)(e(b(y) + c(y)) * d(x))

    with dask.config.set({"daskgrad.inline.seconds": 0}):
        for _ in range(4):
            dg.value_and_grad(objective)(np.ones(3))
    evaluations = list(recorder_of(mounted).evaluations.values())
    assert len(evaluations) == 4
    orders = {tuple(gradient.counts_of(evaluation)) for evaluation in evaluations}
    assert orders == {("a", "b", "c", "add", "e", "d", "multiply", "sum")}


def test_an_evaluation_that_fails_is_over(mounted):
    """Tasks that will not run leave it, and the page shows those that do."""

    def fails(x):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        dg.grad(lambda x: graph(dg.delayed(fails)(x)))(X)
    dg.grad(graph)(X)
    evaluations = recorder_of(mounted).evaluations.values()
    states = [("failed", True), ("done", True)]
    wait_until(lambda: [(state_of(each), each.is_done) for each in evaluations] == states)


def test_direct_calls_and_recorded_runs_are_counted(mounted):
    records = recorder_of(mounted)
    gradient = dg.grad(lambda x: dg.map_sum(term, shards, x, name="likely"))
    with dg.place([1.0, 2.0, 3.0, 4.0], grainsize=1) as shards, dg.record("fit"):
        for _ in range(20):
            gradient(X)
        wait_until(lambda: records.call_count == 40)
        wait_until(lambda: placed_bytes(records) > 0)
    wait_until(lambda: [run.count for run in records.runs.values()] == [20])
    assert sorted(records.models["likely"].blocks) == [0, 1, 2, 3]


def calls_of(evaluation):
    return sum([count.calls for count in evaluation.counts.values()])


@pytest.mark.parametrize("is_here", [True, False])
def test_an_evaluation_over_placed_items_is_whole(mounted, monkeypatch, is_here):
    """The pages see what workers evaluate directly, and what runs in the client or as tasks."""
    monkeypatch.setattr(evaluation, "spares_cluster", lambda *_: is_here)
    records = recorder_of(mounted)
    with dg.place([1.0, 2.0, 3.0, 4.0], grainsize=1) as shards:
        likely = dg.delayed(term, name="likely")
        gradient = dg.grad(lambda x: dg.map_sum(likely, shards, x) + dg.delayed(total)(x))
        for _ in range(3):
            gradient(X)
        evaluations = records.evaluations.values()
        wait_until(lambda: [(calls_of(e), e.is_done) for e in evaluations] == [(12, True)] * 3)
    assert records.evaluation_count == 3
    for record in evaluations:
        shown = {kind: count.shown for kind, count in record.counts.items() if count.calls}
        assert shown == {
            (stage, model): (calls, calls)
            for stage in ("forward", "backward")
            for model, calls in {"likely": 4, "total": 1, "add": 1}.items()
        }
    if is_here:
        (client,) = records.models["total"].workers
        assert client.startswith("client ")
    tasks = [(task.stage, task.model) for task in records.tasks]
    assert ("forward", "likely") not in tasks, "workers tell what it took"
    view = drawn(PAGES[1], records)
    nodes, edges = view.sources["nodes"].data, view.sources["edges"].data
    for stage in ("forward", "backward"):
        assert nodes["stage"].count(stage) == 3
    ends = {
        *zip(edges["x0"], edges["y0"], strict=True),
        *zip(edges["x1"], edges["y1"], strict=True),
    }
    places = zip(nodes["x"], nodes["y"], nodes["model"], strict=True)
    loose = [model for x, y, model in places if (x, y) not in ends]
    assert loose == [], "no dot is without a line"


def test_an_evaluation_that_fails_in_the_client_is_over(mounted):
    records = recorder_of(mounted)

    def fails(x):
        raise ValueError("no")

    with dg.place([1.0, 2.0], grainsize=1) as shards:
        with pytest.raises(ValueError, match="no"):
            dg.grad(lambda x: dg.map_sum(term, shards, x) + dg.delayed(fails)(x))(X)
        evaluations = records.evaluations
        wait_until(lambda: [state_of(each) for each in evaluations.values()] == ["failed"])
    assert next(iter(evaluations.values())).is_done


def placed_bytes(records):
    samples = list(records.memory)[-1:]
    return sum([held.get("placed items", 0) for s in samples for held in s.held.values()])


def test_nothing_is_recorded_where_it_is_not_mounted(client):
    dg.value_and_grad(graph)(X)
    plugins = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.plugins))
    assert not [name for name in plugins if "recorder" in name]


@pytest.mark.long
def test_a_restart_and_a_client_that_leaves_change_nothing(frail):
    dg.dashboards.mount(frail)
    before = recorder_of(frail).evaluation_count
    with Client(frail.scheduler.address, set_as_default=True) as other:
        dg.dashboards.mount(other)
        dg.value_and_grad(graph)(X)
    with frail.as_current():
        frail.restart()
        dg.value_and_grad(graph)(X)
    wait_until(lambda: recorder_of(frail).evaluation_count == before + 2)
    for page in PAGES:
        drawn(page, recorder_of(frail))


@pytest.mark.long
def test_two_clusters_of_one_process_have_records_of_their_own(mounted):
    with cluster(processes=False, protocol="tcp://", n_workers=1) as other:
        dg.dashboards.mount(other)
        dg.value_and_grad(graph)(X)
        wait_until(lambda: recorder_of(other).evaluation_count == 1)
        assert get(other, "gradient")
    assert recorder_of(mounted).evaluation_count == 0


def test_a_worker_that_dies_leaves_the_memory(frail):
    dg.dashboards.mount(frail)
    _, pullback = dg.vjp(graph, X)

    def sample(dask_scheduler):
        dask_scheduler.plugins["daskgrad-recorder"].sample()

    def holders():
        frail.run_on_scheduler(sample)
        held = recorder_of(frail).memory[-1].held.items()
        return [address for address, kinds in held if kinds.get("pullbacks")]

    address, *_ = holders()
    kill(frail, address)
    wait_until(lambda: address not in holders())
    assert len(pullback(1.0)[0]) == 3
    drawn(PAGES[2], recorder_of(frail))


@pytest.mark.filterwarnings("ignore:Port 8787 is already in use:UserWarning")  # by others, when
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # Dask leaves one open
def test_a_scheduler_without_a_dashboard_says_so():
    options = {"dashboard_address": None, "processes": False, "n_workers": 1}
    with LocalCluster(**options) as local, Client(local) as client:
        with pytest.raises(RuntimeError, match=r"has no dashboard.*dashboard_address"):
            dg.dashboards.mount(client)


@pytest.mark.long
@pytest.mark.timeout(60)
def test_a_scheduler_that_preloads_the_pages_has_them():
    options = {"scheduler_kwargs": {"preload": ["daskgrad.dashboards"]}}
    with cluster(processes=False, protocol="tcp://", n_workers=1, **options) as client:
        assert 'href="gradient-graph"' in get(client, "gradient")
        dg.value_and_grad(graph)(X)
        wait_until(lambda: recorder_of(client).evaluation_count == 1)


# ------------------------------------------------------------------------------------ drawing


def drawn(page, recorder):
    """What the data sources of a view hold after one update, by column."""
    document = Document()
    view = View(page, recorder)
    document.add_root(view.layout)
    view.update()
    document.validate()
    return view


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_of_nothing_says_what_to_do(page):
    view = drawn(page, Recorder())
    assert view.empty.visible
    assert not view.drawn.visible
    assert "<code>" in view.empty.text


@pytest.fixture(scope="module")
def full():
    """Records of a few evaluations in line."""
    found = Recorder()
    with dask.config.set({"daskgrad.inline.seconds": 60}), observed_by(LocalObserver(found)):
        for _ in range(3):
            dg.value_and_grad(graph)(X)
            dg.value_and_grad(lambda x: dg.map_sum(term, [1.0, 2.0], x))(X)
    return found


def test_the_gradient_page_shows_what_ran(full):
    view = drawn(PAGES[0], full)
    counts = current_of(full, False).counts.values()
    assert sum(view.sources["cells"].data["total"]) == sum([count.calls for count in counts]) > 2
    bars, shown = view.sources["bars"].data, view.figures["time line"].x_range
    assert len(bars["left"]) == full.task_count
    assert shown.start < min(bars["left"]) < max(bars["right"]) < shown.end
    assert full.task_count == sum([each.total for each in full.evaluations.values()])


def test_the_graph_page_mirrors_forward_and_backward():
    found = Recorder()
    with dask.config.set({"daskgrad.inline.seconds": 60}), observed_by(LocalObserver(found)):
        dg.value_and_grad(graph)(X)
    nodes = drawn(PAGES[1], found).sources["nodes"].data
    places = list(zip(nodes["stage"], nodes["model"], strict=True))
    height, side = (dict(zip(places, nodes[axis], strict=True)) for axis in "yx")
    for model in (EVIL, "total"):
        assert height["forward", model] == height["backward", model]
        assert side["forward", model] < 0 < side["backward", model]
    assert set(nodes["state"]) == {"done"}


def test_a_wide_graph_is_drawn_by_stage_and_model():
    records = Recorder()
    leaves = [((f"forward-leaf-{0:032x}", 1, n), "forward", "leaf", ()) for n in range(60)]
    records.plan("e", [*leaves, ("top", "forward", "sum", [key for key, *_ in leaves])])
    view = drawn(PAGES[1], records)
    assert view.sources["names"].data["text"] == ["sum 0 / 1", "leaf 0 / 60"]
    assert len(view.sources["edges"].data["x0"]) == 1
    assert "One node stands for all tasks" in view.texts["header"].text


def test_names_side_by_side_are_at_two_heights():
    records = Recorder()
    records.plan("e", [(n, "forward", f"model {n}", ()) for n in range(9)])
    heights = drawn(PAGES[1], records).sources["names"].data["offset"]
    assert heights == [-11, -24, -11, -24, -11, -24, -11, -24, -11]


def test_lanes_of_direct_calls_have_a_name_below_the_threads():
    found = Recorder()
    for worker in ("tcp://a:1", "tcp://b:1"):
        found.add_call(CallRecord("likely", worker, found.begin, found.begin + 1.0, 3, 6, 0.3))
    found.add_task(Task("k", "forward", "m", "e", "tcp://a:1", 7, found.begin, found.begin + 1.0))
    labels = drawn(PAGES[0], found).figures["time line"].yaxis.major_label_overrides
    assert list(labels.values()) == ["a:1", "direct calls", "b:1\ndirect calls"]


def test_the_memory_page_has_the_range_of_what_is_held():
    """A limit of some GiB, in which a few kB would not be seen, stands beside the worker."""
    found = Recorder()
    held = {"pullbacks": 3000, "values": 1000, "process": 2**28, "spilled": 0}
    found.add_memory(MemorySample(found.begin, {"tcp://a:1": held}, {"tcp://a:1": 2**32}, 0))
    view = drawn(PAGES[2], found)
    assert 4000 < view.figures["workers"].x_range.end < 4400
    labels = view.figures["workers"].yaxis.major_label_overrides
    assert labels == {0.5: "a:1\nuses 256 MiB of 4 GiB"}
    legend = view.figures["over time"].legend[0].items
    assert [item.label["value"] for item in legend if item.visible] == ["pullbacks", "values"]


def test_a_run_that_is_hidden_leaves_the_ranges():
    """All runs are on one logarithmic axis, above the lowest value of all, whatever its sign."""
    found = Recorder()
    for name, values in (("fit", [5.0, -2.0, -3.0]), ("diverges", [5.0, 1e30])):
        rows = [Row(n, float(n), value, 1.0, 1.0) for n, value in enumerate(values)]
        found.add_rows(name, name, found.begin, rows)
    view = drawn(PAGES[4], found)
    heights = view.sources["run 0"].data["above"]
    assert (heights[:2], math.isnan(heights[2])) == ([8.0, 1.0], True)
    made = view.figures["Value above the lowest of all runs by evaluation"]
    legend = made.legend[0].items
    assert [item.label["value"] for item in legend if item.visible] == ["fit", "diverges"]
    assert made.y_range.end > 1e30
    drawn_glyphs = [glyph for plot in view.figures.values() for glyph in plot.renderers]
    (line,) = legend[1].renderers
    linked = {callback.args["other"] for callback in line.js_property_callbacks["change:visible"]}
    assert linked | {line} == {glyph for glyph in drawn_glyphs if glyph.name == "run 1"}
    for glyph in linked:  # as a click on the legend does in the browser
        glyph.visible = False
    line.visible = False
    assert made.y_range.end == 12.0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_browsers_find_out_no_range(page, full):
    """They would send each one back, also to pages that are being closed."""
    found = [*drawn(page, full).layout.select({"type": Range})]
    assert {type(each) for each in found} <= {Range1d}
    assert all((each.start, each.end) == (each.reset_start, each.reset_end) for each in found)


def test_the_time_line_gets_what_is_new_and_a_lane_for_each_thread():
    found = Recorder()
    view = drawn(PAGES[0], found)

    def add(number, thread):
        times = (found.begin + number, found.begin + number + 0.5)
        found.add_task(Task(number, "forward", "m", "e", "tcp://a:1", thread, *times))

    lanes = []
    for number, thread in enumerate([7, 7, 3, 7]):
        add(number, thread)
        view.update()
        view.update()
        bars = view.sources["bars"].data
        assert bars["left"] == pytest.approx(list(range(number + 1)))
        lanes.append([int(top) for top in bars["top"]])
    assert lanes == [[0], [0, 0], [1, 1, 0], [1, 1, 0, 1]]
    assert view.figures["time line"].yaxis.major_label_overrides == {0.5: "a:1", 1.5: ""}


def test_a_range_follows_unless_somebody_has_moved_it():
    shown = plots.fixed(0.0, 1.0)
    plots.show(shown, 0.0, 2.0)
    assert (shown.start, shown.end) == (0.0, 2.0)
    shown.start = 1.5  # as a browser's tool does
    plots.show(shown, 0.0, 3.0)
    assert (shown.start, shown.end, shown.reset_end) == (1.5, 2.0, 3.0)
    shown.update(start=shown.reset_start, end=shown.reset_end)  # as the tool reset does
    plots.show(shown, 0.0, 4.0)
    assert (shown.start, shown.end) == (0.0, 4.0)


def test_a_range_is_around_all_finite_numbers():
    assert plots.around([1.0, float("nan"), 3.0, float("inf")], 0.5) == (0.0, 4.0)
    assert plots.around([2.0], 0.5) == (1.0, 3.0)
    assert plots.around([], 0.5) == (-0.5, 0.5)


def test_names_are_escaped_in_html():
    assert EVIL not in descriptions.table(EVIL, (EVIL,), [(EVIL,)])
    assert EVIL not in plots.empty(EVIL, EVIL).text


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one, other):
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


def test_texts_read_and_shades_of_a_model_are_told_apart_without_colour():
    for ground in ("#FFFFFF", "#15191E"):
        assert contrast(INK, ground) > 4.0
    for number in range(len(HUES)):
        assert contrast(shade(number, "forward"), shade(number, "backward")) > 2.5
    shades = sorted(SHADES, key=SHADES.get)
    assert shades == ["cotangent", "backward", "call", "tangent", "forward", "value"]


class SlowView:
    """A page whose update takes 4 ms."""

    updates = 0

    def __init__(self, clock):
        self.clock = clock

    def update(self):
        self.clock.move(0.004)
        self.updates += 1


def test_all_open_pages_together_take_a_share_of_the_scheduler(clock):
    turns = Turns()
    views = [SlowView(clock) for _ in range(5)]
    for view in views:
        turns.add(view)
    while clock.now < 100.0:
        clock.move(0.1)
        for view in views:
            turns.update(view)
    counts = [view.updates for view in views]
    assert max(counts) - min(counts) <= 1
    assert 0.9 * SHARE < 0.004 * sum(counts) / clock.now < 1.1 * SHARE
    del view, views[2:]
    before, begun = views[0].updates, clock.now
    while clock.now < begun + 100.0:
        clock.move(0.1)
        turns.update(views[0])
    assert views[0].updates - before > 2 * min(counts)  # there are two pages now
