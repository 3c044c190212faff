"""What viewers of Chrome's trace event format demand of a trace; Perfetto drops what breaks it."""

from collections import defaultdict
from numbers import Real

SLICES, FLOWS, METADATA = "X", "sf", "M"


def problems(trace):
    """What is wrong with a trace, in words."""
    events = trace["traceEvents"]
    found = [text for event in events for text in of_event(event)]
    if found:
        return found
    slices = defaultdict(list)
    for event in events:
        if event["ph"] == SLICES:
            slices[place(event)].append((event["ts"], event["ts"] + event["dur"]))
    named = {place(e) for e in events if e["name"] == "thread_name"}
    processes = {e["pid"] for e in events if e["name"] == "process_name"}
    found += [f"no name of thread {each}" for each in slices if each not in named]
    found += [f"no name of process {pid}" for pid, _ in slices if pid not in processes]
    found += [f"overlap on {each}" for each, spans in slices.items() if overlap(spans)]
    return [*found, *of_flows([e for e in events if e["ph"] in FLOWS], slices)]


def of_event(event):
    for key, kind in (("name", str), ("ph", str), ("pid", int), ("tid", int)):
        if type(event.get(key)) is not kind:
            yield f"{key} of {event}"
    if event.get("ph") not in (SLICES, *FLOWS, METADATA):
        yield f"ph of {event}"
    times = {"X": ("ts", "dur"), "s": ("ts",), "f": ("ts",)}.get(event.get("ph"), ())
    for key in times:
        if not isinstance(event.get(key), Real) or event[key] < 0:
            yield f"{key} of {event}"
    if event.get("ph") == METADATA and type(event["args"].get("name")) is not str:
        yield f"args of {event}"


def of_flows(flows, slices):
    by_id = defaultdict(list)
    for event in flows:
        by_id[event["cat"], event["name"], event["id"]].append(event)
    for name, pair in by_id.items():
        if sorted([event["ph"] for event in pair]) != ["f", "s"]:
            yield f"flow {name} has not one start and one end"
            continue
        start, end = sorted(pair, key=lambda event: event["ph"], reverse=True)
        if start["ts"] > end["ts"]:
            yield f"flow {name} ends before it starts"
        if end.get("bp") != "e":
            yield f"flow {name} does not end in the enclosing slice"
        for event in pair:
            if not any(a <= event["ts"] <= b for a, b in slices[place(event)]):
                yield f"flow {name} is bound to no slice"


def overlap(spans):
    """Whether two slices of a thread overlap, and neither is within the other."""
    within = []
    for start, stop in sorted(spans, key=lambda span: (span[0], -span[1])):
        while within and within[-1] <= start:
            within.pop()
        if within and stop > within[-1]:
            return True
        within.append(stop)
    return False


def place(event):
    return event["pid"], event["tid"]
