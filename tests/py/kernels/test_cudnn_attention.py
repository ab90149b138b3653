"""Attention by cuDNN: what is planned without a GPU, and on one that it is right, always the same, and whole."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from aicf_mlir import _C, OpKind, SelectionError, op_call

TARGET = "sm_90+cublaslt+cudnn"
Spec = Any
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


def projected(dtype: str, batch: int, rows: int, heads: int, size: int, key_heads: int = 0) -> list[Spec]:
    """query, key, value as views of one projection [batch, rows, all heads, size]."""
    key_heads = key_heads or heads
    row = (heads + 2 * key_heads) * size
    strides = (rows * row, size, row, 1)
    return [(dtype, (batch, count, rows, size), strides) for count in (heads, key_heads, key_heads)]


def joined(dtype: str, batch: int, rows: int, heads: int, size: int) -> Spec:
    """Heads that lie as [batch, rows, heads, size]."""
    return (dtype, (batch, heads, rows, size), (rows * heads * size, size, heads * size, 1))


def select(
    operands: list[Spec],
    grad: bool,
    name: str = "",
    target: str = TARGET,
    scale: float = 0.125,
    mask: Spec | None = None,
) -> tuple[str, int]:
    dtype, (batch, heads, rows, _) = operands[0][:2]
    out = joined(dtype, batch, rows, heads, operands[2][1][3])
    kept = [("f32", (batch, heads, rows))] * 2
    masks = [mask] if mask else []
    attrs = {"causal": True, "scale": scale}
    given = [out, *operands, out, *kept] if grad else operands
    results = operands if grad else [out, *kept]
    counts = ((*[1] * len(given), len(masks), 0), (1, 1, 1))
    op = "attention_grad" if grad else "attention"
    return _C.select_kernel(op, [*given, *masks], results, attrs, target, name, counts)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("grad", [False, True])
def test_views_of_a_projection_are_for_the_library_where_a_target_has_it(dtype: str, grad: bool) -> None:
    op = f"attention_grad_{dtype}" if grad else f"attention_{dtype}"
    for operands in (projected(dtype, 32, 1024, 12, 64), projected(dtype, 8, 2048, 16, 128, 4)):
        assert select(operands, grad)[0] == f"{op}_cudnn"
        assert select(operands, grad, target="sm_90")[0] == f"{op}_hopper"
        assert select(operands, grad, target="sm_80+cudnn")[0] == f"{op}_tc"


def test_few_scores_are_for_our_own_kernels_unless_it_is_named() -> None:
    for batch, name in ((15, "hopper"), (16, "cudnn")):
        operands = projected("bf16", batch, 128, 4, 64)
        for grad in (False, True):
            op = "attention_grad_bf16" if grad else "attention_bf16"
            assert select(operands, grad)[0] == f"{op}_{name}"
            assert select(operands, grad, f"{op}_cudnn")[0] == f"{op}_cudnn"


@pytest.mark.parametrize(
    ("operands", "options", "reason"),
    [
        (projected("bf16", 2, 64, 2, 20), {}, "needs heads of a multiple of 8 elements"),
        (projected("bf16", 2, 64, 2, 256), {}, "needs heads of at most 128 elements"),
        (projected("bf16", 2, 64, 2, 64), {"scale": -1.0}, "needs a positive scale"),
        (
            projected("bf16", 128, 2048, 1, 64),
            {"mask": ("i1", (128, 1, 2048, 2048))},
            "needs a mask of at most",
        ),
        (
            [
                ("bf16", (2, 2, 64, 64), (8192, 4096, 64, 1)),
                *[("bf16", (2, 2, 64, 64), (4096, 0, 64, 1))] * 2,
            ],
            {},
            "needs strides of a multiple of 8 elements, key has",
        ),
        (projected("bf16", 1, 65536, 1, 64), {}, "needs scores of one image of at most 2147483648 bytes"),
    ],
    ids=["odd size", "large size", "negative scale", "large mask", "repeated heads", "long"],
)
def test_what_it_declines(operands: list[Spec], options: dict[str, Any], reason: str) -> None:
    with pytest.raises(SelectionError, match=reason):
        select(operands, False, "attention_bf16_cudnn", **options)
    assert not select(operands, False, **options)[0].endswith("cudnn")


MASKS: dict[str, tuple[tuple[int, int, int], Spec, str, int]] = {
    "bool": ((16, 512, 8), ("i1", (16, 1, 512, 512)), "cudnn", 16 * 512 * 512 * 2),
    "keys of a sequence": ((16, 512, 8), ("i1", (16, 1, 1, 512)), "cudnn", 16 * 512 * 512 * 2),
    "summands of odd rows": ((64, 197, 12), ("bf16", (1, 12, 197, 197)), "cudnn", 12 * 197 * 200 * 2),
    "summands of f32": ((16, 512, 8), ("f32", (1, 1, 512, 512)), "cudnn", 512 * 512 * 4),
    "few queries and keys": ((1024, 49, 6), ("bf16", (1, 6, 49, 49)), "tile", 0),
}
"""By name: batch, length and heads; the mask; which kernel takes it, and the bytes of the mask as summands."""


@pytest.mark.parametrize("name", MASKS)
def test_a_mask_lies_in_the_workspace(name: str) -> None:
    (batch, length, heads), mask, kernel, size = MASKS[name]
    operands = projected("bf16", batch, length, heads, 64)
    found, workspace = select(operands, False, mask=mask)
    assert found == f"attention_bf16_{kernel}"
    if kernel == "cudnn":
        assert workspace == (1 << 20) + -(-size // 256) * 256
        assert select(operands, True, mask=mask)[1] - select(operands, True)[1] == -(-size // 256) * 256


def test_the_workspace_of_a_gradient_holds_the_scores_of_a_slab() -> None:
    room, row_bytes = 1 << 20, 4 + 4 + 16
    assert select(projected("bf16", 32, 1024, 12, 64), True)[1] == (
        32 * 12 * 1024 * 1024 * 2 + room + 32 * 12 * 1024 * row_bytes + 32 * 12 * 4
    )
    rounded = 256 * 256 * 2  # 197 queries are rounded up to 64, 197 keys to 128
    assert select(projected("bf16", 64, 197, 6, 64), True)[1] == (
        64 * 6 * rounded + room + 64 * 6 * 197 * row_bytes + 64 * 6 * 4
    )
    slab = 2  # of 8 images: four would need 2 GiB and the room
    assert select(projected("bf16", 8, 4096, 16, 64), True)[1] == (
        slab * 16 * 4096 * 4096 * 2 + room + 8 * 16 * 4096 * row_bytes + 512
    )
    assert select(projected("bf16", 32, 1024, 12, 64), False)[1] == room


class Call:
    """Random operands on the GPU, poisoned results, and both launches of a kernel."""

    def __init__(
        self,
        batch: int,
        heads: tuple[int, int],
        rows: tuple[int, int],
        sizes: tuple[int, int],
        causal: bool,
        dtype: str = "bf16",
    ):
        draw = torch.Generator("cuda").manual_seed(0)
        self.dtype, self.causal, self.scale = dtype, causal, sizes[0] ** -0.5
        kind: Any = {"device": "cuda", "dtype": DTYPES[dtype]}

        def drawn(count: int, length: int, size: int) -> torch.Tensor:
            return torch.randn(batch, length, count, size, generator=draw, **kind).transpose(1, 2)

        if rows[0] == rows[1] and sizes[0] == sizes[1]:
            whole = drawn(heads[0] + 2 * heads[1], rows[0], sizes[0])
            self.operands = [*whole.split((heads[0], heads[1], heads[1]), 1)]
        else:
            self.operands = [drawn(heads[0], rows[0], sizes[0])]
            self.operands += [drawn(heads[1], rows[1], size) for size in sizes]
        self.grads = [torch.empty_like(t.transpose(1, 2).contiguous()).transpose(1, 2) for t in self.operands]
        self.dout = drawn(heads[0], rows[0], sizes[1])
        self.out = torch.empty_like(self.dout)
        self.kept = [
            torch.empty(batch, heads[0], rows[0], device="cuda", dtype=torch.float32) for _ in range(2)
        ]
        self.poison()

    def poison(self) -> None:
        for tensor in (self.out, *self.kept, *self.grads):
            tensor.fill_(math.nan)

    @property
    def attrs(self) -> dict[str, Any]:
        return {"causal": self.causal, "scale": self.scale}

    def forward(self, kernel: str = "cudnn") -> str:
        outputs = [self.out, *self.kept]
        return op_call(
            OpKind.Attention,
            dict(zip(("query", "key", "value"), self.operands, strict=True)),
            dict(zip(("out", "largest", "total"), outputs, strict=True)),
            self.attrs,
            f"attention_{self.dtype}_{kernel}",
        )

    def backward(self, kernel: str = "cudnn") -> str:
        names = ("dout", "query", "key", "value", "out", "largest", "total")
        inputs = [self.dout, *self.operands, self.out, *self.kept]
        return op_call(
            OpKind.AttentionGrad,
            dict(zip(names, inputs, strict=True)),
            dict(zip(("dquery", "dkey", "dvalue"), self.grads, strict=True)),
            self.attrs,
            f"attention_grad_{self.dtype}_{kernel}",
        )

    @property
    def results(self) -> list[torch.Tensor]:
        return [self.out, *self.kept, *self.grads]

    def expected(self, image: int) -> list[torch.Tensor]:
        """The results of one image in f64."""
        query, key, value = (t[image].double().requires_grad_() for t in self.operands)
        group = query.shape[0] // key.shape[0]
        scores = self.scale * query @ key.repeat_interleave(group, 0).transpose(1, 2)
        if self.causal:
            hidden = torch.ones(scores.shape[1:], dtype=torch.bool, device="cuda").triu(1)
            scores = scores.masked_fill(hidden, -math.inf)
        largest = scores.amax(-1)
        powers = (scores - largest[..., None]).exp()
        total = powers.sum(-1)
        out = (powers / total[..., None]) @ value.repeat_interleave(group, 0)
        out.backward(self.dout[image].double())
        grads = [t.grad for t in (query, key, value)]
        return [t.detach() for t in (out, largest, total, *grads) if t is not None]


SHAPES: dict[str, tuple[int, tuple[int, int], tuple[int, int], tuple[int, int], bool]] = {
    "GPT-2": (4, (12, 12), (1024, 1024), (64, 64), True),
    "ViT-S": (8, (6, 6), (197, 197), (64, 64), False),
    "groups": (2, (8, 2), (320, 320), (128, 128), True),
    "one head of keys": (2, (3, 1), (130, 70), (32, 32), True),
    "other lengths": (2, (3, 3), (100, 130), (40, 24), False),
    "fewer keys": (1, (2, 2), (65, 33), (8, 8), True),
    "one query": (3, (2, 2), (1, 40), (16, 16), False),
    "odd": (1, (3, 3), (1000, 1000), (72, 72), True),
}
ERRORS = {"bf16": 6e-3, "f16": 8e-4}


@pytest.mark.gpu
@pytest.mark.cudnn
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_it_agrees_with_f64_and_gives_the_same_bits_in_twenty_runs(shape: Any, dtype: str) -> None:
    call = Call(*shape, dtype=dtype)
    found: set[tuple[bytes, ...]] = set()
    for _ in range(20):
        call.poison()
        call.forward()
        call.backward()
        found.add(tuple(t.cpu().contiguous().view(torch.uint8).numpy().tobytes() for t in call.results))
    assert len(found) == 1
    for image in range(shape[0]):
        for mine, true in zip(call.results, call.expected(image), strict=True):
            wide = mine.dtype == torch.float32
            error = (mine[image].double() - true).norm() / true.norm()
            assert error < (1e-5 if wide else ERRORS[dtype])


@pytest.mark.gpu
@pytest.mark.cudnn
def test_every_engine_is_right_and_gives_the_same_bits_each_time() -> None:
    call = Call(2, (4, 2), (200, 200), (64, 64), True)
    inputs = projected("bf16", 2, 200, 4, 64, 2)
    out, kept = joined("bf16", 2, 200, 4, 64), [("f32", (2, 4, 200))] * 2
    call.forward()
    given = {"attention": inputs, "attention_grad": [out, *inputs, out, *kept]}
    results = {"attention": [out, *kept], "attention_grad": inputs}
    names = {
        op: _C.kernel_choices(
            op,
            given[op],
            results[op],
            call.attrs,
            f"{op}_bf16_cudnn",
            counts=((*[1] * len(given[op]), 0, 0), (1, 1, 1)),
        )
        for op in given
    }
    for op, choices in names.items():
        assert len(choices) > 1
        for choice in choices:
            found: set[tuple[bytes, ...]] = set()
            for _ in range(5):
                call.forward(f"cudnn[{choice}]" if op == "attention" else "cudnn")
                call.backward(f"cudnn[{choice}]" if op == "attention_grad" else "cudnn")
                found.add(
                    tuple(t.cpu().contiguous().view(torch.uint8).numpy().tobytes() for t in call.results)
                )
            assert len(found) == 1, choice
            for mine, true in zip(call.results, call.expected(1), strict=True):
                assert (mine[1].double() - true).norm() < 6e-3 * true.norm(), choice


@pytest.mark.gpu
@pytest.mark.cudnn
@pytest.mark.parametrize("shape", ["groups", "ViT-S"])
def test_where_no_engine_takes_it_our_own_kernel_runs_with_its_bits(shape: str) -> None:
    call = Call(*SHAPES[shape])
    results: list[list[torch.Tensor]] = []
    for kernel, choice in (("cudnn", "[own]"), ("hopper", "")):
        call.poison()
        assert call.forward(kernel + choice) == f"attention_bf16_{kernel}"
        assert call.backward(kernel + choice) == f"attention_grad_bf16_{kernel}"
        results.append([t.clone() for t in call.results])
    for ours, hoppers in zip(*results, strict=True):
        assert ours.isfinite().all()
        assert torch.equal(ours, hoppers)


@pytest.mark.gpu
@pytest.mark.cudnn
def test_slabs_of_a_batch_are_the_gradient_of_each_image() -> None:
    call = Call(4, (8, 8), (8192, 8192), (64, 64), True)
    call.forward()
    call.backward()
    one = Call(1, (8, 8), (8192, 8192), (64, 64), True)
    for image in (0, 3):
        for mine, theirs in zip([*one.operands, one.dout], [*call.operands, call.dout], strict=True):
            mine.copy_(theirs[image : image + 1])
        one.forward()
        one.backward()
        for mine, theirs in zip(one.results, call.results, strict=True):
            assert torch.equal(mine[0], theirs[image])


@pytest.mark.gpu
@pytest.mark.cudnn
@pytest.mark.parametrize("factor", [60.0, 1e4, math.nan, math.inf])
def test_heads_with_huge_scores_have_the_gradients_of_our_own_kernel(factor: float) -> None:
    """Of four heads of queries the last two share the key that has them."""
    call = Call(2, (4, 2), (150, 150), (64, 64), False)
    call.operands[0][1, 3, 5] *= factor
    call.operands[1][1, 1] *= 30.0
    call.forward()
    call.backward()
    ours = [t.clone() for t in call.grads]
    call.backward("hopper")
    assert not all(torch.equal(mine[0], theirs[0]) for mine, theirs in zip(ours, call.grads, strict=True))
    for mine, theirs, first in zip(ours, call.grads, (2, 1, 1), strict=True):
        assert torch.equal(mine.isnan(), theirs.isnan())
        for ours_of, theirs_of, most in (
            (mine[1, first:], theirs[1, first:], 1e-3),
            (mine[1, :first], theirs[1, :first], 6e-3),
            (mine[0], theirs[0], 6e-3),
        ):
            wide = theirs_of.double().nan_to_num()
            assert (ours_of.double().nan_to_num() - wide).norm() <= most * wide.norm()


@pytest.mark.gpu
@pytest.mark.cudnn
@pytest.mark.parametrize("factor", [1e2, 1e4, 1e6, 1e8])
def test_huge_scores_are_weighed_no_worse_than_by_our_own_kernel(factor: float) -> None:
    call = Call(2, (4, 4), (256, 256), (64, 64), True)
    call.scale *= factor
    true = call.expected(1)[0]
    errors: dict[str, float] = {}
    for kernel in ("cudnn", "hopper"):
        call.poison()
        call.forward(kernel)
        assert not any(t.isnan().any() for t in (call.out, *call.kept))
        errors[kernel] = ((call.out[1].double() - true).norm() / true.norm()).item()
    assert errors["cudnn"] <= 1.5 * errors["hopper"] + 1e-3, errors
