"""Layers, losses and optimizers of torch, each with what it takes to train it for a step; `docs/support.md` names them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import nn

from aicf_mlir import optim

Make = Callable[[], nn.Module]

VECTOR, SEQUENCE, IMAGE, VOLUME, INDICES = (3, 4), (3, 5, 4), (2, 4, 8, 8), (2, 4, 4, 4, 4), (3, 5)
SPACES = {1: (2, 4, 8), 2: IMAGE, 3: VOLUME}
"""The shape of a batch of so many dimensions, with 4 channels."""


def of_each_rank(
    name: str, *args: Any, ranks: Sequence[int] = (1, 2, 3)
) -> dict[str, tuple[Make, tuple[int, ...]]]:
    """`name1d`, `name2d` and `name3d`, made with the same arguments."""
    classes: dict[int, Any] = {rank: getattr(nn, f"{name}{rank}d") for rank in ranks}
    return {f"{name}{rank}d": (partial(make, *args), SPACES[rank]) for rank, make in classes.items()}


ACTIVATIONS = (
    *("ReLU", "ReLU6", "LeakyReLU", "PReLU", "RReLU", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "GLU"),
    *("Tanh", "Sigmoid", "LogSigmoid", "Hardtanh", "Hardswish", "Hardsigmoid", "Hardshrink"),
    *("Softplus", "Softsign", "Softshrink", "Tanhshrink"),
)
"""Layers that are made without arguments, of a tensor of any shape."""

LAYERS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "Linear": (lambda: nn.Linear(4, 4), VECTOR),
    "Bilinear": (lambda: nn.Bilinear(4, 4, 4), VECTOR),
    "Identity": (nn.Identity, VECTOR),
    "Flatten": (nn.Flatten, SEQUENCE),
    "Unflatten": (lambda: nn.Unflatten(1, (2, 2)), VECTOR),
    **{name: (getattr(nn, name), VECTOR) for name in ACTIVATIONS},
    "Threshold": (lambda: nn.Threshold(0.1, 0.0), VECTOR),
    "Softmax": (lambda: nn.Softmax(-1), VECTOR),
    "Softmax2d": (nn.Softmax2d, IMAGE),
    "Softmin": (lambda: nn.Softmin(-1), VECTOR),
    "LogSoftmax": (lambda: nn.LogSoftmax(-1), VECTOR),
    "Dropout": (lambda: nn.Dropout(0.5), VECTOR),
    "Dropout in evaluation mode": (lambda: nn.Dropout(0.5).eval(), VECTOR),
    **of_each_rank("Dropout", 0.5),
    "AlphaDropout": (lambda: nn.AlphaDropout(0.5), VECTOR),
    "FeatureAlphaDropout": (lambda: nn.FeatureAlphaDropout(0.5), IMAGE),
    "LayerNorm": (lambda: nn.LayerNorm(4), VECTOR),
    "RMSNorm": (lambda: nn.RMSNorm(4), VECTOR),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), VECTOR),
    **of_each_rank("BatchNorm", 4),
    "SyncBatchNorm": (lambda: nn.SyncBatchNorm(4), VECTOR),
    "BatchNorm1d in evaluation mode": (lambda: nn.BatchNorm1d(4).eval(), VECTOR),
    **of_each_rank("InstanceNorm", 4),
    "LocalResponseNorm": (lambda: nn.LocalResponseNorm(2), IMAGE),
    "CrossMapLRN2d": (lambda: nn.CrossMapLRN2d(2), IMAGE),
    "Embedding": (lambda: nn.Embedding(7, 4), INDICES),
    "EmbeddingBag": (lambda: nn.EmbeddingBag(7, 4), INDICES),
    **of_each_rank("Conv", 4, 4, 3),
    **of_each_rank("ConvTranspose", 4, 4, 3),
    **of_each_rank("MaxPool", 2),
    **of_each_rank("AvgPool", 2),
    **of_each_rank("LPPool", 2, 2),
    **of_each_rank("AdaptiveAvgPool", 2),
    "AdaptiveAvgPool2d to one element": (lambda: nn.AdaptiveAvgPool2d(1), IMAGE),
    **of_each_rank("AdaptiveMaxPool", 2),
    **of_each_rank("FractionalMaxPool", 2, 2, ranks=(2, 3)),
    **of_each_rank("MaxUnpool", 2),
    **of_each_rank("ConstantPad", 1, 0.5),
    **of_each_rank("ZeroPad", 1),
    **of_each_rank("CircularPad", 1),
    **of_each_rank("ReflectionPad", 1),
    **of_each_rank("ReplicationPad", 1),
    "Fold": (lambda: nn.Fold((3, 3), 2), (3, 8, 4)),
    "Unfold": (lambda: nn.Unfold(2), IMAGE),
    "Upsample": (lambda: nn.Upsample(scale_factor=2), IMAGE),
    "UpsamplingNearest2d": (lambda: nn.UpsamplingNearest2d(scale_factor=2), IMAGE),
    "UpsamplingBilinear2d": (lambda: nn.UpsamplingBilinear2d(scale_factor=2), IMAGE),
    "PixelShuffle": (lambda: nn.PixelShuffle(2), IMAGE),
    "PixelUnshuffle": (lambda: nn.PixelUnshuffle(2), IMAGE),
    "ChannelShuffle": (lambda: nn.ChannelShuffle(2), IMAGE),
    "RNN": (lambda: nn.RNN(4, 4), SEQUENCE),
    "GRU": (lambda: nn.GRU(4, 4), SEQUENCE),
    "LSTM": (lambda: nn.LSTM(4, 4), SEQUENCE),
    **{name: (partial(getattr(nn, name), 4, 4), VECTOR) for name in ("RNNCell", "GRUCell", "LSTMCell")},
    "MultiheadAttention": (lambda: nn.MultiheadAttention(4, 2), SEQUENCE),
    "TransformerEncoderLayer": (lambda: nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), SEQUENCE),
    "TransformerDecoderLayer": (lambda: nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0), SEQUENCE),
    "TransformerEncoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0), 1),
        SEQUENCE,
    ),
    "TransformerDecoder": (
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0), 1),
        SEQUENCE,
    ),
    "Transformer": (lambda: nn.Transformer(4, 2, 1, 1, 8, dropout=0.0), SEQUENCE),
    "CosineSimilarity": (nn.CosineSimilarity, VECTOR),
    "PairwiseDistance": (nn.PairwiseDistance, VECTOR),
}

OF_TWO = (
    *(nn.Bilinear, nn.CosineSimilarity, nn.PairwiseDistance),
    *(nn.Transformer, nn.TransformerDecoder, nn.TransformerDecoderLayer),
)
"""Layers that are called with two tensors."""

CONTAINERS = (
    *("Module", "Container", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"),
    *("RNNBase", "RNNCellBase"),
)
"""Classes of torch.nn that compute nothing themselves."""

ON_SEVERAL_DEVICES = ("DataParallel",)

LOSSES: dict[str, Callable[[], Any]] = {
    "MSELoss": nn.MSELoss,
    "CrossEntropyLoss": nn.CrossEntropyLoss,
    "LinearCrossEntropyLoss": lambda: nn.LinearCrossEntropyLoss(4, 4),
    "AdaptiveLogSoftmaxWithLoss": lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 4, [2]),
    "L1Loss": nn.L1Loss,
    "SmoothL1Loss": nn.SmoothL1Loss,
    "HuberLoss": nn.HuberLoss,
    "NLLLoss": nn.NLLLoss,
    "GaussianNLLLoss": nn.GaussianNLLLoss,
    "PoissonNLLLoss": nn.PoissonNLLLoss,
    "BCELoss": nn.BCELoss,
    "BCEWithLogitsLoss": nn.BCEWithLogitsLoss,
    "KLDivLoss": lambda: nn.KLDivLoss(reduction="batchmean"),
    "SoftMarginLoss": nn.SoftMarginLoss,
    "MultiMarginLoss": nn.MultiMarginLoss,
    "MultiLabelMarginLoss": nn.MultiLabelMarginLoss,
    "MultiLabelSoftMarginLoss": nn.MultiLabelSoftMarginLoss,
    "MarginRankingLoss": nn.MarginRankingLoss,
    "HingeEmbeddingLoss": nn.HingeEmbeddingLoss,
    "CosineEmbeddingLoss": nn.CosineEmbeddingLoss,
    "TripletMarginLoss": nn.TripletMarginLoss,
    "TripletMarginWithDistanceLoss": nn.TripletMarginWithDistanceLoss,
    "CTCLoss": nn.CTCLoss,
}

OTHER_CALLS: dict[type[nn.Module], Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    nn.AdaptiveLogSoftmaxWithLoss: lambda loss, y, t: loss(y, t).loss,
    nn.GaussianNLLLoss: lambda loss, y, t: loss(y, t, y + 1),
    nn.MarginRankingLoss: lambda loss, y, t: loss(y, 1 - y, t.sign()),
    nn.CosineEmbeddingLoss: lambda loss, y, t: loss(y, 1 - y, t[:, 0].sign()),
    nn.TripletMarginLoss: lambda loss, y, t: loss(y, t, 1 - t),
    nn.TripletMarginWithDistanceLoss: lambda loss, y, t: loss(y, t, 1 - t),
    nn.CTCLoss: lambda loss, y, t: loss(
        y.log_softmax(-1), t[:1].clamp(1, 3), torch.tensor([3]), torch.tensor([1])
    ),
}
"""Losses that take more than a prediction and its target."""

OPTIMIZERS = (
    *("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD"),
    *("Adafactor", "Muon", "LBFGS", "SparseAdam", "Lion"),
)


def optimizer_of(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer `name` of torch.optim, or where it has none of ours, over the weights of `model`."""
    make: Any = getattr(torch.optim, name, None) or getattr(optim, name)
    return make([parameter for parameter in model.parameters() if parameter.dim() == 2], lr=0.01)


OF_CLASSES = (
    *("CrossEntropyLoss", "NLLLoss", "MultiMarginLoss"),
    *("LinearCrossEntropyLoss", "AdaptiveLogSoftmaxWithLoss"),
)
"""Losses whose targets are class indices, by name: older torch has not all of them."""


class Wrapped(nn.Module):
    """A layer behind a Linear, so that every layer has a gradient to pass on."""

    def __init__(self, layer: nn.Module, shape: tuple[int, ...]):
        super().__init__()
        self.first = nn.Identity() if shape == INDICES else nn.Linear(shape[-1], shape[-1])
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if isinstance(self.layer, nn.MultiheadAttention):
            result: Any = self.layer(x, x, x)
        elif isinstance(self.layer, OF_TWO):
            result = self.layer(x, x * 0.5)
        elif isinstance(self.layer, (nn.MaxUnpool1d, nn.MaxUnpool2d, nn.MaxUnpool3d)):
            result = self.layer(x, torch.arange(x[0, 0].numel()).reshape(x.shape[2:]).expand_as(x))
        else:
            result = self.layer(x)
        return result[0] if isinstance(result, tuple) else result


def input_of(shape: tuple[int, ...]) -> torch.Tensor:
    """Numbers, or class indices where the shape is that of indices."""
    torch.manual_seed(1)
    return torch.randint(0, 7, shape) if shape == INDICES else torch.randn(shape)


def target_of(loss: Any, shape: torch.Size) -> torch.Tensor:
    """Class indices for the losses that want them; else probabilities, which every other loss takes."""
    torch.manual_seed(2)
    if isinstance(loss, (nn.MultiLabelMarginLoss, nn.CTCLoss)):
        return torch.randint(0, shape[1], shape)
    return torch.randint(0, shape[1], shape[:1]) if type(loss).__name__ in OF_CLASSES else torch.rand(shape)
