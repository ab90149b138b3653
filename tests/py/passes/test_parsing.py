"""Text that nobody vouches for: one clear error with its place, whatever it is.

xDSL alone takes minutes, gigabytes or all of the stack for many of these texts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import StringAttr

from aicf_mlir.errors import VerifyError
from aicf_mlir.ir.diagnostics import LocatedError
from aicf_mlir.ir.reading import MAX_BYTES
from aicf_mlir.text.limits import MAX_DIGITS, MAX_LITERAL_ELEMENTS, MAX_NESTING
from aicf_mlir.text.parsing import parse_module


@pytest.fixture(autouse=True)
def without_more_stack() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    yield
    assert sys.getrecursionlimit() == limit


def with_attribute(value: str) -> str:
    return f'"test.op"() {{value = {value}}} : () -> ()'


def doubling_aliases(count: int) -> str:
    lines = [f"!a{i + 1} = tuple<!a{i}, !a{i}>" for i in range(count)]
    return "\n".join(["!a0 = i32", *lines, f'"test.op"() : () -> !a{count}'])


def nested_aliases(count: int) -> str:
    lines = [f"!a{i + 1} = tuple<!a{i}>" for i in range(count)]
    return "\n".join(["!a0 = i32", *lines, f'"test.op"() : () -> !a{count}'])


def nested_regions(count: int) -> str:
    return '"builtin.module"() ({' * count + '"test.op"() : () -> ()' + "}) : () -> ()" * count


REFUSED = {
    "empty": ("", "1:1: error: the text is empty"),
    "blank": (" \n\n", "1:1: error: the text is empty"),
    "comment-only": ("// nothing\n", "expected an operation"),
    "prose": (
        "hello world",
        "1:1: error: operation 'hello' is of no known dialect; known dialects: arith, builtin, func",
    ),
    "binary": (b"\x7fELF\x02\x01\x01\0\0\0", "1:8: error: NUL character: this is not a text file"),
    "not-utf-8": (b"// caf\xe9\n", "1:7: error: byte 0xe9 is not UTF-8 text"),
    "half-a-character": ("// é".encode()[:-1], "1:4: error: byte 0xc3 is not UTF-8 text"),
    "huge": (b" " * (MAX_BYTES + 1), "the text is 33,554,433 bytes long; at most 33,554,432 are read"),
    "unterminated-string": (
        '"test.op' + "a" * 100_000,
        "1:1: error: string literal is not closed on its line",
    ),
    "unterminated-escapes": ('"test.op' + "\\n" * 50_000, "1:1: error: string literal is not closed"),
    "string-across-lines": (
        '"test.op\n"() : () -> ()',
        "1:1: error: string literal is not closed on its line",
    ),
    "bad-escape": ('"test\\q"() : () -> ()', "has an escape other than"),
    "nested-arrays": (
        with_attribute("[" * 10_000 + "]" * 10_000),
        f"nested more than {MAX_NESTING} levels deep",
    ),
    "nested-types": (
        with_attribute("tuple<" * 10_000 + ">" * 10_000),
        f"nested more than {MAX_NESTING} levels",
    ),
    "nested-parentheses": (with_attribute("(" * 10_000), f"nested more than {MAX_NESTING} levels deep"),
    "nested-dictionaries": (with_attribute("{a = " * 10_000), f"nested more than {MAX_NESTING} levels deep"),
    "nested-regions": (nested_regions(1_000), f"nested more than {MAX_NESTING} levels deep"),
    "nested-locations": (
        '"test.op"() : () -> () loc(' + "callsite(" * 5_000,
        f"nested more than {MAX_NESTING} levels deep",
    ),
    "nested-functions": (with_attribute("() -> (" * 5_000), f"nested more than {MAX_NESTING} levels deep"),
    "chained-functions": (with_attribute("() -> " * 5_000 + "i32"), "'}' expected"),
    "nested-literal": (
        with_attribute("dense<" + "[" * 10_000),
        f"nested more than {MAX_NESTING} levels deep",
    ),
    "affine-minus": (
        with_attribute("affine_map<(a) -> (" + "-" * 5_000 + "a)>"),
        "affine maps and sets are not part",
    ),
    "doubling-aliases": (
        doubling_aliases(64),
        "15:19: error: 0 operations and more than 98,304 tokens, attributes of aliases",
    ),
    "nested-aliases": (nested_aliases(1_000), "alias !a36 expands to 75 attributes, nested 74 levels deep"),
    "metadata": ("{-# dialect_resources: {} #-}", "file metadata and resources are not part of the AICF"),
    "many-lines": (
        "\n" * 3_000_000 + "x",
        "3,000,000 brackets, quotation marks, comments and lines; at most 2,097,152",
    ),
    "splat": (
        with_attribute("dense<0> : tensor<99999999999xi32>"),
        "dense literal of 99,999,999,999 elements",
    ),
    "hex-splat": (
        with_attribute(f'dense<"0x00000000"> : tensor<{MAX_LITERAL_ELEMENTS + 1}xf32>'),
        "pass large tensors as arguments",
    ),
    "integer-width": (
        with_attribute("1 : i16777215"),
        "integer type of 16777215 bits; at most 64 are supported",
    ),
    "element-width": ('"test.op"() : () -> tensor<4xsi9999>', "1:30: error: integer type of 9999 bits"),
    "long-number": (
        with_attribute("1" * 100_000),
        f"a number of 100000 digits; at most {MAX_DIGITS} are read",
    ),
    "long-dimension": (f'"test.op"() : () -> tensor<{"9" * 5_000}xf32>', "a number of 5000 digits"),
    "many-elements": ('"test.op"() : () -> tensor<9999999x9999999xf32>', "tensor of more than 2^40 elements"),
    "many-dimensions": (
        f'"test.op"() : () -> memref<{"1x" * 1_000}f32>',
        "1000 dimensions; at most 32 are supported",
    ),
    "overflow": (with_attribute("0xffffffffff : f16"), "cannot be parsed"),
    "odd-digit": (with_attribute("²"), "cannot be parsed: invalid literal for int()"),
    "undefined": ("%a = nn.relu %b : tensor<4xf32>", "1:14: error: value %b is used but never defined"),
    "used-before": (
        "%a = nn.relu %b : tensor<4xf32>\n%b = nn.relu %a : tensor<4xf32>",
        "1:6: error: 'nn.relu' uses %b before",
    ),
    "defined-twice": (
        '%a = "test.op"() : () -> i32\n%a = "test.op"() : () -> i32',
        "2:1: error: SSA value %a is already defined",
    ),
    "type-changed": (
        '%a = "test.op"() : () -> tensor<4xf32>\n%b = nn.relu %a : tensor<5xf32>',
        "2:14: error: operand is used with type tensor<5xf32>, but has been previously used or defined",
    ),
    "same-symbol": ("func.func private @f()\nfunc.func private @f()", 'Redefinition of symbol "f"'),
    "unknown-op": (
        '%a = "nn.reluu"() : () -> i32',
        "1:7: error: dialect nn has no operation 'nn.reluu'; did you",
    ),
    "unknown-attribute": (with_attribute("#nn.nothing<4>"), "'nn.nothing' is not registered"),
    "missing-property": (
        '"func.func"() <{sym_name = "f"}> ({\n  "func.return"() : () -> ()\n}) : () -> ()',
        "1:12: error: 'func.func' must have a property 'function_type'",
    ),
    "mistyped-property": (
        '"func.func"() <{sym_name = "f", function_type = i32}> ({"func.return"() : () -> ()}) : () -> ()',
        "1:12: error: property 'function_type' of 'func.func': i32 should be of base attribute",
    ),
    "unclosed-module": ("builtin.module {", "1:17: error:"),
    "trailing": ("func.func private @f() }", "1:24: error: expected an operation"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_its_place(case: str) -> None:
    text, message = REFUSED[case]
    with pytest.raises(VerifyError) as caught:
        parse_module(text, "in.mlir")
    assert isinstance(caught.value, LocatedError)
    assert str(caught.value).startswith("in.mlir:")
    assert message in str(caught.value)
    assert max(len(line) for line in str(caught.value).splitlines()) < 400


def test_the_caret_is_under_the_place() -> None:
    with pytest.raises(LocatedError) as caught:
        parse_module("// one\n%a = nn.relu %missing : tensor<4xf32>\n", "in.mlir")
    assert str(caught.value).splitlines()[1:] == [
        "%a = nn.relu %missing : tensor<4xf32>",
        "             ^^^^^^^^",
    ]


def test_the_caret_stays_on_a_long_line() -> None:
    with pytest.raises(LocatedError) as caught:
        parse_module(f'"test.op"() {{a = "{"x" * 5_000}"}} : () -> () %', "in.mlir")
    _, line, carets = str(caught.value).splitlines()
    assert line[carets.index("^")] == "%"


def test_an_op_without_location_is_at_its_line() -> None:
    module = parse_module('\n%a =\n  "test.op"() : () -> i32', "in.mlir")
    (op,) = module.ops
    assert str(op.location) == 'loc("in.mlir":3:3)'


def test_a_written_location_is_kept() -> None:
    module = parse_module('"test.op"() : () -> () loc("model.py":7:1)', "in.mlir")
    (op,) = module.ops
    assert str(op.location) == 'loc("model.py":7:1)'


def test_a_byte_order_mark_is_skipped() -> None:
    assert len(parse_module("\ufefffunc.func private @f()".encode()).body.block.ops) == 1


def test_nesting_at_the_limit_is_read() -> None:
    depth = MAX_NESTING - 1  # the dictionary around it is one level
    parse_module(with_attribute("[" * depth + "]" * depth))
    parse_module(nested_aliases(MAX_NESTING))
    parse_module(nested_regions(MAX_NESTING // 2 - 1))


def test_brackets_in_strings_and_comments_do_not_count() -> None:
    parse_module(with_attribute(f'"{"[" * 100}"') + " // " + "(" * 100)


@pytest.mark.parametrize("text", ["größe.weight", "重み", '\t\n"\\', "\x01\x7f", "a\u2028b", "😀"])
def test_names_of_any_characters_are_read_back(text: str) -> None:
    module = parse_module('"test.op"() {name = "x"} : () -> ()')
    (op,) = module.ops
    op.attributes["name"] = StringAttr(text)
    (again,) = parse_module(str(module)).ops
    assert again.attributes["name"] == StringAttr(text)


WORDS = """-> %a @f !t #a i32 i64 f32 tensor< memref<4x dense< 1.5 affine_map< nn.relu func.func plan.program
    plan.slot loc( "test.op" 0x 99 // ² kernel.gemm optim.adam builtin.module"""
FRAGMENTS = st.sampled_from([*'(){}<>[]%@#!^"\\=:,-+?x \n', *WORDS.split()])


@settings(max_examples=300, deadline=None)
@given(st.lists(FRAGMENTS, max_size=30).map(" ".join) | st.text(max_size=60) | st.binary(max_size=60))
def test_anything_is_read_or_refused(text: str | bytes) -> None:
    try:
        parse_module(text, "in.mlir")
    except LocatedError as error:
        assert str(error).startswith("in.mlir:")
