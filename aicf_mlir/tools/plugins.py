"""Passes from outside the tree: those of installed packages, and those of a file or module that the user names.

A package offers passes by entry points of the group `aicf.passes`, one each, `FLAG = "package.module:Class"`. A
plugin is a file `PATH.py` or a module: its passes are the subclasses of `ModulePass` that it defines with a
`name`. In both, flag and `name` are the same. No pass replaces another: a name that is there already is refused.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import get_type_hints

from xdsl.passes import ModulePass

from aicf_mlir.errors import AicfError
from aicf_mlir.passes.pipeline import PassTable

GROUP = "aicf.passes"

_NOT_A_PLUGIN = (__file__, "<frozen ", str(Path(importlib.__file__).parent))
"""The files of those frames of a failed load that are not the plugin's."""

_FLAG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class PluginError(AicfError):
    """A pass from outside the tree that cannot be had: not found, failed to load, or of a name that is taken."""


@dataclass(frozen=True)
class OutsidePass:
    """The loader of a pass from outside the tree."""

    flag: str
    origin: str
    """The origin of the pass, in words."""
    source: EntryPoint | type[ModulePass]

    def __call__(self) -> type[ModulePass]:
        """The pass; raises `PluginError` if it cannot be loaded or is no pass."""
        loaded: object = self.source
        if isinstance(loaded, EntryPoint):
            try:
                loaded = loaded.load()
            except (Exception, SystemExit) as error:
                raise PluginError(f"pass '{self.flag}' of {self.origin}: {_told(error)}") from error
        if not (isinstance(loaded, type) and issubclass(loaded, ModulePass)):
            raise PluginError(
                f"pass '{self.flag}' of {self.origin}: expected a subclass of xdsl.passes.ModulePass,"
                f" got {loaded!r}"
            )
        if (name := getattr(loaded, "name", None)) != self.flag:
            raise PluginError(
                f"pass '{self.flag}' of {self.origin}: {loaded.__name__} has the name {name!r}; give both one name"
            )
        try:
            get_type_hints(loaded)
        except Exception as error:
            raise PluginError(
                f"pass '{self.flag}' of {self.origin}: the type of an option cannot be read: {error}"
            ) from error
        return loaded


def with_outside_passes(tree: PassTable, plugins: Iterable[str] = ()) -> PassTable:
    """The passes of the tree, then those of installed packages, then those of `plugins` (`PATH.py` or a module).

    Raises `PluginError` for a plugin that cannot be loaded, and for a second pass of one name.
    """
    table = dict(tree)
    for outside in (
        *installed_passes(),
        *(one for plugin in dict.fromkeys(plugins) for one in load_plugin(plugin)),
    ):
        if _FLAG.fullmatch(outside.flag) is None:
            raise PluginError(
                f"{outside.origin} has a pass {outside.flag!r}: a name is lower-case words joined by '-'"
            )
        if (taken := table.get(outside.flag)) is not None:
            raise PluginError(
                f"there are two passes '{outside.flag}', of {origin_of(taken)} and of {outside.origin}:"
                " rename one"
            )
        table[outside.flag] = outside
    return table


def origin_of(loader: object) -> str:
    """The origin of a loader's pass, in words."""
    return loader.origin if isinstance(loader, OutsidePass) else "AICF"


def installed_passes() -> Iterator[OutsidePass]:
    """The passes that installed packages offer, by package; nothing of theirs is imported yet."""
    for point in sorted(entry_points(group=GROUP), key=lambda point: (_package(point), point.name)):
        yield OutsidePass(point.name, f"the package {_package(point)}", point)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value


def load_plugin(plugin: str) -> Iterator[OutsidePass]:
    """The passes of `plugin`, in the order of their definition. The file or module is run."""
    try:
        module = _load_file(Path(plugin)) if plugin.endswith(".py") else _load_module(plugin)
    except (Exception, SystemExit) as error:
        if isinstance(error, PluginError):
            raise
        raise PluginError(f"pass plugin '{plugin}': {_told(error)}") from error
    if not (found := _passes_of(module)):
        raise PluginError(
            f"pass plugin '{plugin}' has no pass: expected a subclass of xdsl.passes.ModulePass with a name"
        )
    for pass_type in found:
        yield OutsidePass(pass_type.name, f"the plugin {plugin}", pass_type)


def _load_file(path: Path) -> ModuleType:
    """The file as a module under a name that no other has: dataclasses look theirs up."""
    if not path.is_file():
        raise PluginError(f"pass plugin '{path}': there is no such file")
    name = f"aicf plugin {path.resolve()}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"pass plugin '{path}' cannot be read as Python")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _load_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise PluginError(f"pass plugin '{name}': expected PATH.py or the name of a module")
    return importlib.import_module(name)


def _passes_of(module: ModuleType) -> list[type[ModulePass]]:
    """The passes that the module, or a module inside it, defines; passes imported from elsewhere are left out."""
    members: Mapping[str, object] = vars(module)
    found = [m for m in members.values() if isinstance(m, type) and issubclass(m, ModulePass)]
    return [
        member
        for member in dict.fromkeys(found)
        if f"{member.__module__}.".startswith(f"{module.__name__}.")
        and not inspect.isabstract(member)
        and isinstance(getattr(member, "name", None), str)
    ]


def _told(error: BaseException) -> str:
    """The error that the code of a plugin raised, on one line, and its place."""
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg} ({error.filename}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in frames if not frame.filename.startswith(_NOT_A_PLUGIN)]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}"
