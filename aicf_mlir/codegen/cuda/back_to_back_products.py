"""The products of a chain: functions on the registers of a warpgroup, each of a width, printed once."""

from __future__ import annotations

from aicf_mlir.codegen.cuda.back_to_back_plan import ChainSchedule
from aicf_mlir.codegen.cuda.text import Text
from aicf_mlir.kernels.back_to_back import BackToBackKernel, Link


def format_of(element: str) -> str:
    """The type of the device code that packs and unpacks an element."""
    return f"aicf::chain::{element.upper()}"


def panels(link: Link) -> str:
    """The type of the device code that has the weights of a link."""
    return f"aicf::chain::Panels<{link.b.shape[0]}, {link.b.shape[1]}>"


def products(text: Text, kernel: BackToBackKernel) -> None:
    """Write a function for each kind of product: the sums of 64 rows, which are under way when it returns."""
    element = kernel.element
    for n in dict.fromkeys(link.n for link in kernel.links):
        count = n // 2
        sums = ", ".join(f"%{i}" for i in range(count))
        pairs = ", ".join(f"%{count + i}" for i in range(4))
        changed = ", ".join(f'"+f"(z[{i}])' for i in range(count))
        text.add("template <int BY_COLUMN>")
        head = f"(float (&z)[{count}], const unsigned* a, unsigned long long b, int add)"
        with text.block(f"__device__ __forceinline__ void multiply_{n}{head}"):
            text.add(
                'asm volatile("{.reg .pred add; setp.ne.s32 add, %' + f"{count + 5}, 0; "
                f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{element}.{element} {{{sums}}}, "
                f'{{{pairs}}}, %{count + 4}, add, 1, 1, %{count + 6};}}"',
                f"    : {changed}",
                '    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add), "n"(BY_COLUMN));',
            )
    for n, k, trans in dict.fromkeys((link.n, link.k, link.trans_b) for link in kernel.links):
        name = product_name(n, k, trans)
        shape = f"{n}, {k}" if trans else f"{k}, {n}"
        head = f"(float (&z)[{n // 2}], const unsigned (&a)[{k // 4}], unsigned b)"
        with text.block(f"__device__ __forceinline__ void {name}{head}"):
            text.add("aicf::chain::begin_products();")
            with text.each("k", k // 16):
                where = f"aicf::chain::Panels<{shape}>::describe<{str(trans).lower()}>(b, 16 * k)"
                text.add(f"multiply_{n}<{int(not trans)}>(z, a + 4 * k, {where}, k > 0);")
            text.add("aicf::chain::commit_products();")


def outer_products(text: Text, kernel: BackToBackKernel, plan: ChainSchedule) -> None:
    """Write a function for each width of the right side: it adds the product of 64 columns of the left side and 64 rows."""
    element = kernel.element
    widths = dict.fromkeys(outer.result.shape[1] for outer in kernel.outers)
    for n in [*widths, *([8] if plan.by_products else [])]:
        count = n // 2
        sums = ", ".join(f"%{i}" for i in range(count))
        changed = ", ".join(f'"+f"(d[{i}])' for i in range(count))
        head = "(float* d, unsigned long long left, unsigned long long right)"
        with text.block(f"__device__ __forceinline__ void outer_{n}{head}"):
            text.add(
                f'asm volatile("wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{element}.{element} {{{sums}}}, '
                f'%{count}, %{count + 1}, 1, 1, 1, 1, {int(n != 8)};"',
                f"    : {changed}",
                '    : "l"(left), "l"(right));',
            )


def product_name(n: int, k: int, trans: bool) -> str:
    """The function of a kind of product."""
    return f"product_{n}_{k}{'_t' if trans else ''}"
