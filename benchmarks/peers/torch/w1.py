import torch

torch.set_num_threads(1)


def set_up(y, X):
    y, X = torch.tensor(y), torch.tensor(X)

    def loss(beta):
        eta = X @ beta
        return torch.sum(y * eta - torch.nn.functional.softplus(eta))

    def evaluated(fun):
        def both(x):
            beta = torch.tensor(x, requires_grad=True)
            total = fun(beta)
            total.backward()
            return total.item(), beta.grad.numpy()

        return both

    return {"eager": evaluated(loss), "torch.compile": evaluated(torch.compile(loss))}
