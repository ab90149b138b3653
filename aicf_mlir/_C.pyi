"""Types of the compiled module: kernels, devices and the executor.

Sizes and offsets are in bytes; a stream is a cudaStream_t as an int.
Every failure is a class of `aicf_mlir.errors`:
KernelError      a call with wrong arguments, or one that the device refused
VerifyError      an operation that breaks its schema, where none was to be run (check_op, select_kernel …)
SelectionError   a kernel, or every kernel, that does not support the operands
PlanError        a plan that cannot run (Executor)
StateError       a call in the wrong state
CaptureError     a step that could not be recorded
"""

import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NotRequired, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

class places:
    """What a step reads and writes of Python while it is traced; a submodule."""

    @staticmethod
    def begin(
        own: tuple[str, ...],
        library: tuple[str, ...],
        tensor: type,
        opaque: tuple[type, ...],
        arrays: tuple[type, ...],
        /,
    ) -> None:
        """Record what this thread reads and writes from now on.

        `own`, `library`: how the files begin whose code is not looked at, and those that work for whoever calls them; `opaque`:
        types of which nobody can see what they hold. RuntimeError on a Python whose frames are not known.
        """

    @staticmethod
    def pause() -> bool:
        """Record nothing until `resume`; whether this thread did."""

    @staticmethod
    def resume() -> None:
        """Go on, in the thread that records; nothing in another one."""

    @staticmethod
    def end() -> None:
        """The step is over: see what is in each place, and record no more."""

    @staticmethod
    def owners() -> list[Any]:
        """What has places, more than once where it has several."""

    @staticmethod
    def taken(absent: object, /) -> list[tuple[Any, ...]]:
        """Every place, as the fields of `frontend.places.Place`; none is known afterwards."""

class _Kinds(enum.EnumMeta):
    def __getattr__(cls, name: str) -> OpKind: ...

class OpKind(enum.IntEnum, metaclass=_Kinds):
    """Every launch the runtime knows, a member for each of `op_schemas`. The numbers are stable."""

Attr: TypeAlias = bool | int | float | str | Sequence[int] | Sequence[str]
TensorType: TypeAlias = (
    tuple[str, Sequence[int]]
    | tuple[str, Sequence[int], Sequence[int]]
    | tuple[str, Sequence[int], Sequence[int], int]
)
"""
(dtype, shape), e.g. ("f32", (64, 256)); with strides in elements, contiguous without; and with the bytes that divide the address,
256 without.
"""
Slot: TypeAlias = tuple[str, int, str, Sequence[int]] | tuple[str, int, str, Sequence[int], Sequence[int]]
"""(arena, offset, dtype, shape) or (arena, offset, dtype, shape, strides); the offset is that of the first element."""
Counts: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""How many tensors each operand and each result of a schema has; None where each has one."""

class KernelVariant(TypedDict):
    name: str
    kind: int
    op: str
    device: str
    min_sm: int
    max_sm: int
    library: str | None
    built: bool

class MemoryStats(TypedDict):
    allocations: int
    live_bytes: int

class ExecutorStats(TypedDict):
    launches_per_step: int
    launches: int
    runs: int
    replays: int
    programmatic_edges: int
    """Of the captured graph: launches that may be started before the one in front of them has ended; 0 without a graph."""
    allocations: int
    live_bytes: int

class GraphNode(TypedDict):
    """Of a captured graph, as the driver has it."""

    kind: str
    function: str
    launch: int
    """The position of the launch in the plan that has made it."""
    after: tuple[int, ...]
    """Positions of the nodes that it waits for."""

class ProductTile(TypedDict):
    """How a block of threads computes a part of a product on CUDA; see csrc/kernels/gemm/tiles.h."""

    header: str
    """Of `cuda_headers`."""
    product: str
    """A class of the header, in the namespace aicf::gemm."""
    format: str
    """Its first two arguments, format and shape."""
    shape: str
    rows: int
    columns: int
    threads: int
    resident: int
    """Blocks of a multiprocessor at once, at least: how many registers they may have."""
    shared: int
    """Bytes of dynamic shared memory."""
    neighbours: int
    """That an epilogue gets at most."""

class Launch(TypedDict):
    symbol: NotRequired[str]
    """Its name in the plan."""
    origin: NotRequired[str]
    """The user's line and layer, for messages; empty where they are not known."""
    op: int | str
    kernel_id: str
    inputs: Sequence[Slot]
    outputs: Sequence[Slot]
    counts: Counts | None
    attrs: Mapping[str, Attr]
    after: NotRequired[Sequence[int]]
    """Positions of the launches that must be complete before this one."""
    branch: NotRequired[int]
    first_step_only: NotRequired[bool]
    """Of a captured graph; 0 if it is left out."""
    workspace: tuple[str, int, int] | None
    predicate: NotRequired[Slot | None]
    """The status: where its first number is not 0 the launch does nothing."""
    code: NotRequired[Code | None]
    """Of a generated kernel, with the id of the launch."""

MAX_RANK: int
"""The most dimensions that an operand of a kernel has."""
native: bool
"""Whether the CPU kernels are compiled for the processor that built them, and may run on no other."""
with_cuda: bool
"""Whether this build has the CUDA kernels; device_count("cuda") tells whether they can run."""

def op_schemas() -> list[dict[str, Any]]:
    """Every op; of its operands and results (name, count, layout), the layout "dense" or "strided"."""

def kernel_variants() -> list[KernelVariant]: ...
def targets() -> list[str]: ...
def product_layout(
    inputs: list[TensorType], outputs: list[TensorType], attrs: dict[str, Attr]
) -> dict[str, Any]:
    """Of a gemm: m, n, k, batch, inner_batch, and of the matrices in memory trans_a, trans_b and the steps of a and b:
    from row to row, and from product to product of the outer and the inner level. SelectionError for other strides.
    """

def check_op(
    op: int | str,
    inputs: list[TensorType],
    outputs: list[TensorType],
    attrs: dict[str, Attr],
    counts: Counts | None = None,
) -> None: ...
def may_alias(
    op: int | str,
    inputs: list[TensorType],
    outputs: list[TensorType],
    attrs: dict[str, Attr],
    counts: Counts | None = None,
) -> list[tuple[int, int]]: ...
def kernel_choices(
    op: int | str,
    inputs: list[TensorType],
    outputs: list[TensorType],
    attrs: dict[str, Attr],
    kernel_id: str,
    counts: Counts | None = None,
) -> list[str]:
    """What a kernel can choose for a use, on the current device; its own choice first. None for most kernels."""

def kernel_preference(
    op: int | str,
    inputs: list[TensorType],
    outputs: list[TensorType],
    attrs: dict[str, Attr],
    kernel_id: str,
    counts: Counts | None = None,
) -> str:
    """Why a plan that names no kernel has another one for a use that this kernel supports; "" where it has this one."""

def select_kernel(
    op: int | str,
    inputs: list[TensorType],
    outputs: list[TensorType],
    attrs: dict[str, Attr],
    target: str,
    name: str = "",
    counts: Counts | None = None,
) -> tuple[str, int]: ...

class TensorDesc:
    """Where a tensor lies and what it holds.

    `strides` are in elements, contiguous where None. `owner` lives as long as the description, and as long as
    a graph that records a call on it.
    """

    def __init__(
        self,
        data: int,
        dtype: str,
        shape: Sequence[int],
        strides: Sequence[int] | None = None,
        device: str = "cpu",
        owner: object = None,
    ) -> None: ...
    @property
    def data(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def device(self) -> str: ...
    @property
    def alignment(self) -> int: ...

def op_call(
    kind: int,
    inputs: list[TensorDesc],
    outputs: list[TensorDesc],
    attrs: dict[str, Attr],
    kernel_id: str = "",
    stream: int = 0,
    counts: Counts | None = None,
) -> str: ...

class Graph:
    """Recorded calls, replayed on the same addresses. Made by graph_end."""

def graph_begin(device: str = "cpu") -> None: ...
def graph_end(device: str = "cpu") -> Graph: ...
def graph_launch(graph: Graph, n: int = 1, stream: int = 0) -> None: ...
def graph_reset(graph: Graph) -> None: ...

Phase: TypeAlias = tuple[str, int, int, int, int]
"""
(function, count, grain, threads, shared) of `aicf_mlir.kernels.kernel.Phase`.
"""

class Code:
    """The code of a generated kernel, loaded. KernelError for code that cannot be, with the reason."""

    @staticmethod
    def cpu(
        id: str,
        object: bytes,
        phases: Sequence[Phase],
        in_place: Collection[tuple[int, int]] = (),
        workspace: int = 0,
        called: Sequence[str] = (),
    ) -> Code:
        """From a relocatable ELF object for x86-64 that defines a function for each phase and needs no other.

        A phase is called as `f(addresses, begin, end)` with the addresses of operands, results, the workspace and
        an array of pointers to the functions that are `called`: those of <cmath>, "exp" of doubles
        and "expf" of floats, and "product_f32" and so on of f64, f16 and bf16 (csrc/kernels/gemm/cpu_product.h).
        """

    @staticmethod
    def cuda(
        id: str,
        sm: int,
        image: bytes,
        phases: Sequence[Phase],
        in_place: Collection[tuple[int, int]] = (),
        workspace: int = 0,
        one_table: bool = False,
        waits: bool = False,
        together: Phase | None = None,
    ) -> Code:
        """From an image that the driver loads, compiled for compute capability `sm` (90 for sm_90).

        Its functions take each address as an argument, or with `one_table` all as one, an array.
        `waits`: each begins with dependency_wait(), so that launches in front of it may still run when it is started.
        `together`: a function for all phases, whose blocks wait for each other; launched where a device holds them at once.
        """

    @property
    def id(self) -> str: ...
    @property
    def target(self) -> str:
        """What it was compiled for: "cpu", or a compute capability such as "sm_90"."""

    @property
    def workspace(self) -> int:
        """Bytes."""
    @property
    def waits(self) -> bool:
        """CUDA: as it was said."""

def loaded_cuda_images() -> int:
    """Images of generated kernels that the CUDA driver holds for this process: each goes with its last code."""

def cuda_headers() -> dict[str, str]:
    """The device code that generated CUDA kernels bring along, by the paths by which it is included."""

def product_tile(
    dtype: str,
    sm: int,
    m: int,
    n: int,
    batch: int,
    trans_a: bool,
    trans_b: bool,
    allow_tf32: bool = False,
    k: int = 0,
) -> ProductTile:
    """The tile that the prebuilt kernels would take; where k is not 0, that of a kernel for sums of k terms alone.

    trans_a and trans_b are of the matrices in memory.

    SelectionError where there is none for the dtype and the compute capability.
    """

def product_tiles(
    dtype: str, sm: int, n: int, k: int, trans_a: bool, trans_b: bool, allow_tf32: bool = False
) -> list[ProductTile]:
    """All tiles that there are code for, of a result of n columns and sums of k terms: `product_tile` is one of them but for
    `resident`. Empty where there is none.
    """

class Arena(Buffer):
    """Zero-filled memory at a fixed address; on the CPU a writable buffer that keeps it alive.

    A `visible` arena holds a status: the host sees what a check writes there without waiting.
    """

    def __init__(self, device: str, nbytes: int, visible: bool = False) -> None: ...
    @property
    def ptr(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> str: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def write(self, offset: int, data: Buffer, stream: int = 0) -> None: ...
    def read(self, offset: int, nbytes: int, stream: int = 0) -> bytes: ...
    def fill(self, byte: int, stream: int = 0) -> None: ...
    def copy_from(self, other: Arena, stream: int = 0, offset: int = 0, nbytes: int = -1) -> None: ...
    def copy_in(self, offset: int, ptr: int, nbytes: int, stream: int = 0) -> None: ...
    def copy_out(self, offset: int, ptr: int, nbytes: int, stream: int = 0) -> None: ...

class Session:
    """The right to use one training state, taken by `with`: StateError while another call is inside, or after fork()."""

    def __init__(self, sharing: Sequence[Session] = ()) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...
    @property
    def active(self) -> int:
        """Index of the executor that was last given inputs; -1 before."""

    @property
    def steps(self) -> int:
        """Whole steps so far."""

class Watch:
    """Python objects that are compared with what they were, by identity; see aicf_mlir/runtime/watched.py."""

    def changed(self, start: int = 0, /) -> int: ...
    def accept(self, index: int) -> None: ...
    def clear(self) -> None: ...
    def add_namespace(self, owner: dict[str, Any], names: list[str]) -> int: ...
    def add_items(self, owner: dict[Any, Any]) -> int: ...
    def add_members(self, owner: list[Any]) -> int: ...
    def add_cell(self, owner: object) -> int: ...
    def add_class_attribute(self, owner: type, name: str) -> int: ...
    def add_attribute(self, owner: object, name: str, expected: object) -> int: ...
    def add_bytes(self, owner: Any, expected: bytes) -> int: ...
    def add_attributes(self, owners: list[Any], name: str, expected: object) -> int: ...
    def add_trained(self, owners: list[Any]) -> int: ...
    def add_fields(self, owners: list[Any], fields: list[int]) -> int: ...
    def add_empty(self, owners: list[Any]) -> int: ...
    def add_tensors(self, owners: list[Any], capsules: list[Any], plain: list[bool]) -> int: ...
    def add_call(self, function: Callable[[], object], expected: object) -> int: ...
    def add_word(self, function: Callable[..., object], argument: object) -> int: ...
    def add_torch_words(self, words: list[int]) -> int: ...
    @staticmethod
    def torch_words() -> list[int | None]: ...
    def add_functions(self, functions: list[Any]) -> int: ...
    def add_types(self, types: list[type]) -> int: ...
    def add_instances(self, objects: list[Any]) -> int: ...
    def add_context(self, variable: object) -> int: ...
    def add_watch(self, other: Watch) -> int: ...
    def count_words(self, index: int) -> int: ...
    @staticmethod
    def find_field(owner: object, value: object) -> int: ...
    @staticmethod
    def set_torch_layout(
        kind: int, storage: int, shape: int, data: int, impl: int, autograd: int, requires_grad: int
    ) -> None: ...
    def __len__(self) -> int: ...

class Executor:
    """A plan made ready: addresses, kernels, attributes resolved and checked once. One caller at a time.

    `inputs` are (arena, offset, nbytes) of the batch; `run`, `replay` and `load` take their new contents as addresses, of the
    device or of the host; host memory has been read when the call returns. `loss` is (arena, offset, nbytes) of what `replay`
    copies to an address.
    """

    def __init__(
        self,
        device: str,
        arenas: Mapping[str, Arena],
        launches: Sequence[Launch],
        status: Slot | None = None,
        inputs: Sequence[tuple[str, int, int]] = (),
        session: Session | None = None,
        index: int = 0,
        loss: tuple[str, int, int] | None = None,
    ) -> None: ...
    def load(self, batch: tuple[int, ...], stream: int = 0) -> None: ...
    def run(self, stream: int = 0, batch: tuple[int, ...] = ()) -> int:
        """Run one step; returns `failed`."""

    def capture(self) -> None: ...
    def replay(self, n: int = 1, stream: int = 0, batch: tuple[int, ...] = (), loss: int = 0) -> int:
        """Up to `n` steps, fewer where a check fails; then the loss to the address `loss`. Returns `failed`."""

    def reset(self) -> None: ...
    def time_launches(self, stream: int = 0, batch: tuple[int, ...] = ()) -> list[tuple[str, float]]:
        """Run one step that counts nowhere, and wait: the name of each launch as in `trace(choices=True)`, and its seconds."""

    def time_step(self, stream: int = 0, batch: tuple[int, ...] = ()) -> float:
        """The same without marks between the launches: the seconds of all together."""

    def trace(self, choices: bool = False) -> list[str]:
        """The ids of the kernels that ran; with `choices`, what each has chosen in brackets."""

    def graph(self) -> list[GraphNode]:
        """The nodes of the captured graph of one step, by launches; StateError where nothing is captured."""

    def stats(self) -> ExecutorStats: ...
    @property
    def captured(self) -> bool: ...
    @property
    def failed(self) -> int:
        """The code of the check that has failed, as far as the host can see without waiting; 0 while all is well."""

    @property
    def replayed(self) -> int:
        """Steps that the last replay enqueued; on the CPU the last one has failed where `failed` is not 0."""

def device_count(kind: str = "cuda") -> int: ...
def target_of(device: str) -> str:
    """The target of plans for a device, "cpu" or "cuda:0": "cpu", "sm_90", or "sm_90+cublaslt+cudnn"."""

def find_libraries_in(folders: Sequence[str]) -> None:
    """Folders in which libraries for a GPU are looked for, before the loader's own; for the first use of each."""

def libraries() -> list[tuple[str, str, int]]:
    """Each library that a target may name: its name there, its name in a sentence, its version; 0 if it is not found here."""

def synchronize(device: str, stream: int = 0) -> None: ...
def memory_stats(device: str) -> MemoryStats: ...
def threads() -> int:
    """How many threads share the loops of CPU kernels; the processors that this process may use, unless it was set."""

def set_threads(n: int) -> None:
    """Change it, for the whole process; KernelError outside [1, 256]. What is computed does not depend on it."""

class Board:
    """Memory that the processes of a host share, through which they exchange bytes."""

    def __init__(self, path: str, rank: int, processes: list[int]) -> None:
        """Open a file of zeros, as all ranks do. `processes`: pidfds by rank. Raises UnsupportedError."""

    @staticmethod
    def bytes(ranks: int) -> int:
        """The size of the file."""

    def exchange(self, given: NDArray[np.uint8], into: NDArray[np.uint8], seconds: float) -> None:
        """Fill `into` with `given` of every rank, in their order. Raises StateError where one has gone or is late, for good."""

class Communicator:
    """GPUs that exchange bytes, one of each process of a group: this one is number `device`. All raise KernelError."""

    def __init__(self, device: int, rank: int, ranks: int) -> None: ...
    def address(self) -> bytes:
        """How the other processes of this host reach the mailbox of this GPU; empty where they cannot."""

    def open(self, addresses: list[bytes]) -> None:
        """Open the mailboxes of all ranks, by their addresses."""

    def use_mailboxes(self) -> None:
        """Exchange through mailboxes from now on: all ranks have opened them."""

    def use_library(self, id: bytes) -> None:
        """Exchange by NCCL from now on. All ranks call it at the same time, with an id that one of them got."""

    def abort(self) -> None:
        """End what waits for other ranks, from any thread; nothing can be exchanged any more."""

    def check(self) -> None:
        """Raise StateError if nothing can be exchanged any more."""

def communicator_id() -> bytes:
    """An id of NCCL for a new communicator. Raises UnsupportedError where there is no NCCL."""

def use_communicators(those: dict[str, Communicator]) -> dict[str, Communicator]:
    """Let launches that this thread prepares exchange by these, by the name of the group; return those before."""

def use_exchange(function: Callable[[str, int, int, int, int, bool], str | None]) -> None:
    """What CPU kernels call for a collective: (group, address of what is given, of what comes, bytes of a part, ranks, whether a
    part is given for each rank).

    It returns the reason where the exchange failed, else None.
    """

def load_cpu_kernels(path: str | bytes, blas: str | bytes) -> None: ...
def load_blas(path: str | bytes) -> None: ...
