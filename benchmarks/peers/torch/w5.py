import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
from by_hand import logistic

HELD = []


def hold(shards):
    torch.set_num_threads(1)
    HELD.extend(shards)


def with_torch(rows, x):
    y, X = map(torch.from_numpy, rows)
    beta = torch.tensor(x, requires_grad=True)
    eta = X @ beta
    total = torch.sum(y * eta - torch.nn.functional.softplus(eta))
    total.backward()
    return total.item(), beta.grad.numpy()


def added(parts):
    return sum(value for value, _ in parts), sum(gradient for _, gradient in parts)


def evaluate(kernel, beta):
    return added([kernel(rows, beta) for rows in HELD])


def join(rank):
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=1,
        rpc_timeout=300,
        init_method="tcp://127.0.0.1:29519",
        _transports=["uv"],
    )
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=3, rpc_backend_options=options)
    if rank:
        rpc.shutdown()


def set_up(shards):
    for rank in (1, 2):
        mp.get_context("spawn").Process(target=join, args=(rank,), daemon=True).start()
    join(0)
    for rank, half in ((1, shards[:4]), (2, shards[4:])):
        rpc.rpc_sync(f"w{rank}", hold, (half,))

    def asked(kernel):
        def both(beta):
            calls = [rpc.rpc_async(f"w{rank}", evaluate, (kernel, beta)) for rank in (1, 2)]
            return added([call.wait() for call in calls])

        return both

    return {"RPC": asked(with_torch), "RPC, gradient by hand in NumPy": asked(logistic)}
