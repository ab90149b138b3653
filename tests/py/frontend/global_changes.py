"""What is done after compiling to things that belong to nobody: torch, its classes and functions, the process, the thread.

Each row is followed, guarded (an error names it, and `recompile()` goes on with it) or refused (`recompile()` is an error too).
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Literal

import global_worlds
import torch
import torch.nn.functional as F
from change_makers import (
    MUL,
    TANH,
    Case,
    Doubled,
    Seen,
    calls,
    code_of,
    context,
    doubled,
    entered,
    environment,
    half_step,
    hooked,
    nothing,
    of_world,
    own_step,
    own_zero_grad,
    packed,
    relu_of,
    same_again,
    scheduled,
    setting,
    setting_parts,
    shared_buffer,
    swapped_dict,
    with_setter,
    without_entry,
    wrapped_forward,
)
from global_worlds import LOCAL, MODE, Block, LargeBlock, LargeScale, Scale, World
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules import module as modules
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.flop_counter import FlopCounterMode

from aicf_mlir.errors import BindError, StateError

Change = Callable[[World], AbstractContextManager[Any]]
Outcome = Literal["followed", "guarded", "refused"]


CASES: dict[str, Case] = {
    # torch's state
    "default dtype": Case(
        calls(torch.set_default_dtype, torch.float64, torch.float32),
        "guarded",
        r"torch\.get_default_dtype\(\) was torch.float32, now torch.float64",
    ),
    "default device": Case(entered(lambda: torch.device("cpu")), "followed"),
    "default device meta": Case(
        entered(lambda: torch.device("meta")), "guarded", r"get_default_device", eager_fails=True
    ),
    "deterministic": Case(
        calls(torch.use_deterministic_algorithms, True, False), "guarded", r"deterministic"
    ),
    "threads": Case(
        calls(torch.set_num_threads, 3, 1), "guarded", r"torch\.get_num_threads\(\) was 1, now 3"
    ),
    "threads, no matter": Case(calls(torch.set_num_threads, 2, 1), "followed"),
    "product precision": Case(
        calls(torch.set_float32_matmul_precision, "medium", "highest"), "guarded", "matmul_precision"
    ),
    "product precision, no matter": Case(
        calls(torch.set_float32_matmul_precision, "high", "highest"), "followed"
    ),
    # the process and the thread
    "environment": Case(
        lambda _: environment(MODE, "large"),
        "guarded",
        r"os\.environ\['GLOBAL_WORLDS_MODE'\] was nothing, now 'large'",
    ),
    "environment, no matter": Case(lambda _: environment(MODE, "small"), "followed"),
    "environment, another name": Case(lambda _: environment("GLOBAL_WORLDS_OTHER", "large"), "followed"),
    "context": Case(lambda _: context(2.0), "guarded", r"GAIN was 1\.0, now 2\.0"),
    "context, the same": Case(lambda _: context(1.0), "followed"),
    "thread local": Case(setting(LOCAL, "gain", 2.0), "guarded", r"LOCAL\.gain was 1\.0, now 2\.0"),
    # functions of the user's
    "code of a function": Case(
        code_of(global_worlds.shifted, global_worlds.wide), "guarded", r"shifted\.__code__"
    ),
    "defaults": Case(
        setting_parts(global_worlds.shifted, "__defaults__", (3.0,)),
        "guarded",
        r"shifted\.__defaults__ was \(1\.0,\), now \(3\.0,\)",
    ),
    "defaults of keywords": Case(
        setting_parts(global_worlds.shifted, "__kwdefaults__", {"shift": 2.0}), "followed"
    ),
    "code of a method": Case(code_of(Scale.of, LargeScale.of), "guarded", r"of\.__code__"),
    "code of forward": Case(code_of(Block.forward, LargeBlock.forward), "guarded", r"forward\.__code__"),
    "code of the loss": Case(
        code_of(World.loss_fn, lambda model, batch: (model(batch["x"]) - batch["t"]).abs().mean()),
        "guarded",
        r"loss_fn\.__code__",
    ),
    "global function": Case(setting(global_worlds, "called", torch.sin), "guarded", "called"),
    "function with the same result": Case(
        setting(global_worlds, "called", lambda x: torch.sinh(x)), "followed"
    ),
    # functions of torch
    "F.relu": Case(setting(F, "relu", relu_of), "guarded", r"F\.relu"),
    "F.softplus": Case(setting(F, "softplus", torch.sin), "guarded", r"F\.softplus"),
    "F.linear": Case(setting(F, "linear", lambda x, w, b=None: x @ w.t()), "guarded", r"F\.linear"),
    "F.mse_loss": Case(setting(F, "mse_loss", F.l1_loss), "guarded", r"F\.mse_loss"),
    "code of F.relu": Case(code_of(F.relu, relu_of), "guarded", r"relu\.__code__"),
    "defaults of F.mse_loss": Case(
        setting_parts(F.mse_loss, "__defaults__", (None, None, "sum", None)),
        "guarded",
        r"mse_loss\.__defaults__",
    ),
    "torch.tanh": Case(setting(torch, "tanh", torch.sigmoid), "guarded", r"torch\.tanh"),
    "torch.tanh, equal": Case(setting(torch, "tanh", lambda x: TANH(x)), "followed"),
    "torch.relu": Case(setting(torch, "relu", torch.sigmoid), "guarded", r"torch\.relu"),
    "torch.ones": Case(setting(torch, "ones", torch.zeros), "guarded", r"torch\.ones"),
    "os.environ.get": Case(setting(os, "environ", {MODE: "large"}), "guarded", r"os\.environ"),
    # classes
    "Tensor.mul": Case(
        setting(torch.Tensor, "mul", lambda a, b: MUL(MUL(a, b), 2.0)), "refused", r"Tensor\.mul"
    ),
    "Tensor.__mul__": Case(
        setting(torch.Tensor, "__mul__", lambda a, b: MUL(MUL(a, b), 2.0)), "refused", r"Tensor\.__mul__"
    ),
    "Tensor, no matter": Case(setting(torch.Tensor, "note_of_mine", 3), "followed"),
    "Module._call_impl": Case(
        setting(nn.Module, "_call_impl", wrapped_forward), "refused", r"Module\._call_impl"
    ),
    "Module.__call__": Case(setting(nn.Module, "__call__", wrapped_forward), "refused", r"Module\.__call__"),
    "Module, no matter": Case(setting(nn.Module, "note_of_mine", 3), "followed"),
    "Linear.forward": Case(
        setting(nn.Linear, "forward", lambda self, x: F.linear(x, self.weight)), "guarded", r"Linear\.forward"
    ),
    "ReLU.__call__": Case(
        setting(nn.ReLU, "__call__", lambda self, x: torch.sigmoid(x)), "guarded", r"ReLU\.__call__"
    ),
    "Block.__call__": Case(
        setting(Block, "__call__", lambda self, x: self.inner(x)), "guarded", r"Block\.__call__"
    ),
    "method of a class": Case(setting(Block, "extra", lambda self, x: x * 3.0), "guarded", r"Block\.extra"),
    "attribute of a class": Case(setting(Scale, "unit", 3.0), "guarded", r"Scale\.unit"),
    "class of a module": Case(
        of_world("model.block.__class__", lambda _: LargeBlock),
        "guarded",
        r"model\.block\.__class__ was .*Block.*, now .*LargeBlock",
        shared=False,
    ),
    "class of an object": Case(
        of_world("model.scale.__class__", lambda _: LargeScale), "guarded", r"scale\.__class__", shared=False
    ),
    "dictionary of an object": Case(
        swapped_dict("model.scale", "factor", 4.0), "guarded", r"scale\.__dict__", shared=False
    ),
    "dictionary of an object, equal": Case(
        swapped_dict("model.scale", "note", 4.0), "followed", shared=False
    ),
    "dictionary of a module": Case(
        swapped_dict("model", "scale", LargeScale()), "guarded", r"model\.__dict__", shared=False
    ),
    "dictionary of a module, equal": Case(swapped_dict("model.block", "note", 1), "followed", shared=False),
    "all as it is": Case(same_again, "followed"),
    # the optimizer
    "step of one optimizer": Case(own_step, "refused", r"Adam\.step", shared=False),
    "zero_grad of one optimizer": Case(own_zero_grad, "refused", r"Adam\.zero_grad", shared=False),
    "Adam.step": Case(setting(torch.optim.Adam, "step", half_step), "guarded", r"Adam\.step"),
    "Optimizer.zero_grad": Case(
        setting(torch.optim.Optimizer, "zero_grad", nothing), "refused", r"Adam\.zero_grad"
    ),
    "what Adam.step calls": Case(
        setting(import_module("torch.optim.adam"), "adam", nothing),
        "refused",
        r"adam, which a step of torch calls",
    ),
    "torch.autograd.backward": Case(
        setting(torch.autograd, "backward", nothing), "refused", r"torch\.autograd\.backward"
    ),
    "Tensor.backward": Case(setting(torch.Tensor, "backward", nothing), "refused", r"Tensor\.backward"),
    "code of Adam.step": Case(
        setting_parts(inspect.unwrap(torch.optim.Adam.step), "__code__", half_step.__code__),
        "guarded",
        r"Adam\.step",
    ),
    "scheduler around step": Case(scheduled, "followed", shared=False, undone=False),
    "class of the optimizer": Case(
        of_world("optimizer.__class__", lambda _: torch.optim.AdamW),
        "guarded",
        "optimizer's class was Adam, now AdamW",
        shared=False,
    ),
    "dictionary of the optimizer": Case(
        of_world("optimizer.__dict__", lambda w: dict(vars(w.optimizer))), "guarded", "__dict__", shared=False
    ),
    "weight decay deleted": Case(
        lambda w: without_entry(w, "weight_decay"),
        "refused",
        "weight_decay",
        StateError,
        shared=False,
        eager_fails=True,
    ),
    "lr deleted": Case(
        lambda w: without_entry(w, "lr"), "refused", "lr", StateError, shared=False, eager_fails=True
    ),
    "one buffer for two parameters": Case(
        shared_buffer,
        "refused",
        r"momentum_buffer.*first\.weight.*block\.inner\.weight|momentum_buffer.*block\.inner\.weight.*first\.weight",
        BindError,
        shared=False,
        momentum=True,
    ),
    # hooks
    "global forward hook": Case(
        lambda _: hooked(modules.register_module_forward_hook, doubled), "refused", "global forward_hooks"
    ),
    "global forward pre-hook": Case(
        lambda _: hooked(modules.register_module_forward_pre_hook, nothing),
        "refused",
        "global forward_pre_hooks",
    ),
    "global backward hook": Case(
        lambda _: hooked(modules.register_module_full_backward_hook, nothing),
        "refused",
        "global backward_hooks",
    ),
    "global backward pre-hook": Case(
        lambda _: hooked(modules.register_module_full_backward_pre_hook, nothing),
        "refused",
        "global backward_pre_hooks",
    ),
    "global step pre-hook": Case(
        lambda _: hooked(register_optimizer_step_pre_hook, nothing), "refused", "global optimizer_pre_hooks"
    ),
    "global step post-hook": Case(
        lambda _: hooked(register_optimizer_step_post_hook, nothing), "refused", "global optimizer_post_hooks"
    ),
    # around
    "function mode": Case(entered(Doubled), "refused", r"TorchFunctionMode \(Doubled\)"),
    "dispatch mode": Case(entered(Seen), "refused", r"TorchDispatchMode \(Seen\)"),
    "flop counter": Case(entered(lambda: FlopCounterMode(display=False)), "refused", "TorchDispatchMode"),
    "fake tensors": Case(entered(FakeTensorMode), "refused", r"FakeTensorMode", eager_fails=True),
    "hooks on saved tensors": Case(
        entered(lambda: saved_tensors_hooks(packed, packed)), "refused", "saved_tensors_hooks"
    ),
    "saved on the host": Case(entered(torch.autograd.graph.save_on_cpu), "refused", "saved_tensors_hooks"),
    "anomaly detection": Case(
        lambda _: with_setter(lambda on: torch.set_anomaly_enabled(on), True, False), "refused", r"anomaly"
    ),
}
