"""Generated launches: map, multi_tensor_map, rowwise, multi_tensor_rowwise, colwise, gemm_map, back_to_back and horizontal.

    %y, %mean = kernel.rowwise x(%a, %b) {body = @norm, reduced = 1, shape = array<i64: 64, 256>}
        : (tensor<64x256xf32>, tensor<64x256xf32, strided<[0, 1]>>) -> (tensor<64x256xf32>, tensor<64xf32>)

    %h = kernel.gemm_map a(%a) b(%w) x(%bias) {body = @elu, trans_b = true}
        : (tensor<64x32xf32>, tensor<256x32xf32>, tensor<64x256xf32, strided<[0, 1]>>) -> tensor<64x256xf32>

    %v, %w = kernel.multi_tensor_map x(%a, %s, %b, %s1) {body = @scaled, segments = 2}
        : (tensor<64x32xf32>, tensor<64x32xf32, strided<[0, 0]>>, tensor<32xf32>, tensor<32xf32, strided<[0]>>)
        -> (tensor<64x32xf32>, tensor<32xf32>)

    %h, %d, %db = kernel.back_to_back a(%a) b(%w, %v) x(%bias, %t)
        {bodies = [@relu, @difference], links = ["b0.T x0 -> write next", "b1.T x1 -> write sum"]}
        : (tensor<512x64xbf16>, tensor<32x64xbf16>, tensor<16x32xbf16>, tensor<512x32xbf16, strided<[0, 1]>>,
        tensor<512x16xf32>) -> (tensor<512x32xbf16>, tensor<512x16xbf16>, tensor<16xf32>)

A multi_tensor_map is a map for each segment: a list of operands of the body, and then the next, each segment of its own shape. A
multi_tensor_rowwise reduces all elements of each segment to single numbers. A horizontal launch is several launches none of which
reads a result of another (codegen/cuda/horizontal.py). `shape` is the domain, that of the product if there is one; every `x` has
it, repeated by a stride of 0 if it is smaller. The body of a gemm_map takes the element of the product first, as each body of a
chain does; ir/links.py specifies the links. A body is a scalar.body of the module; kernels/kernel.py has its rules. The kernel id
is a hash of everything that the code depends on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation
from xdsl.utils.exceptions import VerifyException

from aicf_mlir.codegen.schedule import scheduled, workspace
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.errors import SelectionError, VerifyError
from aicf_mlir.ir import registry
from aicf_mlir.ir.attributes import Symbol, symbols_of
from aicf_mlir.ir.layouts import ALIGNMENT, dense_strides
from aicf_mlir.ir.links import ROUNDED_A, LinkText, OuterText
from aicf_mlir.ir.registry import OperandSpec, Use
from aicf_mlir.ir.segments import count_properties
from aicf_mlir.ir.tensor_op import SEGMENT_SIZES
from aicf_mlir.kernels.back_to_back import BackToBackKernel, Link, Outer, Yield
from aicf_mlir.kernels.horizontal import HorizontalKernel, members_of
from aicf_mlir.kernels.kernel import Kernel, Product, Tensor
from aicf_mlir.kernels.schedule_text import divided_id
from aicf_mlir.kernels.segments import EachKernel, RowEachKernel


class GeneratedOp(KernelOp):
    """A launch with a body, or several. Its results are as many as it gives."""

    @property
    def body_symbol(self) -> str:
        """The name of its scalar.body."""
        symbol = self.attrs.get("body")
        if not isinstance(symbol, Symbol):
            raise VerifyException(f"expected body to be the symbol of a scalar.body, got {symbol!r}")
        return symbol

    @property
    def bodies(self) -> tuple[Symbol, ...]:
        """The names of all its scalar.bodies."""
        attrs = self.attrs
        if "bodies" not in attrs:
            return (Symbol(self.body_symbol),)
        named = attrs["bodies"]
        symbols = symbols_of({"bodies": named})
        if not isinstance(named, tuple) or len(symbols) != len(named):
            raise VerifyException(f"expected bodies to be symbols of scalar.bodies, got {named!r}")
        return symbols

    @classmethod
    def properties_of_results(cls, properties: Mapping[str, Attribute], count: int) -> dict[str, Attribute]:
        sizes: Any = properties[SEGMENT_SIZES[0]]
        return count_properties((tuple(sizes.get_values()), (count,)), SEGMENT_SIZES)

    def verify_(self) -> None:
        super().verify_()
        _ = self.bodies


def tensor_of(spec: OperandSpec) -> Tensor:
    """An operand as generators see it."""
    if len(spec) == 2:
        return Tensor(spec[0], spec[1], dense_strides(spec[1]), ALIGNMENT)
    return Tensor(*spec)


def attributes_of(use: Use) -> dict[str, Any]:
    """The attributes of a launch by name."""
    return {name: value for name, _, value in use.attrs}


class Selection:
    """The kernels of the launches of a module on one target: those of the registry, and generated ones."""

    def __init__(self, module: Operation | None, target: str, bodies: Bodies | None = None):
        """`module` holds the bodies; None if there are none. A pass that writes bodies gives its own `bodies` of the module."""
        self.target = target
        self._architecture = registry.architecture(target)  # no library shows in generated code
        self._module = module
        self._bodies = bodies

    @property
    def bodies(self) -> Bodies:
        """The bodies of the module."""
        if self._bodies is None:
            self._bodies = Bodies(self._module if isinstance(self._module, ModuleOp) else ModuleOp([]))
        return self._bodies

    def generated(self, use: Use, kernel_id: str = "") -> Kernel | None:
        """The kernel that is generated for `use`, by the schedule in `kernel_id`; None for an op whose kernels are registered.

        Raises VerifyError if there is no such body, or if it does not fit domain and operands; SelectionError for a schedule that
        the kernel cannot have.
        """
        if not registry.schemas()[use.op].generated:
            return None
        attrs = attributes_of(use)
        operands, results = (tuple(map(tensor_of, specs)) for specs in (use.inputs, use.outputs))
        try:
            kernel = self._kernel(use.op, attrs, operands, results)
            kernel.verify()
        except VerifyException as error:
            raise VerifyError(str(error)) from error
        schedule = divided_id(kernel_id)[1]
        return scheduled(kernel, schedule) if schedule else kernel

    def _kernel(
        self, op: str, attrs: Mapping[str, Any], operands: tuple[Tensor, ...], results: tuple[Tensor, ...]
    ) -> Kernel:
        if op == "back_to_back":
            return self._chain(attrs, operands, results)
        body = self.bodies[attrs["body"]]
        if (
            segmented := {"multi_tensor_map": EachKernel, "multi_tensor_rowwise": RowEachKernel}.get(op)
        ) is not None:
            return segmented(op, self._architecture, body, (attrs["segments"],), 0, operands, results)
        if op == "horizontal":
            members = members_of(attrs["members"])
            return HorizontalKernel(
                op,
                self._architecture,
                body,
                (),
                0,
                operands,
                results,
                ahead=self._ahead(attrs, operands),
                members=members,
            )
        if op != "gemm_map":
            return Kernel(
                op, self._architecture, body, attrs["shape"], attrs.get("reduced", 0), operands, results
            )
        a, b, *given = operands
        rounds = attrs.get("allow_tf32", False) and not registry.is_cpu(self.target)
        product = Product(a, b, attrs.get("trans_a", False), attrs.get("trans_b", False), rounds)
        _ = product.layout  # no kernel takes every strides
        z = Tensor(product.element, product.shape, dense_strides(product.shape))
        ahead = self._ahead(attrs, operands)
        return Kernel(op, self._architecture, body, product.shape, 0, (z, *given), results, product, ahead)

    def _ahead(self, attrs: Mapping[str, Any], operands: tuple[Tensor, ...]) -> tuple[int, ...]:
        """The operands that are read before the wait; a CPU has no wait of this kind."""
        ahead = tuple(attrs.get("ahead", ()))
        if list(ahead) != sorted(set(ahead)) or any(not 0 <= number < len(operands) for number in ahead):
            raise VerifyException(
                f"ahead: expected operands from 0 to {len(operands) - 1}, ascending, got {list(ahead)}"
            )
        return () if registry.is_cpu(self.target) else ahead

    def _chain(
        self, attrs: Mapping[str, Any], operands: tuple[Tensor, ...], results: tuple[Tensor, ...]
    ) -> BackToBackKernel:
        texts = [LinkText.parse(text) for text in attrs["links"]]
        a, *others = operands
        bs, xs = others[: (count := 1 + max(text.b for text in texts))], others[count:]
        given = iter(results)
        links: list[Link] = []
        for symbol, text in zip(attrs["bodies"], texts, strict=True):
            yields: list[Yield] = []
            for uses in text.values:
                wide = next(given) if uses.write else None
                column = next(given) if uses.sum else None
                element = uses.element if wide is None else wide.element
                yields.append(Yield(wide, column, uses.next, element))
            same = [before.b for before in texts].index(text.b)
            body = self.bodies[symbol]
            links.append(Link(body, bs[text.b], text.b, same, text.trans_b, text.takes, tuple(yields)))
        behind = attrs.get("behind", ())
        a_rounded = next(given) if ROUNDED_A in behind else None
        outers = [
            Outer(outer.left, outer.right, result)
            for outer, result in zip(
                (OuterText.parse(text) for text in behind if text != ROUNDED_A), given, strict=True
            )
        ]
        return BackToBackKernel.of(self._architecture, links, a, bs, xs, a_rounded, outers)

    def select(self, use: Use, wanted: str = "") -> tuple[str, int]:
        """The kernel id for `use`, and the bytes of workspace that it needs; a `wanted` id is kept if it is right.

        Raises SelectionError with the reason of every candidate, VerifyError as `generated`.
        """
        if (kernel := self.generated(use)) is None:
            return registry.select_kernel(use, self.target, wanted)
        symbol, schedule = divided_id(wanted)
        if symbol not in ("", kernel.symbol):
            named = ", ".join(f"@{symbol}" for symbol in symbols_of(attributes_of(use)))
            raise SelectionError(
                f"{wanted!r} is not the kernel of {named} on these operands:"
                f" that is {kernel.symbol!r} on {self.target}"
            )
        if schedule or not wanted:  # an id without one leaves it to the target
            kernel = scheduled(kernel, schedule)
        return kernel.id, workspace(kernel)

    def in_place(self, use: Use) -> frozenset[tuple[int, int]]:
        """Pairs (output, input) whose output may be in the very memory of the input."""
        kernel = self.generated(use)
        return registry.may_alias(use) if kernel is None else kernel.launch_in_place
