"""The dialects, in the order data passes them; loaded on first use."""

from collections.abc import Callable

from xdsl.ir import Dialect


def get_all_dialects() -> dict[str, Callable[[], Dialect]]:
    """Loaders of every AICF dialect by name."""

    def get_nn() -> Dialect:
        from aicf_mlir.dialects.nn import NN

        return NN

    def get_train() -> Dialect:
        from aicf_mlir.dialects.train import Train

        return Train

    def get_optim() -> Dialect:
        from aicf_mlir.dialects.optim import Optim

        return Optim

    def get_kernel() -> Dialect:
        from aicf_mlir.dialects.kernel import Kernel

        return Kernel

    def get_scalar() -> Dialect:
        from aicf_mlir.dialects.scalar import Scalar

        return Scalar

    def get_plan() -> Dialect:
        from aicf_mlir.dialects.plan import Plan

        return Plan

    return {
        "nn": get_nn,
        "train": get_train,
        "optim": get_optim,
        "kernel": get_kernel,
        "scalar": get_scalar,
        "plan": get_plan,
    }
