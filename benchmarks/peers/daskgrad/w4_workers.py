from distributed import Client
from w4 import graph


def set_up(parts):
    client = Client(n_workers=2, threads_per_worker=1, dashboard_address=None)
    held = {k: client.scatter(part[:3], broadcast=True, hash=False) for k, part in parts.items()}
    return {"graph, two workers": graph(parts, held)}
