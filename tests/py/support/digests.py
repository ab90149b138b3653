"""What random programs train to, as one digest: the same before and after a change that must change nothing.

python tests/py/support/digests.py [--programs 300] [--seed 0] [--steps 10] [--each]

Runs every program of random_programs.py for some steps on the CPU and hashes the bits of all parameters and states;
every NaN is one value, as which of two survives an addition is the compiler's choice. A second line has the launches of the
model in the README. `--each` prints a line a program, to find those that differ. Run it with the Python of another checkout to
compare the two: `../other/.venv/bin/python tests/py/support/digests.py`.
"""

from __future__ import annotations

import argparse
import hashlib

import torch
from models import values
from random_programs import program

import aicf_mlir


def program_digest(seed: int, steps: int) -> str:
    """Of the program of a seed after `steps` steps, the last half of them replayed."""
    case = program(seed)
    model = case.make_model()
    optimizer = case.optimizer(model)
    step = case.compiled(model, optimizer, "cpu")
    for index in range(steps):
        number = index % len(case.steps)
        batch = case.given(number, "cpu")
        if index == steps // 2:
            for size in range(case.sizes):
                step.capture(case.given(size, "cpu"))
        if index < steps // 2:
            step.train_step(batch)
        else:
            step.replay(inputs=batch)
    digest = hashlib.sha256()
    for name, value in sorted(values(model, optimizer).items()):
        digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        flat = value.detach().contiguous().reshape(-1)
        flat = flat.masked_fill(flat.isnan(), torch.nan) if flat.is_floating_point() else flat
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def readme_launches() -> list[str]:
    """Kernel ids of a step of two layers under Adam."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
    step = aicf_mlir.compile_train_step(model, torch.optim.Adam(model.parameters()), B=64, D=8)
    return list(step.planned_kernels())


def main() -> None:
    """Print the digest."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--each", action="store_true")
    options = parser.parse_args()
    whole = hashlib.sha256()
    for seed in range(options.seed, options.seed + options.programs):
        digest = program_digest(seed, options.steps)
        whole.update(digest.encode())
        if options.each:
            print(seed, digest)
    print(f"{options.programs} programs, {options.steps} steps: {whole.hexdigest()}")
    print("launches:", " ".join(readme_launches()))


if __name__ == "__main__":
    main()
