# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Each rule does what its own examples say, for every target, and once is enough.

In addition to the examples: the cases in which a search and replace goes wrong. `A` stands for `get_accelerator()`.
"""

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from accel_port.porting import ImportRule, port
from accel_port.project import port_files
from accel_port.rules import RULES
from accel_port.rules.base import Level, Rule

IMPORTS = ("import torch\n", "from deepspeed.accelerator import get_accelerator\n")
PAGE = (Path(__file__).parents[3] / "docs/port-rules.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"^(With `--target torch`:\n\n)?```(diff|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Example(NamedTuple):
    """A program, and what it becomes by each target, without the imports that every one has."""

    before: str
    after: str
    torch: str | None = None


def examples(rule: str) -> list[Example]:
    found: list[Example] = []
    for torch, kind, block in BLOCK.findall(SECTIONS[rule]):
        lines = block.splitlines(keepends=True)
        marked = lines if kind == "diff" else [f" {line}" for line in lines]
        before, after = ("".join(line[1:] or line for line in marked if line[0] not in mark) for mark in "+-")
        if torch:
            found[-1] = found[-1]._replace(torch=after)
        else:
            left = "Left as it is with `--target torch`." in SECTIONS[rule]
            found.append(Example(before, after, before if left else None))
    return found


def without_imports(program: str) -> str:
    return "".join(line for line in program.splitlines(keepends=True) if line not in IMPORTS).lstrip("\n")


EXAMPLES = [
    pytest.param(rule, example, id=f"{rule.name}-{number}")
    for rule in (*RULES, ImportRule())
    for number, example in enumerate(examples(rule.name), 1)
]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_example_becomes_what_it_says(rule: Rule, example: Example) -> None:
    program = "import torch\n\n\n" + example.before
    assert without_imports(port(program).text) == example.after
    if example.torch is not None:
        assert without_imports(port(program, "torch").text) == example.torch


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
@pytest.mark.parametrize("target", ["deepspeed", "accel", "torch"])
def test_example_is_found_by_its_rule_and_ported_once(rule: Rule, example: Example, target: str) -> None:
    first = port("import torch\n\n\n" + example.before, target)
    if target == "torch" and example.torch == example.before:
        pytest.skip("torch's own call is right there")
    assert rule.name in {finding.rule for finding in first.findings}
    assert port(first.text, target).text == first.text
    ast.parse(first.text)


def test_target_accel_imports_from_accel_core() -> None:
    ported = port("import torch\n\ntorch.cuda.synchronize()\n", "accel")
    assert ported.text == (
        "import torch\nfrom accel_core import get_accelerator\n\nget_accelerator().synchronize()\n"
    )


# Cases

ON = 'A.device_name() != "cpu"'
BATCH = "class Batch:\n    def cuda(self):\n        return self\n\n\n"
SLOTS = "class Slots:\n    def __init__(self, y):\n        self.x = torch.ones(2)\n        self.y = y\n        self.x = "
#: Empty: it is no use of CUDA. None: it is left as it is, and reported with what to do.
CASES: dict[str, tuple[str, str | None]] = {
    # current_device: index or device
    "device by index": ("torch.device('cuda', torch.cuda.current_device())", "torch.device(A.current_device_name())"),
    "device in a text": ("x.to(f'cuda:{torch.cuda.current_device()}')", "x.to(A.current_device_name())"),
    "index in arithmetic": ("n = torch.cuda.current_device() % 2", "n = A.current_device() % 2"),
    "assigned, used as a device": ("d = torch.cuda.current_device()\nx.to(d)\ny = torch.ones(1, device=d)",
        "d = A.current_device_name()\nx.to(d)\ny = torch.ones(1, device=d)"),
    "assigned, used as both": ("d = torch.cuda.current_device()\nx.to(d)\nnames[d]",
        "d = A.current_device()\nx.to(A.device_name(d))\nnames[d]"),
    "device by default": ("def f(x, device=None):\n    device = device or torch.cuda.current_device()\n    return x.to(device)",
        "def f(x, device=None):\n    device = device or A.current_device_name()\n    return x.to(device)"),
    "device in an attribute": ("self.device = torch.cuda.current_device()\nif c.device == 'auto':\n    x.to(self.device)",
        "self.device = A.current_device_name()\nif c.device == 'auto':\n    x.to(self.device)"),
    "index in an attribute": ("self.device = torch.cuda.current_device()\nnames[self.device]", None),
    "index in a table": ("k = {'device': torch.cuda.current_device()}\nprint(k['device'] == 0)", None),
    "index or a text": ("def f(x, rank: int):\n    x.to(rank if x else 'cuda:1')",
        "def f(x, rank: int):\n    x.to(A.device_name(rank) if x else A.device_name(1))"),
    "index or a word": ("import torch.distributed as dist\no = dist.get_rank() if a else 'cpu'\nwriter.add(o)", ""),
    "texts side by side": ("print('a' f\"{x.is_cuda}\")", None),
    "device in a global": ("d = None\ndef f():\n    global d\n    if d is None:\n        d = torch.cuda.current_device()\n    x.to(d)",
        "d = None\ndef f():\n    global d\n    if d is None:\n        d = A.current_device_name()\n    x.to(d)"),
    "named a device, and passed on": ("device = torch.cuda.current_device()\nx.to(device)\nplace(device)",
        "device = A.current_device_name()\nx.to(device)\nplace(device)"),
    "device of a stream": ("torch.cuda.Stream(device=torch.cuda.current_device())",
        "A.Stream(device=A.current_device())"),
    "index in a condition": ("if (d := torch.cuda.current_device()) == 0:\n    print(f'{d}')",
        "if (d := A.current_device()) == 0:\n    print(f'{d}')"),
    # expressions of several parts
    "is_cuda of a sum": ("a = (x + y).is_cuda", 'a = (x + y).device.type != "cpu"'),
    "is_cuda of a product, negated": ("a = not (x @ y).is_cuda", 'a = (x @ y).device.type == "cpu"'),
    "is_cuda in arithmetic": ("a = 1 + x.is_cuda", 'a = 1 + (x.device.type != "cpu")'),
    "index of a choice of devices": ("d = torch.device('cpu')\ntorch.cuda.synchronize(d if a else x.device)",
        "d = torch.device('cpu')\nA.synchronize((d if a else x.device).index)"),
    "index of a random state": ("torch.cuda.set_rng_state(s, device=1)", "A.set_rng_state(s, device_index=1)"),
    # .cuda(x)
    "cuda of a literal": ("x.cuda(1, non_blocking=True)", "x.to(A.device_name(1), non_blocking=True)"),
    "cuda, second argument": ("x.cuda(1, True)", "x.to(A.device_name(1), non_blocking=True)"),
    "cuda of one of several": ("x.cuda(gpu_ids[0])", "x.to(A.device_name(gpu_ids[0]))"),
    "cuda of what may be either": ("x.cuda(where)", None),
    "a flag named cuda": ("print(args.cuda)", ""),
    # texts
    "format by name": ("torch.device('cuda:{i}'.format(i=rank))", "torch.device(A.device_name(rank))"),
    "list": ("devices = ['cuda:0'] if torch.cuda.is_available() else ['cpu']",
        "devices = [A.device_name(0)] if A.device_name() != \"cpu\" else ['cpu']"),
    "table": ("devices = {True: 'cuda:0', False: 'cpu'}", "devices = {True: A.device_name(0), False: 'cpu'}"),
    "guard of a name and more": ("if torch.cuda.is_available():\n    print(torch.cuda.get_device_name(0))\n    model.cuda()",
        'if A.device_name() != "cpu":\n    print(torch.cuda.get_device_name(0))\n    model.to(A.device_name())'),
    "bf16": ("use = torch.cuda.is_bf16_supported()", 'use = A.device_name() != "cpu" and A.is_bf16_supported()'),
    "compared with a question to CUDA": ("from x import check_cuda_p2p\nif d.type == 'cuda' and not check_cuda_p2p():\n    f()", None),
    "list of all devices": ("devices = [f'cuda:{i}' for i in range(2)] or ['cpu']",
        "devices = [A.device_name(i) for i in range(2)] or ['cpu']"),
    "choice of a key": ("move = moves['cuda' if torch.cuda.is_available() else 'cpu']", None),
    "text with several parts": ("torch.device('cuda:{a}{b}'.format(a=1, b=2))", None),
    "format": ("torch.device('cuda:{}'.format(rank))", "torch.device(A.device_name(rank))"),
    "plus": ("torch.device('cuda:' + str(rank))", "torch.device(A.device_name(rank))"),
    "default evaluated at import, in a library": ("def f(device=torch.device('cuda')):\n    return device", None),
    "true or false": ("use = True if torch.cuda.is_available() else False", "use = A.device_name() != \"cpu\""),
    # guards
    "guard of a copy": ("if torch.cuda.is_available():\n    model.cuda()",
        "if A.is_available():\n    model.to(A.device_name())"),
    "after another device": ("if torch.xpu.is_available():\n    d = 'xpu'\nelif torch.cuda.is_available():\n    d = 'cuda'", None),
    # data-parallel
    "device_ids": ("from torch.nn.parallel import DistributedDataParallel as DDP\nm = DDP(m, device_ids=[0], output_device=0)",
        "from torch.nn.parallel import DistributedDataParallel as DDP\nm = DDP(m)"),
    "device_ids before the module": ("from torch.nn.parallel import DistributedDataParallel as DDP\nm = DDP(device_ids=[0], output_device=0, module=m)",
        "from torch.nn.parallel import DistributedDataParallel as DDP\nm = DDP(module=m)"),
    "device_ids alone": ("from torch.nn.parallel import DistributedDataParallel as DDP\nm = DDP(device_ids=[0], output_device=0,)",
        "from torch.nn.parallel import DistributedDataParallel as DDP\nm = DDP()"),
    "device_ids of several": ("from torch.nn.parallel import DistributedDataParallel as DDP\nm = DDP(m, device_ids=[0, 1])", None),
    "barrier with a comma": ("torch.distributed.barrier(device_ids=[0], )", "torch.distributed.barrier( )"),
    "barrier": ("torch.distributed.barrier(device_ids=[0])", "torch.distributed.barrier()"),
    "DataParallel": ("m = torch.nn.DataParallel(m)", None),
    # mixed precision
    "positional autocast": ("with torch.cuda.amp.autocast(False):\n    pass",
        "with torch.autocast(A.device_name(), enabled=False):\n    pass"),
    "autocast that was off on the CPU": ("with torch.cuda.amp.autocast(dtype=torch.float16):\n    pass",
        'with torch.autocast(A.device_name(), enabled=A.device_name() != "cpu", dtype=torch.float16):\n    pass'),
    # streams and graphs
    "graph": ("g = torch.cuda.CUDAGraph()\ns = torch.cuda.Stream()", None),
    "stream passed on": ("s = partial(torch.cuda.stream, stream=torch.cuda.Stream())",
        "s = partial(A.stream, stream=A.Stream())"),
    "external stream": ("s = torch.cuda.Stream()\ne = torch.cuda.ExternalStream(p)\nwith torch.cuda.stream(s):\n    pass", None),
    # loading
    "map by storage, with a condition": ("torch.load(p, map_location=lambda storage, loc: storage.cuda(0) if f else storage)", None),
    "map by storage, or not": ("torch.load(p, map_location=(lambda s, loc: s.cuda(0)) if f else 'cpu')",
        "torch.load(p, map_location=(A.device_name(0)) if f else 'cpu')"),
    "map by table": ("torch.load(p, map_location={'cuda:%d' % 0: 'cuda:%d' % rank})",
        "torch.load(p, map_location=A.device_name(rank))"),
    "map to the CPU by table": ("torch.load(p, map_location={'cuda:0': 'cpu'})", "torch.load(p, map_location='cpu')"),
    # collectives
    "backend compared": ("torch.distributed.get_backend() == 'nccl'",
        "torch.distributed.get_backend() == A.communication_backend_name()"),
    "backend in a table": ("c = {'comm_backend_name': 'nccl', 'x': 'nccl'}",
        "c = {'comm_backend_name': A.communication_backend_name(), 'x': 'nccl'}"),
    "Backend.NCCL": ("b = torch.distributed.Backend.NCCL", None),
    # typed tensors
    "alias of an alias": (
        "T = torch.cuda.FloatTensor if f else torch.FloatTensor\nU = T\nU(2, 3)\nx.type(T)",
        "T = dict(dtype=torch.float32, device=A.device_name() if f else \"cpu\")\nU = T\n"
        "torch.empty((2, 3), **U)\nx.to(**T)",
    ),
    "alias with a use that is not known": ("T = torch.cuda.FloatTensor\nx = T(2, 3)\ny = isinstance(x, T)", None),
    "sizes or values": ("torch.cuda.FloatTensor(something)", None),
    "type": ("x.type(torch.cuda.HalfTensor)", "x.to(A.device_name(), torch.float16)"),
    # seeds
    "seed after another": ("torch.manual_seed(1)\nx = torch.rand(2)\ntorch.cuda.manual_seed(1)",
        'torch.manual_seed(1)\nx = torch.rand(2)\nif A.device_name() != "cpu":\n    A.manual_seed(1)'),
    # keywords of other names
    "a device where an index is expected": ("torch.cuda.set_device(x.device)", "A.set_device(x.device.index)"),
    "a text where an index is expected": ("torch.cuda.memory_allocated('cuda:1')", "A.memory_allocated(1)"),
    # without counterpart
    "free memory": ("torch.cuda.mem_get_info()[0]", "A.available_memory()"),
    "text of an error": ("if 'CUDA out of memory' in str(e):\n    pass", None),
    "a function that may be missing": ("hasattr(torch.cuda, 'memory_stats')", "hasattr(A, 'memory_stats')"),
    "a function that is CUDA's": ("hasattr(torch.cuda, 'memory_summary')", None),
    "nvtx context": ("with torch.cuda.nvtx.range('a'):\n    pass", None),
    # comparisons
    "switched off elsewhere": ("fast = x.device.type != 'cuda'", None),
    "the user's word": ("if args.device == 'cuda':\n    pass", None),
    "text surgery": ("i = int(str(d).strip('cuda:'))", None),
    # words that are not torch's
    "numba": ("from numba import cuda\n\n@cuda.jit\ndef f(a):\n    pass", ""),
    "a variable": ("cuda = 3\nprint(cuda)", ""),
    "a module of the user": ("class torch:\n    cuda = None\nprint(torch.cuda)", ""),
    "Lightning": ("t = Trainer(accelerator='cuda')", None),
    "comment": ("x = 1  # torch.cuda.synchronize()", ""),
    # mixed precision that was off on the CPU stays off
    "torch's autocast": ("with torch.autocast('cuda'):\n    f()", f"with torch.autocast(A.device_name(), enabled={ON}):\n    f()"),
    "torch's autocast, by keyword": ("torch.amp.autocast(device_type='cuda', enabled=True)",
        f"torch.amp.autocast(device_type=A.device_name(), enabled={ON})"),
    "torch's autocast with a guard": ("torch.autocast('cuda', enabled=torch.cuda.is_available())",
        f"torch.autocast(A.device_name(), enabled={ON})"),
    "torch's scaler": ("torch.amp.GradScaler('cuda')", f"torch.amp.GradScaler(A.device_name(), enabled={ON})"),
    # what would fail elsewhere is left with its condition
    "import with a condition": ("if torch.cuda.is_available():\n    from torch.cuda import synchronize\nelse:\n    synchronize = print", None),
    "device_ids given to partial": ("from functools import partial\nfrom torch.nn.parallel import DistributedDataParallel as DDP\nwrap = partial(DDP, device_ids=[0])", None),
    "script by decorator": ("@torch.jit.script\ndef f(x):\n    return x.cuda() if x.is_cuda else x.to('cuda')", None),
    "script by call": ("def f(x):\n    return x.to('cuda')\n\n\ng = torch.jit.script(f)", None),
    "cuda of a parameter": ("def f(x, device=None):\n    return x.cuda(device)", None),
    "device or the CPU's": ("d = torch.cuda.current_device() if f else torch.device('cpu')",
        "d = A.current_device_name() if f else torch.device('cpu')"),
    "not available, or": ("d = 'cpu' if i is None or not torch.cuda.is_available() else f'cuda:{i}'",
        "d = 'cpu' if i is None or A.device_name() == \"cpu\" else A.device_name(i)"),
    "text where an index is expected": ("def f(i):\n    torch.cuda.synchronize(f'cuda:{i}')", "def f(i):\n    A.synchronize(i)"),
    "autocast by another name": ("auto = torch.cuda.amp.autocast\nwith auto():\n    pass",
        f"auto = torch.cuda.amp.autocast\nwith torch.autocast(A.device_name(), enabled={ON}):\n    pass"),
    "device_ids of other libraries": ("request = docker.DeviceRequest(device_ids=['0'])", ""),
    # a program's own classes
    "cuda of an object": (BATCH + "def f(b, t: torch.Tensor):\n    return b.cuda(), t.cuda()",
        BATCH + "def f(b, t: torch.Tensor):\n    return b.cuda(), t.to(A.device_name())"),
    "cuda of an attribute": (f"{BATCH}{SLOTS}self.x.cuda()\n        self.y = self.y.cuda()",
        f"{BATCH}{SLOTS}self.x.to(A.device_name())\n        self.y = self.y.cuda()"),
    # names and lines that stay
    "name with a fallback": ("try:\n    from torch.cuda.amp import autocast\nexcept ImportError:\n    autocast = None\nwith autocast():\n    pass", None),
    "name of mixed precision that is handed on": ("from torch.cuda.amp import autocast\n\nuse(autocast)\nwith autocast(False):\n    pass", None),
    "name that is exported": ("from torch.cuda import is_available\n\n__all__ = ['is_available']\nprint(is_available())",
        "from torch.cuda import is_available\n\n__all__ = ['is_available']\nprint(A.device_name() != \"cpu\")"),
    "line marked by another word": ("x = x.cuda()  #ignore-cuda", ""),
    "marked line of several": ("x = f(\n    x.cuda(),  # accel: keep\n)", ""),
    "aliases of each other": ("def f():\n    global cuda, b\n    cuda = b\n\n\nb = cuda", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, body: Callable[..., str]) -> None:
    before, after = CASES[name]
    assert body(before) == (re.sub(r"\bA\b", "get_accelerator()", after) if after else before)
    if not after:
        found = port("import torch\n" + before).findings
        assert {finding.level for finding in found} == (set() if after == "" else {Level.REPORTED})
        assert all(finding.message for finding in found)


@pytest.mark.parametrize(
    ("code", "levels", "words"),
    [
        ("print(torch.cuda.memory_allocated())", [Level.REVIEW], "it was 0"),
        ("print(torch.cuda.is_available() and torch.cuda.memory_allocated())", [Level.REWRITTEN] * 2, ""),
        # In a program, which evaluates the default when it starts.
        (CASES["default evaluated at import, in a library"][0] + "\n\n\nf()", [Level.REVIEW], "import"),
        ("def f(device):\n    torch.cuda.synchronize(device)", [Level.REVIEW], "index"),
    ],
    ids=["was 0 on the CPU", "was not asked on the CPU", "default at import", "device for an index"],
)
def test_what_may_be_wrong_is_flagged(code: str, levels: list[Level], words: str) -> None:
    findings = port(f"import torch\n\n\n{code}\n").findings
    assert [finding.level for finding in findings] == levels
    assert words in f"{findings[-1].message} {findings[-1].advice}"


def test_objects_of_a_class_beside_a_program_are_not_its_own(project: Callable[..., Path]) -> None:
    program = "import torch\n{}\n\n\ndef f(b):\n    return b.cuda()\n\n\nprint(f(torch.ones(1)))\n"
    folder = project(
        batch=BATCH,
        alone=program.format(""), user=program.format("from batch import make"),
    )  # fmt: skip
    alone, _, user = port_files(sorted(folder.glob("*.py")))
    assert b"return b.to(get_accelerator().device_name())" in alone.after
    assert user.after == user.before


@pytest.mark.parametrize(
    "user",
    ["from .gpu import has_cuda", "from gpu import (  # one\n    wait, has_cuda,\n)", "from . import gpu as g\ng.has_cuda()", "from gpu import *",
     "import os, gpu\ngpu.has_cuda()", "import its.gpu as g\ng.has_cuda()", "import its.gpu\nits.gpu.has_cuda()"],
)  # fmt: skip
def test_name_that_another_file_imports_stays(user: str, project: Callable[..., Path]) -> None:
    line = "from torch.cuda import is_available as has_cuda"
    folder = project(gpu=f"{line}\n\nA = 1 if has_cuda() else 0\n", user=f"{user}\n")
    gpu, _ = port_files(sorted(folder.glob("*.py")))
    assert gpu.after.decode().startswith(line)
    assert any(row.finding.rule == "imports" for row in gpu.rows)
    alone = port_files([folder / "gpu.py"])[0]
    assert line not in alone.after.decode()


def test_folder_named_torch_is_not_what_a_program_imports(project: Callable[..., Path]) -> None:
    folder = project(torch__batch=BATCH, torch__program="import torch\n\nx = f()\nprint(x.cuda())\n")
    _, program = port_files(sorted(folder.rglob("*.py")))
    assert b"x.to(get_accelerator().device_name())" in program.after


@pytest.mark.parametrize(
    ("lines", "known"),
    [
        ("x = x.view(2)\nx.cuda()", True),
        ("x = x.view(2)\nif f():\n    x.cuda()", True),
        ("x = x.view(2)\nif f():\n    x = Batch()\nx.cuda()", False),
        ("x = x.view(2)\nfor _ in f():\n    x.cuda()\n    x = Batch()", False),
        ("try:\n    x = f()\n    x = x.view(2)\nexcept OSError:\n    x.cuda()", False),
        ("x = x.view(2)\ng = lambda: x.cuda()\nx = Batch()", False),
    ],
)
def test_the_last_value_before_a_use_says_what_it_is(lines, known, body) -> None:
    assert (".to(get_accelerator().device_name())" in body(BATCH + lines)) == known


AVAILABLE = "torch.accelerator.is_available()"
TYPE = "torch.accelerator.current_accelerator().type"
CONTEXT = "import accel_core\nwith accel_core.device_index"


@pytest.mark.parametrize(
    ("target", "before", "after"),
    [
        ("torch", "device = 'cuda'", f'device = {TYPE} if {AVAILABLE} else "cpu"'),
        (
            "torch",
            "f = lambda device='cuda': device",
            f'f = lambda device=({TYPE} if {AVAILABLE} else "cpu"): device',
        ),
        ("torch", "d = torch.device('cuda:1')", f'd = torch.device({TYPE} if {AVAILABLE} else "cpu", 1)'),
        ("torch", "def f(x):\n    return x.to('cuda')", f"def f(x):\n    return x.to({TYPE})"),
        ("torch", "x.cuda()\ndevice = 'cuda'", f"x.to({TYPE})\ndevice = {TYPE}"),
        # `with` takes None for torch's streams.
        ("torch", "s = torch.cuda.Stream() if f else None\nwith torch.cuda.stream(s):\n    pass", None),
        ("accel", "with torch.cuda.device(1):\n    f()", f"{CONTEXT}(1):\n    f()"),
        ("accel", "with torch.cuda.device(x.device):\n    f()", f"{CONTEXT}(x.device.index):\n    f()"),
        ("accel", "with torch.cuda.device_of(x):\n    f()", f"{CONTEXT}(x.device.index):\n    f()"),
        ("accel", "with torch.cuda.device('cuda:1'), g():\n    f()", f"{CONTEXT}(1), g():\n    f()"),
        ("accel", "with torch.cuda.device(either):\n    f()", None),
        ("accel", "with torch.cuda.device(0):\n    kernel[grid](x)", None),
    ],
)
def test_target_has_its_own_way(
    target: str, before: str, after: str | None, body: Callable[..., str]
) -> None:
    assert body(before, target) == (after or before)
