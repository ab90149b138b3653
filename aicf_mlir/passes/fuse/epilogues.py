"""Maps of a product become its generated epilogue: one kernel.gemm_map.

A map joins the latest product that it reads element by element. One place of the text must be after all that both read and before
all that read them. The values of the product itself, and of the epilogue so far, are results of the launch if anything else reads
them. A map that only reductions read is left to them first: a sum over columns of a product of two values needs no memory for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, OpResult, SSAValue

from aicf_mlir.dialects import kernel
from aicf_mlir.dialects.generated import GeneratedOp
from aicf_mlir.dialects.kernel_op import KernelOp
from aicf_mlir.dialects.scalar import Bodies
from aicf_mlir.ir import remarks
from aicf_mlir.ir.attributes import Symbol
from aicf_mlir.ir.body import Body, is_table
from aicf_mlir.ir.expect import with_shape
from aicf_mlir.ir.formula import Builder
from aicf_mlir.ir.locations import fused_location
from aicf_mlir.ir.remarks import remark
from aicf_mlir.ir.roundings import written
from aicf_mlir.ir.tensor_op import shape_of
from aicf_mlir.passes.fuse.epilogue_body import Epilogue, epilogue_of
from aicf_mlir.passes.fuse.library import NO_EPILOGUE, Library
from aicf_mlir.passes.fuse.loops.cluster import MOST_LINES
from aicf_mlir.passes.fuse.loops.emit import operand_at, type_of
from aicf_mlir.passes.fuse.loops.fit import is_same
from aicf_mlir.passes.fuse.loops.members import Access, LoopMember, constant_of, member_of
from aicf_mlir.passes.fuse.missed import read_by
from aicf_mlir.passes.fuse.product import attributes_of_product
from aicf_mlir.passes.fuse.rounding import as_read, element_of
from aicf_mlir.passes.fuse.rule import FusionRule
from aicf_mlir.passes.fuse.views import in_place_of

MOST_OPERANDS, MOST_RESULTS = 12, 4
"""The most operands and results of one epilogue: each is a pointer and a vector in registers in addition to the product's sums.
"""

PRODUCTS = (kernel.GemmOp, kernel.GemmEpilogueOp, kernel.GemmMapOp)
MOVES = (kernel.ReshapeOp, kernel.ViewOp)


class EpilogueFusion:
    """The epilogues of the products of one function."""

    def __init__(self, function: FuncOp, bodies: Bodies, library: Library):
        self.bodies, self.library = bodies, library
        self.block = function.body.block
        self.position = {op: at for at, op in enumerate(self.block.ops)}

    def run(self, last: bool) -> None:
        """Write every map that a product takes into it; in the `last` run with remarks on the maps that stay apart."""
        for op in list(self.block.ops):
            member = member_of(op, self.bodies) if op.parent is self.block else None
            if member is None or member.kind != "map" or (not last and self.is_reduced(member)):
                continue
            missed = self.fuse(member)
            if missed and last and remarks.wanted():
                product, reason, readers = missed[0]
                notes = [(product, "the product"), *read_by(readers)]
                remark(op, f"is not fused into {product.name}: {reason}", *notes)

    def is_reduced(self, member: LoopMember) -> bool:
        """True if only reductions read `member`: one of them will compute it where it reads the product."""
        readers = [member_of(op, self.bodies) for result in member.results for op in readers_of(result)]
        return all(reader is not None and reader.kind != "map" for reader in readers)

    def fuse(self, member: LoopMember) -> list[tuple[KernelOp, str, Sequence[Operation]]]:
        """Write `member` into a product that takes it; else return the reason for each product, and the ops that read its
        values early.
        """
        tried: list[tuple[KernelOp, str, Sequence[Operation]]] = []
        for product in self.products(member):
            if self.library.runs(product):
                tried.append((product, NO_EPILOGUE, ()))
                continue
            own = epilogue_of(product, self.bodies)
            moved = member.over(shape_of(product.results[0]))
            if own is None:
                tried.append((product, "it computes more than its elements", ()))
            elif moved is None:
                reason = "in the shape of the product no strides say what it reads beside it"
                tried.append((product, reason, ()))
            elif not reads_elements(moved, own):
                tried.append((product, "it reads a part of the product, or in another order", ()))
            elif early := self.early_readers(product, moved, own):
                reason = "another reader of the product comes before what else it reads"
                tried.append((product, reason, early))
            elif self.join(product, own, moved):
                return []
            else:
                tried.append((product, "one kernel does not hold so many operands and results", ()))
        return tried

    def products(self, member: LoopMember) -> list[KernelOp]:
        """The products that `member` reads, the latest first."""
        owners = {access.root.owner: None for access in member.operands if access.layout is not None}
        found = [op for op in owners if isinstance(op, PRODUCTS) and op.kernel_id is None]
        return sorted(found, key=lambda op: -self.position[op])

    def stands_at_product(self, product: KernelOp, member: LoopMember, own: Epilogue) -> bool:
        """True if all other operands of `member` are made before the product."""
        others = [access.root for access in member.operands if access.root not in own.results]
        return all(self.made(root) < self.position[product] for root in others)

    def made(self, root: SSAValue) -> int:
        """The place at which a value is made; constants and arguments come before everything."""
        op = root.owner
        return -1 if isinstance(op, Block | kernel.ConstantOp) else self.position[op]

    def early_readers(self, product: KernelOp, member: LoopMember, own: Epilogue) -> list[Operation]:
        """The ops that read values of `product` before `member` while the launch cannot stand at the product."""
        if self.stands_at_product(product, member, own):
            return []
        end = self.position[member.op]
        readers = dict.fromkeys(reader for result in product.results for reader in readers_of(result))
        return [reader for reader in readers if self.position.get(reader, end) < end]

    def join(self, product: KernelOp, own: Epilogue, member: LoopMember) -> bool:
        """Write both as one launch, and have all readers read its results; False if one kernel does not hold it."""
        accesses: list[Access] = []
        for access in (*own.operands, *member.operands):
            scalar = access.layout is not None and constant_of(access) is not None
            if access.root not in own.results and not scalar and access not in accesses:
                accesses.append(access)
        accesses.sort(key=lambda access: access.layout is None)  # scalars, then tables
        elements = ["", *(element_of(access.root) for access in accesses)]  # the first are sums
        builder = Builder([own.body.args[0], *(type_of(access) for access in accesses)], elements)

        def value_of(access: Access, type_: str) -> int:
            constant = None if is_table(type_) else constant_of(access)
            return 1 + accesses.index(access) if constant is None else builder.constant(constant, type_).value

        given = [
            value_of(access, type_) for access, type_ in zip(own.operands, own.body.args[1:], strict=True)
        ]
        values: dict[SSAValue, int] = dict(
            zip(own.results, builder.inline(own.body, [0, *given]), strict=True)
        )
        args = [
            as_read(builder, access.root, values[access.root], member.op)
            if access.root in values
            else value_of(access, type_)
            for access, type_ in zip(member.operands, member.body.args, strict=True)
        ]
        for value in own.results:
            if all(reader is member.op for reader in readers_of(value)):
                del values[value]
        values |= zip(member.results, builder.inline(member.body, args), strict=True)
        body = builder.finish(values.values())
        if len(accesses) > MOST_OPERANDS or len(values) > MOST_RESULTS or body.operations > MOST_LINES:
            return False
        place = product if self.stands_at_product(product, member, own) else member.op
        body = written(body, elements, [element_of(value) for value in values])
        launch = self.launch(product, member, body, accesses, list(values), place)
        for value, result in zip(values, launch.results, strict=True):
            self.hand_over(value, result, place)
        self.erase(member.op)
        for value in own.results:
            self.erase_moves(value)
        self.erase(product)
        return True

    def launch(
        self,
        product: KernelOp,
        member: LoopMember,
        body: Body,
        accesses: Sequence[Access],
        values: Sequence[SSAValue],
        place: Operation,
    ) -> KernelOp:
        """The launch, before `place`, with results in the order of `values`."""
        read = [operand_at(self.block, access.root, access.layout, place) for access in accesses]
        scalars = [value for value, access in zip(read, accesses, strict=True) if access.layout is not None]
        launch = kernel.GemmMapOp.launch(
            {"a": product.ins["a"], "b": product.ins["b"], "x": scalars, "table": read[len(scalars) :]},
            {"y": [with_shape(value, member.domain) for value in values]},
            body=Symbol(self.bodies.symbol(body, body_name(product, member))),
            **attributes_of_product(product),
        )
        launch.location = fused_location(product, member.op)
        for value, result in zip(values, launch.results, strict=True):
            result.name_hint = value.name_hint
        self.insert(launch, place)
        for value in read:
            if isinstance(value.owner, Operation):
                self.position.setdefault(value.owner, self.position[place])
        return launch

    def insert(self, op: Operation, place: Operation) -> None:
        """Write `op` before `place`, whose position it shares."""
        self.block.insert_op_before(op, place)
        self.position[op] = self.position[place]

    def hand_over(self, value: SSAValue, result: OpResult, place: Operation) -> None:
        """Have all readers of `value` read `result`, after the launch that makes it."""
        new = in_place_of(value, result, place)
        if new is not result and isinstance(new.owner, Operation):
            self.position[new.owner] = self.position[place]
        value.replace_all_uses_with(new)
        self.sink(new, place)

    def sink(self, value: SSAValue, place: Operation) -> None:
        """Move the ops that only rename `value`, now before `place`, to after it."""
        for use in list(value.uses):
            op = use.operation
            if isinstance(op, MOVES) and self.position.get(op, -1) < self.position[place]:
                op.detach()
                self.insert(op, place)
                self.sink(op.results[0], place)

    def erase(self, op: Operation) -> None:
        """Erase `op`, and the moves that only it has read; nothing dead counts as a reader."""
        before = [operand.owner for operand in op.operands]
        op.detach()
        op.erase()
        for owner in dict.fromkeys(before):
            if isinstance(owner, MOVES) and owner.results[0].first_use is None:
                self.erase(owner)

    def erase_moves(self, value: SSAValue) -> None:
        """Erase the moves of `value`; nothing reads it but them."""
        for use in list(value.uses):
            self.erase_moves(use.operation.results[0])
            use.operation.detach()
            use.operation.erase()


@dataclass(frozen=True)
class FuseEpiloguesPass(FusionRule):
    """Write maps of the elements of a product as its epilogue, one generated launch.

    Options:
      early: leave maps that only reductions read to these
    """

    name = "fuse-epilogues"

    early: bool = False

    def fuse(self, function: FuncOp, bodies: Bodies) -> None:
        EpilogueFusion(function, bodies, Library(self.target)).run(last=not self.early)


def reads_elements(member: LoopMember, own: Epilogue) -> bool:
    """True if `member` reads the elements of the product in place."""
    read = [access.layout for access in member.operands if access.root in own.results]
    return all(layout is not None and is_same(layout, member.domain) for layout in read)


def readers_of(value: SSAValue) -> Iterator[Operation]:
    """Every op that reads `value`, also through ops that move no memory."""
    for use in value.uses:
        if isinstance(use.operation, MOVES):
            yield from readers_of(use.operation.results[0])
        else:
            yield use.operation


def body_name(product: KernelOp, member: LoopMember) -> str:
    """The name of the body: after the epilogue so far, and the map."""
    before = [product.body_symbol] if isinstance(product, GeneratedOp) else []
    before += ["bias"] if product.ins.get("bias") else []
    before += [str(product.attrs[name]) for name in ("act", "act_grad") if name in product.attrs]
    words = [*before, str(member.op.attrs.get("body", member.op.op_name))]
    return "_".join(dict.fromkeys(words))
