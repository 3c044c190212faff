import torch

torch.set_num_threads(1)


def slope(u, p):
    x, y, z = u
    return torch.stack(
        [
            p[0] * x * (1 - x) - p[1] * x * y,
            p[2] * x * y - p[3] * y * z - p[5] * y,
            p[4] * y * z - p[5] * z,
        ]
    )


def step(u, p, h=0.02):
    a = slope(u, p)
    b = slope(u + 0.5 * h * a, p)
    c = slope(u + 0.5 * h * b, p)
    d = slope(u + h * c, p)
    return u + h / 6 * (a + 2 * b + 2 * c + d)


def set_up(starts, observed):
    start, seen = torch.tensor(starts.T.copy()), torch.tensor(observed.transpose(1, 2, 0).copy())

    def both(p):
        p = torch.tensor(p, requires_grad=True)
        u, total = start, 0.0
        for each in seen:
            for _ in range(20):
                u = step(u, p)
            total = total + torch.sum((u - each) ** 2)
        total.backward()
        return total.item(), p.grad.numpy()

    return {"eager, all terms as one": both}
