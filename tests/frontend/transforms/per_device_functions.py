"""Functions that every device runs on its shard, for three libraries.

A function has a parameter `w`, which is replicated, and its shard `x`. With `Stacked` it runs in
NumPy on the values of all devices: arrays have an additional first dimension, that of the devices.
So finite differences measure derivatives without any rule for communication.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

AXIS = "s"
COUNT = 4
Body = Callable[[Any, Any, Any], Any]


class Local:
    """The operations that the functions use, of a library with JAX's interface."""

    def __init__(self, top: Any, numpy: Any, lax: Any, checked: bool) -> None:
        self.top, self.np, self.lax, self.checked = top, numpy, lax, checked

    def total(self, v: Any) -> Any:
        return v.sum(-1, keepdims=True)

    def index(self) -> Any:
        return self.lax.axis_index(AXIS).astype("float32").reshape(1)

    def psum(self, v: Any, groups: Any = None) -> Any:
        return self.lax.psum(v, AXIS, axis_index_groups=groups)

    def pmean(self, v: Any) -> Any:
        return self.lax.pmean(v, AXIS)

    def pmax(self, v: Any) -> Any:
        return self.lax.pmax(v, AXIS)

    def gather(self, v: Any) -> Any:
        return self.lax.all_gather(v, AXIS, axis=0, tiled=True)

    def scatter(self, v: Any) -> Any:
        return self.lax.psum_scatter(v, AXIS, scatter_dimension=0, tiled=True)

    def exchange(self, v: Any) -> Any:
        return self.lax.all_to_all(v, AXIS, 0, 0, tiled=True)

    def shift(self, v: Any) -> Any:
        return self.lax.ppermute(v, AXIS, [(i, (i + 1) % COUNT) for i in range(COUNT)])

    def send_first(self, v: Any) -> Any:
        return self.lax.ppermute(v, AXIS, [(0, 1)])

    def repeated(self, v: Any, count: int) -> Any:
        return self.np.concatenate([v] * count, -1)

    def on_even(self, one: Callable[[], Any], other: Callable[[], Any]) -> Any:
        return self.lax.cond(self.lax.axis_index(AXIS) % 2 == 0, one, other)

    def choose(self, *branches: Callable[[], Any]) -> Any:
        return self.lax.switch(self.lax.axis_index(AXIS), branches)

    def if_any(self, v: Any, one: Callable[[], Any], other: Callable[[], Any]) -> Any:
        return self.lax.cond(self.psum(v)[0] > 0, one, other)

    def loop(self, step: Callable[[Any, int], Any], start: Any, rows: Any) -> Any:
        def both(carry: Any, row: Any) -> Any:
            made = step(carry, row)
            return made, made

        return self.lax.scan(both, start, self.np.asarray(rows, "float32"))[0]

    def zeros(self, like: Any) -> Any:
        return self.np.zeros(like.shape, "float32")

    def varying(self, v: Any) -> Any:
        return self.lax.pcast(v, AXIS, to="varying") if self.checked else v

    def custom_jvp(self, fun: Any, rule: Any) -> Any:
        made = self.top.custom_jvp(fun)
        made.defjvp(lambda primals, tangents: (made(*primals), rule(*primals, *tangents)))
        return made

    def custom_vjp(self, fun: Any, rule: Any) -> Any:
        made = self.top.custom_vjp(fun)
        made.defvjp(lambda *args: (made(*args), args), lambda args, g: rule(*args, g))
        return made

    def checkpoint(self, fun: Any) -> Any:
        return self.top.checkpoint(fun)

    def each(self, fun: Any, *args: Any) -> Any:
        return self.top.vmap(fun)(*args)

    def slope(self, fun: Any, at: Any, exact: Any) -> Any:
        return self.top.grad(lambda v: fun(v).sum())(at)

    def along(self, fun: Any, at: Any, step: Any, exact: Any) -> Any:
        return self.top.jvp(fun, (at,), (step,))[1]


class Stacked(Local):
    """The same operations in NumPy, on the values of all devices."""

    def __init__(self, checked: bool) -> None:
        super().__init__(None, np, None, checked)

    def index(self) -> Any:
        return np.arange(float(COUNT))[:, None]

    def psum(self, v: Any, groups: Any = None) -> Any:
        made = np.zeros_like(v)
        for group in groups or [list(range(COUNT))]:
            made[group] = v[group].sum(0)
        return made

    def pmean(self, v: Any) -> Any:
        return self.psum(v) / COUNT

    def pmax(self, v: Any) -> Any:
        return np.broadcast_to(v.max(0), v.shape)

    def gather(self, v: Any) -> Any:
        return np.broadcast_to(v.reshape(-1), (COUNT, v.size))

    def scatter(self, v: Any) -> Any:
        return v.sum(0).reshape(COUNT, -1)

    def exchange(self, v: Any) -> Any:
        return v.reshape(COUNT, COUNT, -1).swapaxes(0, 1).reshape(COUNT, -1)

    def shift(self, v: Any) -> Any:
        return np.roll(v, 1, 0)

    def send_first(self, v: Any) -> Any:
        made = np.zeros_like(v)
        made[1] = v[0]
        return made

    def on_even(self, one: Callable[[], Any], other: Callable[[], Any]) -> Any:
        return np.where(self.index() % 2 == 0, one(), other())

    def choose(self, *branches: Callable[[], Any]) -> Any:
        last = len(branches) - 1
        made = [branch() for branch in branches]
        return np.stack([made[min(i, last)][i] for i in range(COUNT)])

    def if_any(self, v: Any, one: Callable[[], Any], other: Callable[[], Any]) -> Any:
        return one() if v.sum() > 0 else other()

    def loop(self, step: Callable[[Any, int], Any], start: Any, rows: Any) -> Any:
        for row in rows:
            start = step(start, row)
        return start

    def zeros(self, like: Any) -> Any:
        return np.zeros_like(like)

    def varying(self, v: Any) -> Any:
        return v

    def custom_jvp(self, fun: Any, rule: Any) -> Any:
        return fun

    custom_vjp = custom_jvp

    def checkpoint(self, fun: Any) -> Any:
        return fun

    def each(self, fun: Any, *args: Any) -> Any:
        return fun(*args)

    def slope(self, fun: Any, at: Any, exact: Any) -> Any:
        """Return the gradient; for a replicated value it is the sum of the gradients of the
        devices.
        """
        return self.psum(exact(at)) if self.checked else exact(at)

    def along(self, fun: Any, at: Any, step: Any, exact: Any) -> Any:
        return exact(at, step)


@dataclass(frozen=True)
class Case:
    """A function and its properties.

    `shared` are the results that do not vary, and `forward` states whether it has forward
    derivatives.
    """

    name: str
    body: Body
    shared: bool = False
    forward: bool = True
    unchecked: bool = True
    """Whether a derivative from outside is allowed with check_vma=False."""
    closed: bool = False
    """Whether a rule uses `x` from outside, so that there is no derivative by it."""


CASES: list[Case] = []


def case(**options: Any) -> Callable[[Body], Body]:
    def added(body: Body) -> Body:
        CASES.append(Case(body.__name__, body, **options))
        return body

    return added


@case()
def product(k: Any, w: Any, x: Any) -> Any:
    return w[..., :1] * x


@case()
def powers(k: Any, w: Any, x: Any) -> Any:
    return w[..., :1] ** 2 * x + w[..., 1:] ** 3


@case()
def dense(k: Any, w: Any, x: Any) -> Any:
    return k.np.tanh(w[..., :1] * x + w[..., 1:])


@case()
def of_weights_alone(k: Any, w: Any, x: Any) -> Any:
    return k.np.sin(w) * k.np.sin(k.total(w)) + 0 * x


@case(shared=True)
def shared_alone(k: Any, w: Any, x: Any) -> Any:
    return k.np.sin(w) * k.total(w)


@case(shared=True)
def summed(k: Any, w: Any, x: Any) -> Any:
    return k.psum(w[..., :1] ** 2 * x)


@case(shared=True)
def averaged(k: Any, w: Any, x: Any) -> Any:
    return k.pmean(k.np.sin(w[..., :1] * x)) * w


@case()
def summed_and_own(k: Any, w: Any, x: Any) -> Any:
    return k.psum(w[..., :1] * x) * k.np.sin(w[..., 1:] * x)


@case()
def sum_in_between(k: Any, w: Any, x: Any) -> Any:
    return x * w + k.psum(k.total(k.np.sin(x * w))) * w


@case(shared=True)
def summed_twice(k: Any, w: Any, x: Any) -> Any:
    return k.psum(w * k.psum(w * x))


@case(shared=True)
def sum_of_what_is_shared(k: Any, w: Any, x: Any) -> Any:
    return k.psum(k.np.sin(w)) * k.psum(x)


@case(shared=True)
def largest(k: Any, w: Any, x: Any) -> Any:
    return k.pmax(w[..., :1] ** 2 * x)


@case()
def gathered(k: Any, w: Any, x: Any) -> Any:
    return k.gather(k.np.sin(w * x))[..., 1:4] * w[..., :1]


@case()
def scattered(k: Any, w: Any, x: Any) -> Any:
    return k.scatter(k.repeated(w * x, COUNT)) * w


@case()
def exchanged(k: Any, w: Any, x: Any) -> Any:
    return k.exchange(k.repeated(k.np.sin(w * x), 2)) * k.repeated(w, 2)


@case()
def shifted(k: Any, w: Any, x: Any) -> Any:
    return k.shift(k.np.sin(w * x)) * x


@case()
def sent_to_one(k: Any, w: Any, x: Any) -> Any:
    return k.send_first(k.np.sin(w)) + w * x


@case()
def in_groups(k: Any, w: Any, x: Any) -> Any:
    return k.psum(k.np.sin(w * x), [[0, 1], [2, 3]]) * w


@case()
def by_position(k: Any, w: Any, x: Any) -> Any:
    return k.np.sin(w * (1 + k.index())) * x


@case()
def softmax(k: Any, w: Any, x: Any) -> Any:
    e = k.np.exp(w[..., :1] * x)
    return e / k.psum(k.total(e)) * w


@case()
def normalized(k: Any, w: Any, x: Any) -> Any:
    h = w * x
    mean = k.pmean(k.total(h)) / 2
    variance = k.pmean(k.total((h - mean) ** 2)) / 2
    return (h - mean) / k.np.sqrt(variance + 1) * w[..., :1]


@case()
def branch_of_a_device(k: Any, w: Any, x: Any) -> Any:
    return k.on_even(lambda: w * x, lambda: 10 * w * w * x)


@case()
def branches_of_devices(k: Any, w: Any, x: Any) -> Any:
    return k.choose(lambda: w * x, lambda: w, lambda: k.np.sin(w * w) + x)


@case()
def branch_of_all(k: Any, w: Any, x: Any) -> Any:
    return k.if_any(k.total(x), lambda: k.psum(w * x) * w + 0 * x, lambda: w + x)


@case()
def loop_of_what_is_shared(k: Any, w: Any, x: Any) -> Any:
    return k.loop(lambda c, row: c * w + row, w, [0.5, 1.0]) * x


@case()
def loop_that_becomes_varying(k: Any, w: Any, x: Any) -> Any:
    start = k.varying(k.zeros(w)) if k.top is not None and k.top.__name__ == "jax" else k.zeros(w)
    return k.loop(lambda c, row: k.np.sin(c * w + x * row), start, [0.5, 1.0])


@case()
def loop_with_sums(k: Any, w: Any, x: Any) -> Any:
    return k.loop(lambda c, row: k.psum(c * w * x) * 0.1 + row, w, [0.5, 1.0]) * x


@case(closed=True)
def rule_forward(k: Any, w: Any, x: Any) -> Any:
    f = k.custom_jvp(lambda w: k.np.sin(w) * x, lambda w, t: k.np.cos(w) * x * t)
    return f(w)


@case(shared=True, closed=True)
def rule_forward_with_sum(k: Any, w: Any, x: Any) -> Any:
    f = k.custom_jvp(
        lambda w: k.psum(k.np.sin(w) * x),
        (lambda w, t: k.np.cos(w) * t * k.psum(x))
        if k.checked
        else (lambda w, t: k.psum(k.np.cos(w) * t * x)),
    )
    return f(w)


@case()
def rule_forward_of_both(k: Any, w: Any, x: Any) -> Any:
    f = k.custom_jvp(
        lambda w, x: k.np.sin(w) * k.psum(x) * x,
        lambda w, x, t, u: (
            k.np.cos(w) * t * k.psum(x) * x + k.np.sin(w) * (k.psum(u) * x + k.psum(x) * u)
        ),
    )
    return f(w, x)


@case(forward=False)
def rule_backward(k: Any, w: Any, x: Any) -> Any:
    f = k.custom_vjp(
        lambda w, x: k.np.sin(w) * x,
        lambda w, x, g: (g * k.np.cos(w) * x, g * k.np.sin(w)),
    )
    return f(k.varying(w), x)


@case(shared=True, forward=False, unchecked=False)
def rule_backward_with_sum(k: Any, w: Any, x: Any) -> Any:
    f = k.custom_vjp(
        lambda w, x: k.psum(k.np.sin(w) * x),
        (lambda w, x, g: (g * k.np.cos(w) * k.psum(x), k.varying(g * k.np.sin(w))))
        if k.checked
        else (lambda w, x, g: (k.psum(g) * k.np.cos(w) * x, k.psum(g) * k.np.sin(w))),
    )
    return f(w, x)


@case()
def computed_again(k: Any, w: Any, x: Any) -> Any:
    return k.checkpoint(lambda w, x: k.np.sin(k.np.sin(w * x)) * w)(w, x)


@case(shared=True)
def sum_computed_again(k: Any, w: Any, x: Any) -> Any:
    return k.checkpoint(lambda w: k.psum(k.np.sin(k.np.sin(w * x))) * w)(w)


@case()
def mapped(k: Any, w: Any, x: Any) -> Any:
    return k.each(lambda a, b: k.np.sin(a * b) * k.psum(b), w, x)


@case()
def made_varying(k: Any, w: Any, x: Any) -> Any:
    return k.np.sin(k.varying(w)) * x + w


@case()
def slope_inside(k: Any, w: Any, x: Any) -> Any:
    return k.slope(lambda v: k.np.sin(v * x), w, lambda v: k.np.cos(v * x) * x) * x


@case(shared=True)
def tangent_inside(k: Any, w: Any, x: Any) -> Any:
    return k.along(
        lambda v: k.np.sin(v) * k.psum(v * x),
        w,
        w,
        lambda v, t: k.np.cos(v) * t * k.psum(v * x) + k.np.sin(v) * k.psum(t * x),
    )


STEPS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sine": lambda k, a, b: k.np.sin(a + b),
    "product": lambda k, a, b: a * k.np.sin(b),
    "sum": lambda k, a, b: k.np.sin(k.psum(a)) + b,
    "sum of product": lambda k, a, b: k.psum(a * k.np.sin(b)) * 0.3,
    "mean": lambda k, a, b: k.pmean(a) * k.np.sin(b),
    "groups": lambda k, a, b: k.psum(a, [[0, 2], [1, 3]]) * 0.5 * k.np.sin(b),
    "shift": lambda k, a, b: k.shift(a) * k.np.sin(b),
    "send": lambda k, a, b: k.send_first(a) + k.np.sin(b),
    "scatter": lambda k, a, b: k.scatter(k.repeated(a, COUNT)) * 0.3 * k.np.sin(b),
    "gather": lambda k, a, b: k.np.sin(k.gather(a)[..., 2:4]) + b,
    "position": lambda k, a, b: k.np.sin(a * (k.index() + 1)) * b,
    "branch of a device": lambda k, a, b: k.on_even(lambda: k.np.sin(a), lambda: a * b * 0.5),
    "branch of all": lambda k, a, b: k.if_any(
        a * 0 + 1, lambda: k.psum(k.np.sin(b)) * 0.3, lambda: a + b * 0
    ),
    "loop": lambda k, a, b: k.loop(lambda c, row: k.np.sin(c * b + row), a, [0.3, 0.7]),
    "loop with sums": lambda k, a, b: k.loop(
        lambda c, row: k.np.sin(k.psum(c * b) * 0.3 + row), a, [0.3, 0.7]
    ),
    "checkpoint": lambda k, a, b: k.checkpoint(lambda a, b: k.np.sin(k.psum(a) * b))(a, b),
    "rule": lambda k, a, b: k.custom_jvp(
        lambda a, b: k.np.sin(a) * b, lambda a, b, t, u: k.np.cos(a) * t * b + k.np.sin(a) * u
    )(a, b),
    "rule with sum": lambda k, a, b: k.custom_jvp(
        lambda a, b: k.psum(k.np.sin(a) * b) * 0.3,
        lambda a, b, t, u: k.psum(k.np.cos(a) * t * b + k.np.sin(a) * u) * 0.3,
    )(a, b),
}
"""What a random body does with two values, of which each device has two numbers."""


def random_case(seed: int) -> Case:
    """Return a function of a few steps, each of which has two earlier values as operands."""
    rng = np.random.default_rng(seed)
    names = [list(STEPS)[i] for i in rng.integers(len(STEPS), size=4)]
    picks = [rng.integers(i + 2, size=2) for i in range(len(names))]

    def body(k: Any, w: Any, x: Any) -> Any:
        values = [w, x]
        for name, (a, b) in zip(names, picks, strict=True):
            values.append(STEPS[name](k, values[a], values[b]))
        return values[-1] + 0.5 * w * x

    return Case(f"{seed}: {', '.join(names)}", body)
