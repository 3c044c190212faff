import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)


def loss(beta, y, X):
    eta = X @ beta
    return jnp.sum(y * eta - jnp.logaddexp(0.0, eta))


def set_up(y, X):
    y, X = jnp.asarray(y), jnp.asarray(X)
    both = jax.jit(jax.value_and_grad(loss))
    return {"jit": lambda beta: both(beta, y, X)}
