"""Checkpoints of a step whose optimizer state is divided among ranks: the file is that of a step that has all of it.

State is known by the name of its parameter. Counters are vectors with an element for each parameter of a group, so they are put
together, and taken apart, by name too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from aicf_mlir.dialects.optimizer_groups import ParamGroup
from aicf_mlir.host.ranks import Ranks
from aicf_mlir.runtime.checkpoint import Checkpoint, describe_groups
from aicf_mlir.runtime.checkpoint_file import StoredTensor
from aicf_mlir.runtime.checkpoint_load import refuse_groups

Tensors = Mapping[str, StoredTensor]


def whole(
    own: Checkpoint, groups: Sequence[ParamGroup], parts: Sequence[Sequence[str]], ranks: Ranks
) -> Checkpoint:
    """Return the checkpoint of all ranks; all of them call it together.

    `own`: that of this rank; `groups`: the param groups with all parameters; `parts`: the names of each rank.
    """
    keys = {key for _, key in _group_keys(groups)} | {key for _, key in _state_keys(groups)}
    sent = {key: tensor for key, tensor in own.tensors.items() if key in keys}
    told = [_unpacked(each) for each in _exchanged(_packed(sent, own.published), ranks)]
    merged = dict(own.tensors)
    for tensors, _ in told:
        merged |= {key: tensor for key, tensor in tensors.items() if key not in own.tensors}
    for index, key in _vector_keys(groups):
        names = groups[index].params
        rows = dict[str, StoredTensor]()
        for part, (tensors, _) in zip(parts, told, strict=True):
            rows |= zip([name for name in names if name in part], _elements(tensors.get(key)), strict=True)
        if rows:
            merged[key] = _joined([rows[name] for name in names])
    published = {name for _, names in told for name in names}
    return replace(
        own,
        tensors=dict(sorted(merged.items())),
        groups=describe_groups(groups),
        published=[name for group in groups for name in group.params if name in published],
    )


def part_of(read: Checkpoint, name: str, groups: Sequence[ParamGroup], part: Sequence[str]) -> Checkpoint:
    """Return what a rank with the parameters `part` has of a whole checkpoint; `groups` have all parameters.

    Raises CheckpointError, with `name` of the file, for a checkpoint with other groups.
    """
    if read.groups != (ours := describe_groups(groups)):
        refuse_groups(name, read.groups, ours)
    own = [group.with_params([each for each in group.params if each in part]) for group in groups]
    others = {key for owner, key in _state_keys(groups) if owner not in part}
    others |= {key for index, key in _group_keys(groups) if not own[index].params}
    tensors = {key: tensor for key, tensor in read.tensors.items() if key not in others}
    for index, key in _vector_keys(groups):
        names = groups[index].params
        if key in tensors and tensors[key].shape == (len(names),):
            rows = zip(names, _elements(tensors[key]), strict=True)
            tensors[key] = _joined([row for each, row in rows if each in part])
    published = [each for each in read.published if each in part or all(each not in g.params for g in groups)]
    return replace(read, tensors=tensors, groups=describe_groups(own), published=published)


def _state_keys(groups: Sequence[ParamGroup]) -> Iterator[tuple[str, str]]:
    """Yield the name of each parameter with the key of each of its states."""
    for index, group in enumerate(groups):
        for name in group.params:
            for slot in group.rule.state_slots(index, name):
                yield name, "/".join(slot.key)


def _group_keys(groups: Sequence[ParamGroup]) -> Iterator[tuple[int, str]]:
    """Yield the number of each group with the key of each of its host scalars and counters."""
    for index, group in enumerate(groups):
        for slot in group.rule.group_slots(index):
            yield index, "/".join(slot.key)


def _vector_keys(groups: Sequence[ParamGroup]) -> Iterator[tuple[int, str]]:
    """Yield those that have an element for each parameter of the group."""
    for index, group in enumerate(groups):
        vectors = (*group.rule.written_scalars, *group.rule.counters)
        for slot in group.rule.group_slots(index):
            if slot.name in vectors:
                yield index, "/".join(slot.key)


def _elements(vector: StoredTensor | None) -> list[StoredTensor]:
    """Return the elements of a vector, each as one of one element."""
    if vector is None:
        return []
    size = len(vector.data) // vector.shape[0]
    return [
        StoredTensor(vector.dtype, (1,), vector.data[i * size : (i + 1) * size])
        for i in range(vector.shape[0])
    ]


def _joined(rows: Sequence[StoredTensor]) -> StoredTensor:
    return StoredTensor(rows[0].dtype, (len(rows),), b"".join(bytes(row.data) for row in rows))


def _packed(tensors: Tensors, published: Sequence[str]) -> bytes:
    rows = [[key, each.dtype, list(each.shape), len(each.data)] for key, each in tensors.items()]
    head = json.dumps([rows, list(published)]).encode()
    return b"".join([len(head).to_bytes(8, "little"), head, *(bytes(each.data) for each in tensors.values())])


def _unpacked(data: bytes) -> tuple[Tensors, list[str]]:
    at = 8 + int.from_bytes(data[:8], "little")
    rows, published = json.loads(data[8:at])
    tensors = dict[str, StoredTensor]()
    for key, dtype, shape, size in rows:
        tensors[key] = StoredTensor(dtype, tuple(shape), data[at : at + size])
        at += size
    return tensors, published


def _exchanged(given: bytes, ranks: Ranks) -> list[bytes]:
    """Return the bytes of every rank, which may have different numbers of them."""
    sizes = np.empty(ranks.count, np.int64)
    ranks.exchange(np.array([len(given)], np.int64).view(np.uint8), sizes.view(np.uint8))
    most = int(sizes.max())
    into = np.empty(most * ranks.count, np.uint8)
    ranks.exchange(np.frombuffer(given.ljust(most, b"\0"), np.uint8), into)
    return [bytes(row[:size]) for row, size in zip(into.reshape(ranks.count, most), sizes, strict=True)]
