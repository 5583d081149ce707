# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Programs made at random of what people write: the result parses, a second run changes nothing, the rest stays."""

import ast
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from accel_port.porting import Ported, applied, port

_FUNCTIONS = st.sampled_from([
    "synchronize", "empty_cache", "current_device", "device_count", "is_available", "max_memory_allocated",
    "current_stream", "get_device_capability", "memory_stats", "reset_peak_memory_stats", "is_bf16_supported",
    "ipc_collect",
])  # fmt: skip
_ATOMS = st.one_of(
    st.sampled_from(
        ["x", "rank", "args.gpu", "None", "0", "1", "model", "self.net", "x.device", "'cpu'", "args.cuda"]
    ),
    st.sampled_from(
        ["'cuda'", '"cuda:1"', "f'cuda:{rank}'", "'cuda:%d' % rank", "'cuda:{}'.format(rank)", "'nccl'"]
    ),
    _FUNCTIONS.map(lambda name: f"torch.cuda.{name}()"),
    _FUNCTIONS.map(lambda name: f"cuda.{name}"),
    st.sampled_from(
        ["torch.cuda.FloatTensor", "torch.cuda.Stream()", "torch.cuda.Event", "x.is_cuda", "autocast"]
    ),
)


def _extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(inner, inner)
    return st.one_of(
        inner.map(lambda a: f"{_target(a)}.cuda()"),
        two.map(lambda p: f"{_target(p[0])}.cuda({p[1]}, non_blocking=True)"),
        two.map(lambda p: f"{_target(p[0])}.to({p[1]})"),
        two.map(lambda p: f"torch.zeros(2, device={p[1]})"),
        two.map(lambda p: f"({p[0]} if torch.cuda.is_available() else {p[1]})"),
        two.map(lambda p: f"({p[0]} if {p[1]} else 'cpu')"),
        two.map(lambda p: f"({p[0]} == {p[1]})"),
        two.map(lambda p: f"[{p[0]}, {p[1]}]"),
        two.map(lambda p: f"{{{p[0]}: {p[1]}}}"),
        inner.map(lambda a: f"(not {a})"),
        inner.map(lambda a: f"torch.device({a})"),
        inner.map(lambda a: f"torch.load(p, map_location={a})"),
        inner.map(lambda a: f"DDP(model, device_ids=[{a}])"),
        inner.map(lambda a: f"print({a})"),
        inner.map(lambda a: f"x.type({a})"),
        inner.map(lambda a: f"torch.cuda.FloatTensor({a})"),
        inner.map(lambda a: f"torch.cuda.set_device({a})"),
        inner.map(lambda a: f"torch.cuda.synchronize(device={a})"),
        inner.map(lambda a: f"torch.cuda.amp.autocast({a})"),
        inner.map(lambda a: f"autocast(enabled={a})"),
        inner.map(lambda a: f"GradScaler(enabled={a})"),
        inner.map(lambda a: f"(lambda s, l: {a})"),
    )


def _target(code: str) -> str:
    return f"({code})"


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _ported(text: str, target: str) -> Ported:
    ported = port(text, target)  # raises Unstable if it does not parse, or is not stable
    assert applied(text, ported.edits) == ported.text
    for finding in ported.findings:
        for edit in finding.edits:
            assert finding.start <= edit.start <= edit.end <= finding.end or finding.rule == "imports"
    return ported


EXPRESSIONS = st.recursive(_ATOMS, _extend, max_leaves=6)


def _statements(inner: st.SearchStrategy[list[str]]) -> st.SearchStrategy[list[str]]:
    def indented(lines: list[str]) -> list[str]:
        return ["    " + line for line in lines]

    return st.one_of(
        st.tuples(EXPRESSIONS, inner).map(lambda p: [f"if {p[0]}:", *indented(p[1])]),
        st.tuples(EXPRESSIONS, inner).map(lambda p: [f"with {p[0]}:", *indented(p[1])]),
        inner.map(lambda body: ["def f(x, rank: int, device='cuda'):", *indented(body)]),
        inner.map(lambda body: ["@custom_fwd", "def g(x):", *indented(body)]),
        inner.map(lambda body: ["class C:", "    def cuda(self):", *indented(indented(body))]),
        st.tuples(inner, inner).map(lambda p: [*p[0], *p[1]]),
    )


LINES = st.recursive(
    st.one_of(
        EXPRESSIONS.map(lambda e: [e]),
        EXPRESSIONS.map(lambda e: [f"device = {e}"]),
        EXPRESSIONS.map(lambda e: [f"y = {e}  # torch.cuda"]),
        EXPRESSIONS.map(lambda e: [f"T = {e}; T(2)"]),
        EXPRESSIONS.map(lambda e: [f"print(f'{{{e!s}}}')" if "'" not in e and '"' not in e else e]),
        st.just(["torch.cuda.manual_seed_all(seed)"]),
    ),
    _statements,
    max_leaves=8,
)
HEADERS = st.sampled_from(
    [
        "import torch",
        "import torch\nimport torch as th\nfrom torch import cuda",
        "from torch.cuda.amp import autocast, GradScaler, custom_fwd\nimport torch",
        '"""Doc."""\nfrom __future__ import annotations\nimport os, torch',
        "import torch.cuda\nimport torch.cuda.amp as amp",
        "from deepspeed.accelerator import get_accelerator\nimport torch",
        "def get_accelerator(): pass\nimport torch",
        "",
    ]
)


@pytest.mark.slow  # programs drawn at random: a count for `make test-all`
@pytest.mark.parametrize("target", ["deepspeed", "torch"])
@settings(max_examples=2000, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(header=HEADERS, lines=LINES, newline=st.sampled_from(["\n", "\r\n"]))
def test_program(target: str, header: str, lines: list[str], newline: str) -> None:
    text = newline.join([*header.split("\n"), *lines, ""])
    assume(_parses(text))
    ported = _ported(text, target)
    assert ported.text.count("# torch.cuda") == text.count("# torch.cuda")
    ends = ported.text.count("\r") + ported.text.count("\n")
    assert newline == "\n" or ported.text.count("\r\n") * 2 == ends


#: Real-style files; what becomes of them below is what people's editors, and merges, make of programs.
FILES = [
    path.read_text(encoding="utf-8") for path in sorted((Path(__file__).parent / "programs").rglob("*.py"))
]
_WORDS = ["cuda", "torch", "device", "None", "x", "0", "is_available", "self", "'cuda'", "not", "args.gpu"]


@st.composite
def _mutated(draw: st.DrawFn) -> str:
    lines = draw(st.sampled_from(FILES)).splitlines(keepends=True)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["drop", "twice", "swap", "word", "another"])):
            case "drop" if len(lines) > 1:
                del lines[at]
            case "twice":
                lines.insert(at, lines[at])
            case "swap":
                other = draw(st.integers(0, len(lines) - 1))
                lines[at], lines[other] = lines[other], lines[at]
            case "word":
                words = list(re.finditer(r"\w+", lines[at]))
                if words:
                    word, new = draw(st.sampled_from(words)), draw(st.sampled_from(_WORDS))
                    lines[at] = lines[at][: word.start()] + new + lines[at][word.end() :]
            case "another":
                others = draw(st.sampled_from(FILES)).splitlines(keepends=True)
                lines.insert(at, draw(st.sampled_from(others)))
    return "".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["deepspeed", "accel", "torch"])
@settings(max_examples=1000, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(text=_mutated())
def test_mutated_file(target: str, text: str) -> None:
    if _parses(text):
        _ported(text, target)
