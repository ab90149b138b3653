"""Published models that no kernel was tuned for: AICF beside torch.compile, both in a CUDA graph, many at once on one GPU.

    python bench/zoo_gpu.py --models timm:regnety_016,torchvision:densenet121,transformers:distilbert --workers 12
    python bench/zoo_gpu.py --models FILE          # one name a line; the order is kept
    python bench/zoo_gpu.py … --json FILE --profiles FOLDER

A name is a package and what it calls the model. An image model classifies 64 images of its own size; a transformer of the
package transformers has 8 layers of width 512 and trains on 16 × 512 tokens. All compute in bf16 under torch.autocast.
Models compile side by side, a process each; a lock lets one be timed at a time, by the fastest of seven windows. Others compile
on the host meanwhile: with fewer workers a line varies less. What AICF refuses, or torch cannot compile, is a result.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from contender import describe_machine
from torch import Tensor, nn

WINDOWS, SECONDS, FIRST = 7, 0.1, 3
IMAGES, CLASSES = 64, 1000
LAYERS, WIDTH, HEADS, SEQUENCES, TOKENS = 8, 512, 8, 16, 512

Batch = dict[str, Tensor]
Case = tuple[nn.Module, Batch, Callable[[nn.Module, Batch], Tensor]]


def image_case(model: nn.Module, size: tuple[int, ...]) -> Case:
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        said = model(batch["x"])
        said = (
            said
            if isinstance(said, Tensor)
            else next(iter(said.values()))
            if isinstance(said, dict)
            else said[0]
        )
        return nn.functional.cross_entropy(said, batch["y"])

    return model, {"x": torch.randn(IMAGES, *size), "y": torch.randint(CLASSES, (IMAGES,))}, loss


def of_timm(name: str) -> Case:
    import timm

    model = timm.create_model(name, pretrained=False, num_classes=CLASSES)
    return image_case(model, tuple(model.pretrained_cfg["input_size"]))


def of_torchvision(name: str) -> Case:
    import torchvision

    model = torchvision.models.get_model(name, weights=None, num_classes=CLASSES)
    if name in {"googlenet", "inception_v3"}:
        model.aux_logits = False
    return image_case(model, (3, 299, 299) if name == "inception_v3" else (3, 224, 224))


SIZES: dict[str, object] = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers", "decoder_layers"), LAYERS),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "embedding_size", "hidden_dim"), WIDTH),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "n_heads", "encoder_attention_heads",
                     "decoder_attention_heads"), HEADS),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim"), 4 * WIDTH),
    "vocab_size": 32000, "num_key_value_heads": HEADS // 2, "head_dim": WIDTH // HEADS, "max_position_embeddings": 1024,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False,
}  # fmt: skip


def of_transformers(name: str) -> Case:
    import transformers

    made = transformers.CONFIG_MAPPING[name]()
    known = {key: value for key, value in SIZES.items() if key in made.to_dict() or key in made.attribute_map}
    config = transformers.CONFIG_MAPPING[name](**known)
    for key in ("layer_types", "mlp_layer_types"):
        if getattr(config, key, None) is not None and len(getattr(config, key)) != LAYERS:
            setattr(config, key, getattr(config, key)[:LAYERS])
    causal = type(config) in transformers.AutoModelForCausalLM._model_mapping
    auto = transformers.AutoModelForCausalLM if causal else transformers.AutoModelForMaskedLM
    model = auto.from_config(config)
    ids = torch.randint(3, 32000, (SEQUENCES, TOKENS))

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return model(input_ids=batch["ids"], labels=batch["ids"]).loss

    return model, {"ids": ids}, loss


PACKAGES = {"timm": of_timm, "torchvision": of_torchvision, "transformers": of_transformers}


def placed(name: str) -> Case:
    """The case on the GPU, from one seed, its loss in bf16."""
    torch.manual_seed(0)
    package, _, model_name = name.partition(":")
    model, batch, plain = PACKAGES[package](model_name)
    images = "x" in batch
    model = model.train().cuda()
    batch = {key: value.cuda() for key, value in batch.items()}
    if images:
        model = model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        batch["x"] = batch["x"].to(memory_format=torch.channels_last)

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return plain(model, batch)

    return model, batch, loss


def aicf(name: str) -> tuple[Callable[[int], object], Callable[[], str]]:
    from aicf_mlir import compile_train_step

    model, batch, loss = placed(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    step: Any = compile_train_step(model, optimizer, example=batch, device="cuda", loss_fn=loss, name="zoo")
    step.warmup(batch)
    step.capture(batch)
    step.replay(FIRST, sync=True)  # as many as torch takes before its capture, so that losses can be compared
    return lambda n: float(step.replay(n, sync=True)), lambda: step.profile(5).table("plan")


def by_torch(name: str, compiled: bool) -> tuple[Callable[[int], object], Callable[[], str]]:
    torch.backends.cudnn.benchmark = True
    model, batch, loss = placed(name)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=True)
    called = torch.compile(loss) if compiled else loss

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        value = called(model, batch)
        value.backward()
        optimizer.step()
        return value.detach()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(FIRST):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = step()

    def run(n: int) -> float:
        for _ in range(n):
            graph.replay()
        return float(value)

    return run, lambda: ""


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def fastest(run: Callable[[int], object], lock: Path) -> float:
    """Milliseconds a step."""
    with alone(lock):
        run(2)
        begun = time.perf_counter()
        run(3)
        count = max(2, int(SECONDS * 3 / (time.perf_counter() - begun)))
        best = float("inf")
        for _ in range(WINDOWS):
            begun = time.perf_counter()
            run(count)
            best = min(best, (time.perf_counter() - begun) / count)
    return best * 1e3


def measure(name: str, contenders: list[str], lock: Path, profiles: Path | None) -> None:
    """Prints one JSON object a contender."""
    made: dict[str, Callable[[str], Any]] = {
        "aicf": aicf, "compile": lambda name: by_torch(name, True), "graph": lambda name: by_torch(name, False),
    }  # fmt: skip
    for contender in contenders:
        begun, found = time.monotonic(), {"contender": contender}
        try:
            torch.cuda.reset_peak_memory_stats()
            run, profile = made[contender](name)
            found |= {
                "loss": run(1),
                "ready": time.monotonic() - begun,
                "ms": fastest(run, lock),
                "after": run(1),
            }
            if profiles and contender == "aicf":
                with alone(lock):
                    (profiles / f"{name.replace(':', '-').replace('/', '-')}.txt").write_text(profile())
            del run, profile
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
            found["error"] = f"{type(error).__name__}: {' '.join(str(error).split())}"[:600]
        print(json.dumps(found), flush=True)
        gc.collect()
        torch.cuda.empty_cache()


def in_child(name: str, options: argparse.Namespace, lock: Path, end: float) -> dict[str, dict[str, Any]]:
    left = end - time.monotonic()
    if left < 60:
        return {}
    argv = [
        sys.executable,
        "-W",
        "ignore",
        __file__,
        "--one",
        name,
        "--lock",
        lock,
        "--contenders",
        options.contenders,
    ]
    argv += ["--profiles", options.profiles] if options.profiles else []
    threads = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    limit = min(left, options.limit)
    with subprocess.Popen(list(map(str, argv)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          env=os.environ | threads) as child:  # fmt: skip
        try:
            said, _ = child.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            child.kill()
            said, _ = child.communicate()
            said += json.dumps({"contender": "limit", "error": f"stopped after {limit:.0f} s"})
    lines = [json.loads(line) for line in said.splitlines() if line.startswith('{"contender"')]
    return {line["contender"]: line for line in lines}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default="", help="names with commas, or a file of them")
    parser.add_argument("--contenders", default="aicf,compile,graph")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--budget", type=float, default=540.0, help="seconds for all")
    parser.add_argument("--limit", type=float, default=400.0, help="seconds for a model")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--profiles", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--lock", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        warnings.simplefilter("ignore")
        measure(options.one, options.contenders.split(","), options.lock, options.profiles)
        return 0
    named = ":" in options.models
    names = options.models.split(",") if named else Path(options.models).read_text().split()
    if options.profiles:
        options.profiles.mkdir(parents=True, exist_ok=True)
    end, results = time.monotonic() + options.budget, dict[str, dict[str, dict[str, Any]]]()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.workers) as pool:
        lock = Path(folder) / "timed"
        jobs = {pool.submit(in_child, name, options, lock, end): name for name in names}
        for job in as_completed(jobs):
            results[jobs[job]] = job.result()
            if options.json:
                options.json.write_text(json.dumps(results, indent=1))
    print(describe_machine("cuda"))

    def ratio(name: str) -> float:
        found = results[name]
        peers = [found[key]["ms"] for key in ("compile", "graph") if "ms" in found.get(key, {})]
        return found["aicf"]["ms"] / min(peers) if peers and "ms" in found.get("aicf", {}) else 0.0

    for name in sorted(results, key=ratio):
        found = results[name]
        cells = [
            f"{found[key]['ms']:.2f}" if "ms" in found.get(key, {}) else "-"
            for key in options.contenders.split(",")
        ]
        losses = "/".join(f"{part['loss']:.3f}" for part in found.values() if "loss" in part)
        ready = "/".join(f"{part['ready']:.0f}" for part in found.values() if "ready" in part)
        errors = " ".join(f"{key}: {part['error'][:160]}" for key, part in found.items() if "error" in part)
        print(f"| {name} | {' | '.join(cells)} | {ratio(name):.2f} | {losses} | {ready} | {errors}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
