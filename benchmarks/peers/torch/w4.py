import torch
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

HELD = {}


def hold(parts):
    torch.set_num_threads(1)
    HELD.update({key: [torch.tensor(each) for each in part[:3]] for key, part in parts.items()})


def component(key, us, p):
    M, B, C = HELD[key]
    b = B @ sum(us)
    x = b
    for _ in range(50):
        x = torch.tanh(p * torch.linalg.solve(M + torch.diag(x), b))
    return C @ x


def join(rank):
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=2,
        rpc_timeout=300,
        init_method="tcp://127.0.0.1:29517",
        _transports=["uv"],
    )
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=3, rpc_backend_options=options)
    if rank:
        rpc.shutdown()


def set_up(parts):
    for rank in (1, 2):
        mp.get_context("spawn").Process(target=join, args=(rank,), daemon=True).start()
    join(0)
    for rank in (1, 2):
        rpc.rpc_sync(f"w{rank}", hold, (parts,))

    def both(x):
        u = torch.tensor(x[:5], requires_grad=True)
        ps = {key: torch.tensor(p, requires_grad=True) for key, p in zip(parts, x[5:], strict=True)}
        outputs = {}
        with dist_autograd.context() as context:
            for layer in range(5):
                asked = {}
                for k in range(10):
                    key = layer, k
                    us = [outputs[b] for b in parts[key][3]] or [u]
                    asked[key] = rpc.rpc_async(f"w{1 + k % 2}", component, (key, us, ps[key]))
                outputs.update({key: call.wait() for key, call in asked.items()})
            value = sum(torch.sum(outputs[4, k] ** 2) for k in range(10))
            dist_autograd.backward(context, [value])
            of = dist_autograd.get_gradients(context)
        return value.item(), [of[each].numpy() for each in (u, *ps.values())]

    return {"dist_autograd, two workers": both}
