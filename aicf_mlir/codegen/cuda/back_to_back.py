"""A chain: each warpgroup takes 64 rows through all links, from registers to registers; the weights are in shared memory."""

from __future__ import annotations

from aicf_mlir.codegen.cuda.access import begin, head, parameters, pointer
from aicf_mlir.codegen.cuda.back_to_back_bodies import BodyWriter, result_of
from aicf_mlir.codegen.cuda.back_to_back_places import right_of
from aicf_mlir.codegen.cuda.back_to_back_plan import (
    ROWS,
    ChainSchedule,
    Fetch,
    is_scalar,
    outer_blocks,
    outer_registers,
    sum_registers,
)
from aicf_mlir.codegen.cuda.back_to_back_products import (
    format_of,
    outer_products,
    panels,
    product_name,
    products,
)
from aicf_mlir.codegen.cuda.back_to_back_schedule import plan_of
from aicf_mlir.codegen.cuda.back_to_back_sums import LANES, STRANDS, add_partial_sums, block_of, hand_on
from aicf_mlir.codegen.cuda.products import header_text
from aicf_mlir.codegen.cuda.text import Text
from aicf_mlir.kernels.back_to_back import BackToBackKernel, Link
from aicf_mlir.kernels.kernel import Code, Phase

HEADERS = ("kernels/back_to_back/device/pairs.cuh", "kernels/back_to_back/device/strips.cuh")
ALIGNMENT = 256


def reason(kernel: BackToBackKernel) -> str:
    """The reason why there is no code that takes tiles of rows through a chain; "" if there is."""
    plan = plan_of(kernel)
    return plan if isinstance(plan, str) else ""


def workspace(kernel: BackToBackKernel) -> int:
    """Bytes of the partial column sums of all blocks."""
    plan = _plan(kernel)
    return -(-4 * plan.blocks * plan.summed // ALIGNMENT) * ALIGNMENT


def code(kernel: BackToBackKernel) -> Code:
    """The text of a chain, and its one launch, or two if there are column sums."""
    plan = _plan(kernel)
    text = Text()
    for name in HEADERS:
        text.add(header_text(name))
    products(text, kernel)
    outer_products(text, kernel, plan)
    with text.block(head(parameters(kernel), kernel.symbol, plan.threads, 1)):
        ChainWriter(kernel, plan, text).write()
    phases = [Phase(kernel.symbol, plan.blocks, threads=plan.threads, shared=plan.shared)]
    if plan.summed:
        second = f"{kernel.symbol}_sums"
        with text.block(head(parameters(kernel), second, LANES * STRANDS)):
            add_partial_sums(text, kernel, plan)
        phases.append(Phase(second, -(-plan.summed // LANES), threads=LANES * STRANDS))
    return Code(str(text), tuple(phases), workspace(kernel))


def _plan(kernel: BackToBackKernel) -> ChainSchedule:
    plan = plan_of(kernel)
    if isinstance(plan, str):
        raise ValueError(f"this chain has no tiles: {plan}")
    return plan


class ChainWriter:
    """Prints the first phase: all rows, and the partial column sums of a block."""

    def __init__(self, kernel: BackToBackKernel, plan: ChainSchedule, text: Text):
        self.kernel, self.plan, self.text = kernel, plan, text
        self.ragged = plan.ragged(kernel.rows)
        self.weights = dict(plan.weights)
        self.first_x = 1 + kernel.b_count
        self.places = dict(plan.places)
        self.bodies = BodyWriter(kernel, plan, text)

    def write(self) -> None:
        """Write the statements of the function."""
        text, plan = self.text, self.plan
        begin(text)
        text.add(
            "extern __shared__ __align__(1024) unsigned char shared[];",
            "const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
            f"unsigned char* const strip = shared + {plan.strips} + warp * {plan.strip};",
            "const unsigned weights = aicf::chain::shared_address(shared);",
            f"const unsigned strips = weights + {plan.strips}{'' if plan.divided else f' + warp / 4 * {4 * plan.strip}'};",
        )
        tiles = -(-self.kernel.rows // ROWS)
        # Warpgroups that divide the sums of outer products take equally many tiles, the last one without rows if needed.
        turn = "tile - warp / 4" if plan.divided else "tile"
        if plan.divided:
            text.add(f"long long tile = blockIdx.x * {plan.warpgroups}ll + warp / 4;")
        else:
            text.add(f"long long tile = warp / 4 * {plan.blocks}ll + blockIdx.x;")
        self._rows("tile", "")
        for fetch in plan.fetches if plan.alone else plan.fetches_of(-1):
            self._fetch(fetch, "row0", "rows", f"{turn} < {tiles}")
        self._resident()
        for value, _ in plan.sums:
            owner, made = self.kernel.values[value]
            shares = plan.shares if value in plan.by_products else 0
            count = sum_registers(made.element, self.kernel.links[owner].n, shares)
            text.add(f"float s{value}[{count}] = {{}};")
        for number, outer in enumerate(self.kernel.outers):
            text.add(f"float d{number}[{outer_registers(outer.result, plan.shares)}] = {{}};")
        step = plan.blocks * plan.warpgroups
        with text.block(f"for (; {turn} < {tiles}; tile += {step})"):
            self._rows("tile", "")
            text.add(f"const long long next = tile + {step};")
            self._rows("next", "next_")
            text.add(f"const bool more = {turn.replace('tile', 'next')} < {tiles};")
            self._tile()
        for number in range(len(self.kernel.outers)):
            text.add(f"aicf::chain::wait_products(d{number});")
        for value in plan.by_products:
            text.add(f"aicf::chain::wait_products(s{value});")
        if self.kernel.outers and not plan.divided:
            self._meet_as_often(tiles)
        hand_on(text, self.kernel, plan)

    def _meet_as_often(self, tiles: int) -> None:
        """Let a warpgroup that had one tile less than the first one meet as often as the first.

        The code does not need it, but compute-sanitizer's racecheck does. After barriers that some warps of a block have passed
        more often than others, racecheck reports races between accesses with a `__syncthreads` in the middle.
        """
        meetings = 1 + len(set(self.plan.ready))
        with self.text.block(f"if (tile - warp / 4 * {self.plan.blocks}ll < {tiles})"):
            self.text.add(f"for (int i = 0; i < {meetings}; ++i) aicf::chain::meet(warp / 4);")

    def _rows(self, tile: str, prefix: str) -> None:
        """Write the first row of this warp in a tile, and the number of its 16 rows that exist."""
        text, rows = self.text, self.kernel.rows
        text.add(f"const long long {prefix}row0 = {tile} * {ROWS} + warp % 4 * 16;")
        if self.ragged:
            left = f"{rows}ll - {prefix}row0"
            text.add(
                f"const int {prefix}rows = static_cast<int>({left} < 0 ? 0 : {left} < 16 ? {left} : 16);"
            )
        else:
            text.add(f"constexpr int {prefix}rows = 16;")

    def _fetch(self, fetch: Fetch, row: str, rows: str, condition: str) -> None:
        """Start bringing a tile of an operand; an empty group of copies if there is none."""
        source = f"{pointer(self.kernel, fetch.operand)} + {row} * {fetch.columns}"
        with self.text.block(f"if ({condition})"):
            if self.ragged:
                source = f"{rows} > 0 ? {source} : {pointer(self.kernel, fetch.operand)}"
            self.text.add(f"{fetch.strip}::fetch(strip + {fetch.place}, {source}, {rows});")
        self.text.add("aicf::gemm::commit_copies();")

    def _arrived(self, count: int = 1) -> None:
        """Wait for the `count` tiles that are used next."""
        under_way = len(self.plan.fetches) - count if self.plan.alone else 0
        self.text.add(f"aicf::gemm::wait_copies<{under_way}>();", "__syncwarp();")

    def _used(self, link: int) -> None:
        """Fetch the next tiles into the memory of a link's tiles, none of which is needed any more."""
        plan = self.plan
        self.text.add("__syncwarp();")
        behind = [] if plan.alone else plan.behind(link)
        for fetch in behind:
            self._fetch(fetch, "row0", "rows", "true")
        if not behind:
            for fetch in plan.fetches_of(link if plan.alone else -1):
                self._fetch(fetch, "next_row0", "next_rows", "more")

    def _resident(self) -> None:
        """Bring weights and vectors to shared memory, numbers to registers."""
        text, kernel, plan = self.text, self.kernel, self.plan
        for number, place in plan.weights:
            link = kernel.links[number]
            source = pointer(kernel, 1 + link.b_number)
            text.add(f"{panels(link)}::fetch(shared + {place}, {source}, {plan.threads});")
        text.add("aicf::gemm::commit_copies();")
        for operand, place in plan.vectors:
            tensor = kernel.operands[operand]
            at = "i" if tensor.strides[1] == 1 else f"i * {tensor.strides[1]}"
            with text.block(f"for (int i = threadIdx.x; i < {tensor.shape[1]}; i += {plan.threads})"):
                text.add(
                    f"reinterpret_cast<float*>(shared + {place})[i] = widen({pointer(kernel, operand)}[{at}]);"
                )
        if plan.by_products:
            one = "0x3f803f80u" if kernel.element == "bf16" else "0x3c003c00u"
            text.add(
                f"if (threadIdx.x < 64) reinterpret_cast<unsigned*>(shared + {plan.ones})[threadIdx.x] = {one};"
            )
        for number, tensor in enumerate(kernel.xs):
            if is_scalar(tensor):
                operand = self.first_x + number
                text.add(f"const auto n{operand} = widen({pointer(kernel, operand)}[0]);")
        text.add(
            "aicf::gemm::wait_copies<0>();",
            "aicf::chain::show_products();",
            "__syncthreads();",
        )

    def _tile(self) -> None:
        """Emit all links for 64 rows, of which this warp has 16."""
        text, kernel = self.text, self.kernel
        self._read_a()
        chained, waiting, behind = "a", list[int](), list[int]()
        for number, link in enumerate(kernel.links):
            text.add(f"float z{number}[{link.n // 2}];")
            place = self.weights[link.same_b]
            name = product_name(link.n, link.k, link.trans_b)
            text.add(f"{name}(z{number}, {chained}, weights + {place});")
            self._multiply_rows(behind)
            for value in waiting:
                self._write_staged(value)
            text.add(f"aicf::chain::wait_products<{int(bool(behind))}>(z{number});")
            if number == 0 and kernel.outers:
                # After it the operands of the last tile's products may be overwritten.
                text.add("" if self.plan.divided else "aicf::chain::meet(warp / 4);")
                if self.kernel.multiplies_a:
                    self._stage_a()
            for flags in self.plan.flags:
                if flags.link == number:
                    self.bodies.settle(flags)
            self._body(number, link)
            if self.plan.divided:
                self._finish(behind)
            under_way, behind = behind, [n for n, ready in enumerate(self.plan.ready) if ready == number]
            waiting = self._stage(number, link)
            if behind and self.plan.divided:
                text.add("__syncthreads();")  # all strips are there
            elif behind:
                # After the barrier, their operands of all four warps may be overwritten.
                for other in under_way:
                    text.add(f"aicf::chain::wait_products(d{other});")
                text.add("aicf::chain::meet(warp / 4);")
            if link.chained is not None:
                chained = f"y{kernel.first_value(number) + link.chained}"
        self._multiply_rows(behind)
        for value in waiting:
            self._write_staged(value)
        if self.plan.divided:
            self._finish(behind)

    def _finish(self, numbers: list[int]) -> None:
        """Wait until all warpgroups have multiplied the operands of these outer products: then the memory may be written."""
        for number in numbers:
            self.text.add(f"aicf::chain::wait_products(d{number});")
        if numbers:
            self.text.add("__syncthreads();")

    def _read_a(self) -> None:
        """Read the left matrix of the first link, rounded, to registers."""
        text, kernel, plan = self.text, self.kernel, self.plan
        columns = kernel.links[0].k
        text.add(f"unsigned a[{columns // 4}];")
        self._arrived()
        first = plan.fetches[0]
        if first.element == "f32":
            with text.each("p", columns // 4):
                text.add(
                    f"const float2 pair = {first.strip}::read(strip + {first.place}, p);",
                    f"a[p] = {format_of(kernel.element)}::pack(pair.x, pair.y);",
                )
        else:
            with text.each("s", columns // 16):
                text.add("unsigned quad[4];", f"{first.strip}::read(quad, strip + {first.place}, s);")
                with text.each("i", 4):
                    text.add("a[4 * s + i] = quad[i];")
        self._used(-1)
        if not kernel.multiplies_a and kernel.a_rounded is not None:
            self._stage_a()

    def _stage_a(self) -> None:
        """Bring the left matrix of the first link to shared memory, and from there to memory if that is wanted."""
        text, kernel = self.text, self.kernel
        columns, place = kernel.links[0].k, self.places[-1]
        strip = f"aicf::chain::Strip<{columns}>"
        text.add(f"{strip}::write(strip + {place}, a);")
        if self.kernel.multiplies_a:
            text.add("aicf::chain::show_products();")
        if kernel.a_rounded is not None:
            text.add("__syncwarp();")
            number = len(kernel.operands) + kernel.results.index(kernel.a_rounded, self._behind_links())
            target = f"{pointer(kernel, number)} + row0 * {columns}"
            head = f"{strip}::each(strip + {place}, rows, [&](const uint4& chunk, int offset)"
            with text.block(head, "});"):
                text.add(f"{strip}::put({target}, chunk, offset);")
            text.add("__syncwarp();")

    def _behind_links(self) -> int:
        """The number of results that belong to links; all other results come after them."""
        return sum((made.wide is not None) + (made.column_sum is not None) for _, made in self.kernel.values)

    def _multiply_rows(self, numbers: list[int]) -> None:
        """Start outer products, and the column sums that are products with ones."""
        if not numbers:
            return
        text, kernel, plan = self.text, self.kernel, self.plan
        lefts = [outer.left for outer in kernel.outers]
        text.add("aicf::chain::begin_products();")
        with text.each("w", 4 * plan.shares):
            text.add(f"const unsigned rows16 = strips + w * {plan.strip};")
            for number in numbers:
                outer = kernel.outers[number]
                k = outer.result.shape[1]
                right = self.places[right_of(outer)]
                for share in range(outer_blocks(outer.result) // plan.shares):
                    left = f"aicf::chain::describe_strip<2048>(rows16 + {self._block(outer.left, share)})"
                    text.add(
                        f"outer_{k}(d{number} + {share * k // 2}, {left}, "
                        f"aicf::chain::describe_strip<2048>(rows16 + {right}));"
                    )
                    if outer.left in plan.by_products and number == lefts.index(outer.left):
                        ones = f"aicf::chain::describe_constant(weights + {plan.ones})"
                        text.add(f"outer_8(s{outer.left} + {4 * share}, {left}, {ones});")
        text.add("aicf::chain::commit_products();")

    def _block(self, value: int, share: int) -> str:
        """The start of the 64 columns of a strip that are the `share`th of this warpgroup."""
        if self.plan.divided:
            return f"{self.places[value]} + 2048 * {block_of(str(share), self.plan)}"
        return str(self.places[value] + 2048 * share)

    def _stage(self, number: int, link: Link) -> list[int]:
        """Bring values of a link to shared memory; the last one has yet to be written from there."""
        first = self.kernel.first_value(number)
        own = range(first, first + len(link.yields))
        staged = [value for value in own if value in self.places]
        leaving = [value for value in staged if self._leaves(value)]
        for value in staged:
            self.text.add(f"aicf::chain::Strip<{link.n}>::write(strip + {self.places[value]}, y{value});")
            if value in self.kernel.multiplied:
                self.text.add("aicf::chain::show_products();")
            self.text.add("__syncwarp();")
            if value in leaving[:-1]:
                self._write_staged(value)
        return leaving[-1:]

    def _leaves(self, value: int) -> bool:
        """True if a staged value is read again by its warp: to be written, or added to its column sums."""
        made = self.kernel.values[value][1]
        return made.wide is not None or (made.column_sum is not None and value not in self.plan.by_products)

    def _write_staged(self, value: int) -> None:
        """Write a staged value from shared memory to memory, and add it to the column sums."""
        kernel = self.kernel
        owner, made = kernel.values[value]
        n = kernel.links[owner].n
        strip = f"aicf::chain::Strip<{n}>"
        head = f"{strip}::each(strip + {self.places[value]}, rows, [&](const uint4& chunk, int offset)"
        with self.text.block(head, "});"):
            if made.wide is not None:
                self.text.add(f"{strip}::put({result_of(kernel, value)} + row0 * {n}, chunk, offset);")
            if made.column_sum is not None and value not in self.plan.by_products:
                self.text.add(f"aicf::chain::add_chunk<{format_of(made.element)}>(s{value}, chunk);")
        self.text.add("__syncwarp();")

    def _body(self, number: int, link: Link) -> None:
        """Emit the body on the sums of a product, between the arrival of the tiles that it needs and their last use."""
        fetches = self.plan.fetches_of(number)
        if fetches:
            self._arrived(len(fetches))
        self.bodies.write(number, link)
        if fetches:
            self._used(number)
