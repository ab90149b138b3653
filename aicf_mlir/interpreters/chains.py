"""The meaning of kernel.chain."""

from __future__ import annotations

import numpy as np

from aicf_mlir.interpreters.body import evaluate
from aicf_mlir.interpreters.call import Call
from aicf_mlir.interpreters.numerics import Array, pairwise_sum
from aicf_mlir.ir.links import ROUNDED_A, LinkText, OuterText


def chain(call: Call) -> list[Array]:
    """The results link by link: the body of each product, rounded where it is written, multiplied or taken later."""

    def stored(value: Array, element: str) -> Array:
        return value if element == "f32" else call.arithmetic.round(value, element).astype(np.float64)

    first = a = stored(call["a"], call.elements["b"][0])
    values, results = list[Array](), list[Array]()
    types = iter(call.outputs["y"])
    for body, text in zip(call.bodies, call.attr("links", ()), strict=True):
        link = LinkText.parse(text)
        b = call.inputs["b"][link.b]
        z = np.matmul(a, b.T if link.trans_b else b)
        given = [call.inputs["x"][number] if kind == "x" else values[number] for kind, number in link.takes]
        shapes = [z.shape] * len(link.values)
        made = evaluate(body, [z, *given], z.shape, (), shapes, call.arithmetic)
        for value, uses in zip(made, link.values, strict=True):
            value = stored(value, next(types)[0] if uses.write else uses.element)
            values.append(value)
            results += [value] if uses.write else []
            if uses.sum:
                results.append(pairwise_sum(value, (0,)))
                next(types)
            a = value if uses.next else a
    for text in call.attr("behind", ()):
        if text == ROUNDED_A:
            results.append(first)
            continue
        outer = OuterText.parse(text)
        right = first if outer.right is None else values[outer.right]
        results.append(np.matmul(values[outer.left].T, right))
    return results
