"""What is put around a model: peft's adapters, losses of metric learning, metrics, quantizers, sparse softmax."""

from __future__ import annotations

from typing import Any

import entmax
import peft
import torch
import torch.nn.functional as F
import transformers as hf
import vector_quantize_pytorch as vq
from pytorch_metric_learning import losses
from torch import nn
from torchmetrics.functional.classification import multiclass_accuracy
from torchmetrics.functional.regression import mean_absolute_error, r2_score

from tests.real.case import Batch, Make, sgd, trained
from tests.real.transformers_models import GROUPED, next_word, own_loss

ROWS, WIDTH, CLASSES = 16, 6, 4


def adapted(config: Any) -> Make:
    """A tiny Llama of which only the adapter trains."""

    def make() -> Any:
        model = peft.get_peft_model(hf.LlamaForCausalLM(hf.LlamaConfig(**GROUPED)), config)
        return trained(model, next_word, own_loss)

    return make


LORA: dict[str, Any] = {
    "r": 4,
    "lora_alpha": 8,
    "target_modules": ["q_proj", "v_proj"],
    "task_type": "CAUSAL_LM",
}


def labelled() -> Batch:
    """Every class twice or more, so that each row has a partner."""
    return {
        "x": torch.randn(ROWS, WIDTH),
        "t": torch.arange(CLASSES).repeat(ROWS // CLASSES)[torch.randperm(ROWS)],
    }


def net(last: int = 5) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, last))


def metric(make_loss: Any) -> Make:
    """Embeddings under a loss of pytorch-metric-learning, whose own weights train too."""
    return lambda: trained(
        nn.ModuleDict({"net": net(), "loss": make_loss()}),
        labelled,
        lambda m, b: m["loss"](m["net"](b["x"]), b["t"]),
    )


def two_views(make_loss: Any) -> Make:
    """Two rows of each sample, as of two views: the labels say which, and are the same for each batch."""
    return lambda: trained(
        nn.ModuleDict({"net": net(), "loss": make_loss()}),
        lambda: {"x": torch.randn(ROWS, WIDTH)},
        lambda m, b: m["loss"](m["net"](b["x"]), torch.arange(ROWS // 2).repeat(2)),
    )


def with_accuracy(model: Any, b: Batch) -> Any:
    logits = model(b["x"])
    accuracy = multiclass_accuracy(logits, b["t"], num_classes=CLASSES, average="micro", validate_args=False)
    return F.cross_entropy(logits, b["t"]) + 0 * accuracy


def with_error(model: Any, b: Batch) -> Any:
    found, wanted = model(b["x"]).flatten(), b["x"].sum(1)
    return (
        F.mse_loss(found, wanted) + 0.1 * mean_absolute_error(found, wanted) - 0.01 * r2_score(found, wanted)
    )


class Quantized(nn.Module):
    """An autoencoder around a quantizer."""

    def __init__(self, quantizer: nn.Module):
        super().__init__()
        self.into, self.quantizer, self.out = nn.Linear(WIDTH, 8), quantizer, nn.Linear(8, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        quantized, *rest = self.quantizer(self.into(x)[:, None])
        loss = F.mse_loss(self.out(quantized[:, 0]), x)
        return loss + rest[1].sum() if len(rest) > 1 else loss


def quantized(make: Any) -> Make:
    return lambda: trained(Quantized(make()), labelled, lambda m, b: m(b["x"]), sgd)


def entropy(function: Any) -> Make:
    return lambda: trained(
        net(CLASSES), labelled, lambda m, b: function(m(b["x"]), dim=-1).square().sum(1).mean()
    )


CASES: dict[str, Make] = {
    "peft LoRA": adapted(peft.LoraConfig(**LORA)),
    "peft DoRA": adapted(peft.LoraConfig(**LORA, use_dora=True)),
    "peft LoRA, stabilized": adapted(peft.LoraConfig(**LORA, use_rslora=True)),
    "peft IA3": adapted(
        peft.IA3Config(
            task_type="CAUSAL_LM",
            target_modules=["k_proj", "v_proj", "down_proj"],
            feedforward_modules=["down_proj"],
        )
    ),
    "peft prompts": adapted(peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)),
    "peft VeRA": adapted(peft.VeraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")),
    "metric ArcFace": metric(lambda: losses.ArcFaceLoss(CLASSES, 5)),
    "metric CosFace": metric(lambda: losses.CosFaceLoss(CLASSES, 5)),
    "metric normalized softmax": metric(lambda: losses.NormalizedSoftmaxLoss(CLASSES, 5)),
    "metric proxy anchor": metric(lambda: losses.ProxyAnchorLoss(CLASSES, 5)),
    "metric NT-Xent": metric(lambda: losses.NTXentLoss()),
    "metric SupCon": metric(lambda: losses.SupConLoss()),
    "metric triplets": metric(lambda: losses.TripletMarginLoss()),
    "metric NT-Xent of two views": two_views(lambda: losses.NTXentLoss()),
    "metric SupCon of two views": two_views(lambda: losses.SupConLoss()),
    "metric triplets of two views": two_views(lambda: losses.TripletMarginLoss()),
    "torchmetrics accuracy": lambda: trained(net(CLASSES), labelled, with_accuracy),
    "torchmetrics regression": lambda: trained(net(1), labelled, with_error),
    "quantizer, codebook": quantized(lambda: vq.VectorQuantize(dim=8, codebook_size=16)),
    "quantizer, learned codebook": quantized(
        lambda: vq.VectorQuantize(dim=8, codebook_size=16, learnable_codebook=True, ema_update=False)
    ),
    "quantizer, finite scalar": quantized(lambda: vq.FSQ(levels=[5, 5, 3], dim=8)),
    "quantizer, lookup free": quantized(lambda: vq.LFQ(codebook_size=16, dim=8)),
    "quantizer, residual": quantized(lambda: vq.ResidualVQ(dim=8, num_quantizers=2, codebook_size=16)),
    "sparsemax": entropy(entmax.sparsemax),
    "entmax 1.5": entropy(entmax.entmax15),
}
