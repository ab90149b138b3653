"""Small texts that ask for much: each is refused at a place, or read, within the limits of `workers`."""

from __future__ import annotations

from collections.abc import Callable

from mutated_texts import run_tool

from aicf_mlir.tools import aicf_opt, aicf_run


def attribute(value: str) -> str:
    return f'"test.op"() {{value = {value}}} : () -> ()'


def doubling(sigil: str, count: int, pair: str = "[{0}, {0}]", first: str = "[1, 1]") -> str:
    """Aliases, each twice the one before."""
    rows = [f"{sigil}0 = {first}"]
    rows += [f"{sigil}{i} = {pair.format(f'{sigil}{i - 1}')}" for i in range(1, count)]
    return "\n".join([*rows, attribute(f"{sigil}{count - 1}")])


def many(item: str, count: int) -> str:
    return ",".join([item] * count)


BOMBS: dict[str, Callable[[], str]] = {
    "aliases #0": lambda: doubling("#", 22),
    "aliases #a-0": lambda: doubling("#a-", 20),
    "aliases #a$0": lambda: doubling("#a$", 20),
    "aliases #a.0": lambda: doubling("#a_.", 60),
    "type aliases": lambda: doubling("!a$", 60, "tuple<{0}, {0}>", "tuple<i32, i32>"),
    "uses of one alias": lambda: f"#0 = [{many('1', 1_000)}]\n" + f"{attribute('#0')}\n" * 20_000,
    "splats": lambda: f"{attribute('dense<0> : tensor<262144xi32>')}\n" * 1_400,
    "wide splats": lambda: f"{attribute('dense<0.0> : tensor<1048576xf64>')}\n" * 1_400,
    "splats in hex": lambda: attribute('dense<"0x00000000"> : tensor<262144xf32>') * 1_400,
    "list": lambda: attribute(f"[{many('1', 4_000_000)}]"),
    "list of floats": lambda: attribute(f"[{many('1.5 : f32', 2_000_000)}]"),
    "array": lambda: attribute(f"array<i64: {many('1', 4_000_000)}>"),
    "tuple": lambda: attribute(f"tuple<{many('i32', 2_000_000)}>"),
    "dense list": lambda: attribute(f"dense<[{many('1', 1_000_000)}]> : tensor<1000000xi32>"),
    "dictionary": lambda: attribute("{" + ",".join(f"a{i}=1" for i in range(1_000_000)) + "}"),
    "many lists": lambda: (attribute("[" + many("1", 60_000) + "]") + "\n") * 100,
    "nested symbols": lambda: attribute("@a" + "::@a" * 2_000_000),
    "operands": lambda: f'%a = "test.op"() : () -> i32\n"test.op"({many("%a", 1_000_000)}) : () -> ()',
    "results": lambda: f'"test.op"() : () -> ({many("i32", 2_000_000)})',
    "results by number": lambda: '%a:100000000 = "test.op"() : () -> (i32)',
    "regions": lambda: f'"test.op"() ({many("{}", 500_000)}) : () -> ()',
    "locations": lambda: f'"test.op"() : () -> () loc(fused[{many("unknown", 1_000_000)}])',
    "resources": lambda: '{-# dialect_resources: { builtin: { a: "0x00" } } #-}',
    "string": lambda: attribute(f'"{"a" * 30_000_000}"'),
    "name": lambda: attribute("a" * 10_000_000),
    "layout": lambda: attribute(f"strided<[{many('1', 2_000_000)}]>"),
    "dimensions": lambda: f'"test.op"() : () -> tensor<{"1x" * 2_000_000}f32>',
    "some dimensions": lambda: f'"test.op"() : () -> tensor<{"1x" * 10_000}f32>',
    "types of a function": lambda: f"func.func private @f({many('i32', 500_000)})",
    "commas": lambda: "," * 30_000_000,
    "comments": lambda: "//\n" * 10_000_000 + attribute("1"),
    "lines": lambda: "\n" * 30_000_000 + attribute("1"),
    "brackets": lambda: "()" * 15_000_000,
    "alias definitions": lambda: "".join(f"#a{i} = 1\n" for i in range(500_000)) + attribute("1"),
    "recursion": lambda: "func.func @f() {\n  func.call @f() : () -> ()\n  func.return\n}",
    "mutual recursion": lambda: (
        "func.func @f() {\n  func.call @g() : () -> ()\n  func.return\n}\n"
        "func.func @g() {\n  func.call @f() : () -> ()\n  func.return\n}"
    ),
    "call without a body": lambda: (
        "func.func private @g()\nfunc.func @f() {\n  func.call @g() : () -> ()\n  func.return\n}"
    ),
    "scalar operand": lambda: (
        'func.func @f() {\n  %x = "test.op"() : () -> f32\n  %y = "nn.relu"(%x) : (f32) -> f32\n  func.return\n}'
    ),
    "unused temporary": lambda: 'plan.program @p target "cpu" {\n  plan.slot @v : memref<4xf32> temp\n}',
    "huge tensor": lambda: (
        "func.func @f(%x: tensor<1099511627776xf32>) -> tensor<1099511627776xf32> {\n"
        "  func.return %x : tensor<1099511627776xf32>\n}"
    ),
}


TOOLS = {"aicf-opt": aicf_opt, "aicf-run": aicf_run}


def run_job(job: str) -> str:
    """The outcome of a bomb, called after the tool that reads it."""
    tool, _, name = job.partition(" ")
    code, _, err = run_tool(TOOLS[tool], ["-"], BOMBS[name]())
    if code not in (0, 1) or "internal error" in err or (code == 1) != bool(err):
        return f"fault: exit code {code}\n{err}"
    return "refused" if code else "read"
