"""LSTM, GRU and RNN, unrolled: first the products with all inputs at once, then a few pointwise ops for each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import SSAValue

from aicf_mlir.dialects import nn
from aicf_mlir.dialects.nn.pointwise import CLASSES
from aicf_mlir.frontend.aten_random import drop
from aicf_mlir.frontend.aten_slices import part
from aicf_mlir.frontend.call import AtenRule, Call, Value
from aicf_mlir.frontend.refused import Forbidden
from aicf_mlir.ir.tensor_op import shape_of

PACKED = (
    "a packed sequence, whose steps have batches of different sizes; pad it, and mask what the padding gives"
)


@dataclass(frozen=True)
class Weights:
    """The weights of one direction of one layer: of the inputs [gates * H, I], of the state [gates * H, P], and their
    biases. P is H, or the rows of a projection [P, H] that gives what is handed on.
    """

    of_input: SSAValue
    of_state: SSAValue
    input_bias: SSAValue | None
    state_bias: SSAValue | None
    projection: SSAValue | None = None


State = tuple[SSAValue, ...]
"""The tensors of a state, [N, P] and [N, H]; the first is the input of the layer above."""

Cell = Callable[[Call, SSAValue, State, Weights], State]
"""A function that returns the next state from this step's product with the input, bias included, [N, gates * H]."""


def applied(call: Call, name: str, *operands: SSAValue) -> SSAValue:
    """Emit a pointwise op."""
    return call.emit.insert(CLASSES[name](*operands))


def of_state(call: Call, state: SSAValue, weights: Weights) -> SSAValue:
    """Emit the product with the state."""
    return call.emit.insert(nn.LinearOp(state, weights.of_state, weights.state_bias))


def gates(call: Call, x: SSAValue, count: int) -> Sequence[SSAValue]:
    """Split [N, count * H] into `count` parts of [N, H]."""
    return call.emit.split(x, 1, [shape_of(x)[1] // count] * count)


def lstm_cell(call: Call, x: SSAValue, state: State, weights: Weights) -> State:
    """Emit an LSTM cell with gates in torch's order: input, forget, cell, output."""
    hidden, cell = state
    total = applied(call, "add", x, of_state(call, hidden, weights))
    enter, keep, new, leave = gates(call, total, 4)
    enter, keep, leave = (applied(call, "sigmoid", gate) for gate in (enter, keep, leave))
    added = applied(call, "mul", enter, applied(call, "tanh", new))
    cell = applied(call, "add", applied(call, "mul", keep, cell), added)
    hidden = applied(call, "mul", leave, applied(call, "tanh", cell))
    if weights.projection is not None:
        hidden = call.emit.insert(nn.LinearOp(hidden, weights.projection, None))
    return hidden, cell


def gru_cell(call: Call, x: SSAValue, state: State, weights: Weights) -> State:
    """Emit a GRU cell with gates in torch's order: reset, update, new; the reset gate acts after the product with the
    state.
    """
    (hidden,) = state
    reset, update, new = gates(call, x, 3)
    reset_h, update_h, new_h = gates(call, of_state(call, hidden, weights), 3)
    reset = applied(call, "sigmoid", applied(call, "add", reset, reset_h))
    update = applied(call, "sigmoid", applied(call, "add", update, update_h))
    new = applied(call, "tanh", applied(call, "add", new, applied(call, "mul", reset, new_h)))
    kept = applied(call, "mul", update, applied(call, "sub", hidden, new))
    return (applied(call, "add", new, kept),)


def plain_cell(activation: str) -> Cell:
    """Return the cell activation(x + product with the state)."""

    def cell(call: Call, x: SSAValue, state: State, weights: Weights) -> State:
        return (applied(call, activation, applied(call, "add", x, of_state(call, state[0], weights))),)

    return cell


def recurrent(cell: Cell, states: int) -> AtenRule:
    """The outputs [T, N, D * H] of the last layer and the last states [D * layers, N, H]; D is 2 in both directions."""

    def row(call: Call) -> Value:
        initial = call.values("hx") if states > 1 else [call.value("hx")]
        return unrolled(call, call.value("input"), initial, cell)

    return row


def unrolled(call: Call, x: SSAValue, initial: Sequence[SSAValue], cell: Cell) -> Value:
    """Run layer by layer: first the products of all inputs, then the steps, backwards for a second direction."""
    directions, layers = 2 if call["bidirectional"] else 1, int(call["num_layers"])
    weights = read_weights(call, directions * layers)
    if call["batch_first"]:
        x = call.emit.transpose(x, (1, 0, 2))
    last: list[State] = []
    for layer in range(layers):
        outputs: list[SSAValue] = []
        for direction in range(directions):
            at = layer * directions + direction
            first = (part(call, each, 0, at, 1) for each in initial)
            state = tuple(call.emit.reshape(each, shape_of(each)[1:]) for each in first)
            steps, state = walked(call, x, state, weights[at], cell, backwards=direction == 1)
            outputs.append(steps)
            last.append(state)
        x = outputs[0] if directions == 1 else call.emit.insert(nn.ConcatOp(outputs, 2))
        if call["train"] and layer < layers - 1:
            x = drop(call, x, float(call["dropout"]))
    if call["batch_first"]:
        x = call.emit.transpose(x, (1, 0, 2))
    return x, *(stacked(call, [state[n] for state in last]) for n in range(len(initial)))


def walked(
    call: Call, x: SSAValue, state: State, weights: Weights, cell: Cell, backwards: bool
) -> tuple[SSAValue, State]:
    """The first of the states after each step [T, N, H], and the last state."""
    count, batch, size = shape_of(x)
    rows = call.emit.reshape(x, (count * batch, size))
    products = call.emit.insert(nn.LinearOp(rows, weights.of_input, weights.input_bias))
    steps = call.emit.split(products, 0, [batch] * count)
    outputs: list[SSAValue] = []
    for step in reversed(steps) if backwards else steps:
        state = cell(call, step, state, weights)
        outputs.append(state[0])
    return stacked(call, outputs[::-1] if backwards else outputs), state


def stacked(call: Call, values: Sequence[SSAValue]) -> SSAValue:
    """Stack along a new first dimension."""
    rows = [call.emit.reshape(value, (1, *shape_of(value))) for value in values]
    return call.emit.insert(nn.ConcatOp(rows, 0)) if len(rows) > 1 else rows[0]


def read_weights(call: Call, count: int) -> list[Weights]:
    """Read the argument `params`: two or four tensors for each direction of each layer, and a projection if there is one."""
    values, plain = list(call.values("params")), 4 if call["has_biases"] else 2
    each = len(values) // count
    weights: list[Weights] = []
    for first in range(0, len(values), each):
        own = values[first : first + each]
        biases = own[2:plain] or (None, None)
        weights.append(Weights(own[0], own[1], *biases, *own[plain:]))
    return weights


def single(cell: Cell) -> AtenRule:
    """Return the rule for one step of a cell: LSTMCell, GRUCell, RNNCell."""

    def row(call: Call) -> Value:
        given: Any = call["hx"]
        state = tuple(call.values("hx")) if isinstance(given, (tuple, list)) else (call.value("hx"),)
        biases = [None if call[name] is None else call.value(name) for name in ("b_ih", "b_hh")]
        weights = Weights(call.value("w_ih"), call.value("w_hh"), *biases)
        product = call.emit.insert(nn.LinearOp(call.value("input"), weights.of_input, weights.input_bias))
        after = cell(call, product, state, weights)
        (first, *others) = after
        return after if others else first

    return row


CELLS: dict[str, tuple[Cell, int]] = {
    "lstm": (lstm_cell, 2),
    "gru": (gru_cell, 1),
    "rnn_tanh": (plain_cell("tanh"), 1),
    "rnn_relu": (plain_cell("relu"), 1),
}
"""The cell by torch's name, and the number of tensors in its state."""


def packed(call: Call) -> Value:
    """Refuse the ops that make a packed sequence or take one."""
    raise Forbidden(PACKED)


ROWS: dict[str, AtenRule] = {
    **{f"aten.{name}.input": recurrent(cell, states) for name, (cell, states) in CELLS.items()},
    **{f"aten.{name}_cell.default": single(cell) for name, (cell, _) in CELLS.items()},
    **{f"aten.{name}.data": packed for name in CELLS},
    "aten._pack_padded_sequence.default": packed,
}
