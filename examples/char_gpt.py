"""Train a small character-level GPT on the documentation of Python that every Python carries, with AICF and with torch eager.

Both start from the same weights, see the same batches under the same schedule, and are held against text that neither has
seen. Dropout draws from generators of their own, so the losses are alike and not the same. At the end the model that AICF
has trained, an ordinary torch module, writes.
"""

from __future__ import annotations

import argparse
import copy
import math
import time
from collections.abc import Callable, Iterator
from pydoc_data.topics import topics

import torch
from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.optim.lr_scheduler import LambdaLR

from aicf_mlir import compile_train_step, default_device, progress

CONTEXT, WIDTH, HEADS, LAYERS = 64, 128, 4, 2
BATCH = 16
DROPOUT = 0.1
RATE, WARM_UP = 2e-3, 0.05
"""The largest learning rate, and the share of the steps that lead up to it."""
CLIP = 1.0
"""The largest norm of the gradient."""
HELD_OUT = 0.1
"""The share of the text, its end, that nothing is trained on."""

Batch = dict[str, torch.Tensor]


class Block(nn.Module):
    """Attention to what came before, then two linear layers, each beside the way straight through."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        seen = scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        x = x + self.drop(self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH)))
        return x + self.drop(self.mlp(self.norm2(x)))


class GPT(nn.Module):
    """The logits of the next character at each place of [batch, up to CONTEXT] characters."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.token = nn.Embedding(characters, WIDTH)
        self.place = nn.Embedding(CONTEXT, WIDTH)
        self.drop = nn.Dropout(DROPOUT)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, characters, bias=False)
        for embedding in (self.token, self.place):
            nn.init.normal_(embedding.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        return self.head(self.norm(self.blocks(self.drop(self.token(x) + self.place(places)))))


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Cross entropy, in nats a character."""
    return cross_entropy(model(batch["x"]).flatten(0, 1), batch["y"].flatten())


class Text:
    """The text as indices of its characters: what is trained on, and what is held out."""

    def __init__(self, device: torch.device) -> None:
        text = "\n".join(topics[name] for name in sorted(topics))
        self.characters = sorted(set(text))
        index = {character: i for i, character in enumerate(self.characters)}
        data = torch.tensor([index[character] for character in text], device=device)
        self.trained, self.held_out = data.split([len(data) - (held := int(HELD_OUT * len(data))), held])

    def batches(self, data: torch.Tensor, count: int, seed: int) -> Iterator[Batch]:
        """`count` batches of random places, each with the characters that follow; the same for the same seed."""
        generator = torch.Generator().manual_seed(seed)
        for _ in range(count):
            starts = torch.randint(len(data) - CONTEXT, (BATCH, 1), generator=generator)
            places = (starts + torch.arange(CONTEXT)).to(data.device)
            yield {"x": data[places], "y": data[places + 1]}


def schedule(optimizer: torch.optim.Optimizer, steps: int) -> LambdaLR:
    """Up to the learning rate in a straight line, then down along a cosine to a tenth of it."""
    warm_up = max(1, int(WARM_UP * steps))

    def factor(step: int) -> float:
        if step < warm_up:
            return (step + 1) / warm_up
        return 0.55 + 0.45 * math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up))

    return LambdaLR(optimizer, factor)


def optimizer_of(model: nn.Module) -> torch.optim.AdamW:
    """Torch's own, for both."""
    return torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.99), weight_decay=0.1)


def compiled(
    model: nn.Module, optimizer: torch.optim.Optimizer, first: Batch
) -> Callable[[Batch], torch.Tensor]:
    """A step of AICF: the whole of it captured once, and replayed."""
    started = time.perf_counter()
    step = compile_train_step(
        model,
        optimizer,
        loss_fn=loss_of,
        example=first,
        device=first["x"].device,
        name="gpt",
        seed=0,
        clip_grad_norm=CLIP,
    )
    step.warmup(first)
    step.capture(first)
    print(f"compiled in {time.perf_counter() - started:.1f} s, {len(step.planned_kernels())} launches a step")
    return lambda batch: step.replay(inputs=batch)


def eager(
    model: nn.Module, optimizer: torch.optim.Optimizer, first: Batch
) -> Callable[[Batch], torch.Tensor]:
    """A step of torch, as everybody writes it."""

    def step(batch: Batch) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        return loss.detach()

    return step


Maker = Callable[[nn.Module, torch.optim.Optimizer, Batch], Callable[[Batch], torch.Tensor]]


def train(name: str, make: Maker, model: nn.Module, text: Text, steps: int) -> float:
    """Train the model with the steps that `make` gives, show how it goes, and return the steps a second."""
    optimizer = optimizer_of(model.train())
    step = make(model, optimizer, next(text.batches(text.trained, 1, seed=1)))
    scheduler = schedule(optimizer, steps)
    batches = text.batches(text.trained, steps, seed=1)
    started = time.perf_counter()
    for batch in (shown := progress(batches, total=steps, name=f"{name:5}", show=True)):
        loss = step(batch)
        scheduler.step()
        shown.set_postfix(loss=loss, lr=optimizer.param_groups[0]["lr"])
    return steps / (time.perf_counter() - started)


@torch.no_grad()
def held_out_loss(model: nn.Module, text: Text) -> float:
    """The mean loss of 20 batches of the text that is held out, without dropout."""
    model.eval()
    losses = [loss_of(model, batch) for batch in text.batches(text.held_out, 20, seed=2)]
    model.train()
    return torch.stack(losses).mean().item()


@torch.no_grad()
def written(model: nn.Module, text: Text, prompt: str, length: int, seed: int) -> str:
    """The prompt and what the model makes of it, a character at a time."""
    model.eval()
    generator = torch.Generator().manual_seed(seed)
    x = torch.tensor([[text.characters.index(character) for character in prompt]], device=text.trained.device)
    for _ in range(length):
        logits = model(x[:, -CONTEXT:])[0, -1].float().cpu()
        drawn = torch.multinomial(torch.softmax(logits / 0.7, -1), 1, generator=generator)
        x = torch.cat([x, drawn[None].to(x.device)], dim=1)
    model.train()
    return "".join(text.characters[index] for index in x[0].tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default=default_device(), help="cpu or cuda (default: CUDA where usable)")
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()

    torch.manual_seed(0)
    text = Text(torch.device(options.device))
    ours = GPT(len(text.characters)).to(options.device)
    theirs = copy.deepcopy(ours)
    weights = sum(parameter.numel() for parameter in ours.parameters())
    print(
        f"{weights:,} weights, {len(text.trained):,} characters to train on, {len(text.held_out):,} held out;"
        f" a held-out loss of {held_out_loss(ours, text):.3f} before training"
    )
    rates = {
        name: train(name, make, model, text, options.steps)
        for name, make, model in (("AICF", compiled, ours), ("torch", eager, theirs))
    }

    print("\nafter training")
    for name, model in (("AICF", ours), ("torch", theirs)):
        print(f"  {name:5}  held-out loss {held_out_loss(model, text):.3f}  {rates[name]:6.1f} steps/s")
    for seed, prompt in enumerate(("The ", "A class ")):
        print(f"\n--- {prompt!r} goes on ---\n{written(ours, text, prompt, 300, seed)}")


if __name__ == "__main__":
    main()
