"""Learning without labels: one step of SimCLR, BYOL, DINO and their kin, as their repositories write them."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from tests.real.case import Batch, Make, Work, adamw, looped, sgd, trained

ROWS, SEEN, VIEWS, PROTOTYPES = 16, 8, 2, 6


def encoder() -> nn.Sequential:
    return nn.Sequential(nn.Linear(SEEN, 16), nn.GELU(), nn.Linear(16, SEEN))


def views() -> Batch:
    return {"one": torch.randn(ROWS, SEEN), "other": torch.randn(ROWS, SEEN)}


def simclr() -> Work:
    """Positives and negatives are selected by masks of the places in the batch."""

    def loss(net: nn.Module, b: Batch) -> torch.Tensor:
        labels = torch.cat([torch.arange(ROWS) for _ in range(VIEWS)], dim=0)
        labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
        features = F.normalize(net(torch.cat([b["one"], b["other"]], dim=0)), dim=1)
        similarity = features @ features.T
        mask = torch.eye(len(labels), dtype=torch.bool)
        labels = labels[~mask].view(len(labels), -1)
        similarity = similarity[~mask].view(len(similarity), -1)
        positives = similarity[labels.bool()].view(len(labels), -1)
        negatives = similarity[~labels.bool()].view(len(similarity), -1)
        logits = torch.cat([positives, negatives], dim=1) / 0.07
        return F.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64))

    return trained(encoder(), views, loss)


def byol() -> Work:
    """The target follows by `.data = …`."""
    online, predictor = encoder(), encoder()
    target = copy.deepcopy(online).requires_grad_(False)
    optimizer = sgd([*online.parameters(), *predictor.parameters()])

    def apart(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return 2 - 2 * (F.normalize(x, dim=-1) * F.normalize(y, dim=-1)).sum(dim=-1)

    def body(b: Batch) -> torch.Tensor:
        one, other = predictor(online(b["one"])), predictor(online(b["other"]))
        with torch.no_grad():
            of_one, of_other = target(b["one"]), target(b["other"])
        loss = (apart(one, of_other.detach()) + apart(other, of_one.detach())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for now, mean in zip(online.parameters(), target.parameters(), strict=True):
            mean.data = mean.data * 0.99 + (1 - 0.99) * now.data
        return loss

    return looped({"online": online, "predictor": predictor, "target": target}, views, body, optimizer)


class Centered(nn.Module):
    """DINO's loss; the mean of the teacher's outputs is a buffer that each call replaces."""

    center: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(1, SEEN))

    def forward(self, student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        wanted = F.softmax((teacher - self.center) / 0.04, dim=-1).detach().chunk(VIEWS)
        found = (student / 0.1).chunk(VIEWS)
        pairs = [(q, s) for i, q in enumerate(wanted) for j, s in enumerate(found) if i != j]
        loss = sum(((-q * F.log_softmax(s, dim=-1)).sum(-1).mean() for q, s in pairs), torch.zeros(()))
        with torch.no_grad():
            self.center = self.center * 0.9 + teacher.mean(dim=0, keepdim=True) * (1 - 0.9)
        return loss / len(pairs)


def dino() -> Work:
    """Each gradient is clipped by its own norm, by `.grad.data`."""
    student, criterion = encoder(), Centered()
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = adamw(student.parameters())

    def body(b: Batch) -> torch.Tensor:
        images = torch.cat([b["one"], b["other"]])
        loss = criterion(student(images), teacher(images))
        optimizer.zero_grad()
        loss.backward()
        for p in student.parameters():
            if p.grad is not None:
                p.grad.data.mul_((3.0 / (p.grad.data.norm(2) + 1e-6)).clamp(max=1.0))
        optimizer.step()
        with torch.no_grad():
            for now, mean in zip(student.parameters(), teacher.parameters(), strict=True):
                mean.data.mul_(0.996).add_((1 - 0.996) * now.detach().data)
        return loss

    return looped({"student": student, "teacher": teacher, "criterion": criterion}, views, body, optimizer)


def swav() -> Work:
    """Codes by Sinkhorn's iterations; the prototypes are normalized before each step."""
    net, prototypes = encoder(), nn.Linear(SEEN, PROTOTYPES, bias=False)
    optimizer = sgd([*net.parameters(), *prototypes.parameters()])

    @torch.no_grad()
    def codes(scores: torch.Tensor) -> torch.Tensor:
        q = torch.exp(scores / 0.05).t()
        q /= q.sum()
        for _ in range(3):
            q /= q.sum(dim=1, keepdim=True)
            q /= PROTOTYPES
            q /= q.sum(dim=0, keepdim=True)
            q /= ROWS
        q *= ROWS
        return q.t()

    def body(b: Batch) -> torch.Tensor:
        with torch.no_grad():
            prototypes.weight.copy_(F.normalize(prototypes.weight.data.clone(), dim=1))
        one, other = prototypes(F.normalize(net(torch.cat([b["one"], b["other"]])), dim=1)).chunk(VIEWS)
        loss = torch.zeros(())
        for x, y in ((one, other), (other, one)):
            loss -= (codes(x.detach()) * F.log_softmax(y / 0.1, dim=1)).sum(dim=1).mean() / VIEWS
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return looped({"net": net, "prototypes": prototypes}, views, body, optimizer)


class MoCo(nn.Module):
    """Keys of earlier batches in a queue, written at a place that is a buffer."""

    queue: torch.Tensor
    place: torch.Tensor

    def __init__(self):
        super().__init__()
        self.net = encoder()
        self.keys = copy.deepcopy(self.net).requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(SEEN, 4 * ROWS), dim=0))
        self.register_buffer("place", torch.zeros(1, dtype=torch.int64))

    def forward(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        q = F.normalize(self.net(one), dim=1)
        with torch.no_grad():
            for now, mean in zip(self.net.parameters(), self.keys.parameters(), strict=True):
                mean.data = mean.data * 0.99 + now.data * (1 - 0.99)
            k = F.normalize(self.keys(other), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().detach()], dim=1) / 0.07
        with torch.no_grad():
            place = int(self.place)
            self.queue[:, place : place + ROWS] = k.T
            self.place[0] = (place + ROWS) % self.queue.shape[1]
        return F.cross_entropy(logits, torch.zeros(ROWS, dtype=torch.int64))


CASES: dict[str, Make] = {
    "SimCLR": simclr,
    "BYOL": byol,
    "DINO": dino,
    "SwAV": swav,
    "MoCo": lambda: trained(MoCo(), views, lambda net, b: net(b["one"], b["other"]), sgd),
}
