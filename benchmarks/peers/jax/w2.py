import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)


def term(z, counts, X, mask, shared):
    eta = shared[3] + jnp.exp(shared[4]) * z + X @ shared[:3]
    return jnp.sum(jnp.where(mask, counts * eta - jnp.exp(eta), 0.0)) - 0.5 * z**2


def total(x, counts, X, mask):
    return jnp.sum(jax.vmap(term, (0, 0, 0, 0, None))(x[5:], counts, X, mask, x[:5]))


def set_up(counts, Xs):
    longest = max(len(each) for each in Xs)

    def padded(a):
        return np.pad(a, [(0, longest - len(a))] + [(0, 0)] * (a.ndim - 1))

    masks = [np.ones(len(each), dtype=bool) for each in Xs]
    given = [jnp.asarray([padded(a) for a in arrays]) for arrays in (counts, Xs, masks)]
    both = jax.jit(jax.value_and_grad(total))
    return {"jit(vmap), padded": lambda x: both(x, *given)}
