import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)


def slope(u, p):
    x, y, z = u
    return jnp.stack(
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


def term(start, observed, p):
    def until(u, seen):
        u, _ = jax.lax.scan(lambda u, _: (step(u, p), None), u, None, length=20)
        return u, jnp.sum((u - seen) ** 2)

    return jnp.sum(jax.lax.scan(until, start, observed)[1])


def total(p, starts, observed):
    return jnp.sum(jax.vmap(term, (0, 0, None))(starts, observed, p))


def set_up(starts, observed):
    both = jax.jit(jax.value_and_grad(total))
    return {"jit(vmap), lax.scan": lambda p: both(p, starts, observed)}
