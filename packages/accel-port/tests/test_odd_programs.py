# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What is odd about a program does not make its port wrong: it is ported once, and prints the same on the CPU."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from accel_port.porting import port
from accel_port.rules.base import Level

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from odd_programs import PROGRAMS  # noqa: E402

TARGETS = ("deepspeed", "accel", "torch")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_odd_program_is_ported_once(name: str, target: str) -> None:
    first = port(PROGRAMS[name], target)  # raises Unstable if a second run would change it
    ast.parse(first.text)
    for finding in first.findings:
        for edit in finding.edits:
            assert finding.start <= edit.start <= edit.end <= finding.end or finding.rule == "imports"


@pytest.mark.more
@pytest.mark.timeout(1800)
def test_odd_programs_print_the_same_on_the_cpu(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    for name, text in PROGRAMS.items():
        (tmp_path / f"{name} before.py").write_text(text)
        for target in TARGETS:
            (tmp_path / f"{name} {target}.py").write_text(port(text, target).text)
    done = subprocess.run(
        [sys.executable, str(HERE / "run_programs.py"), str(tmp_path)],
        input=json.dumps({path.name: {} for path in sorted(tmp_path.iterdir())}),
        capture_output=True, text=True, check=True, env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    results = json.loads(done.stdout)
    for name in PROGRAMS:
        before = results[f"{name} before.py"]
        assert before["status"] == 0, before["error"]
        for target in TARGETS:
            after = results[f"{name} {target}.py"]
            assert (after["status"], after["out"]) == (0, before["out"]), (name, target, after["error"])


def _ported(code: str, body: Callable[..., str], target: str = "deepspeed") -> str:
    return body(code, target).replace("get_accelerator().", "A.")


ON = 'A.device_name() != "cpu"'
AVAILABLE = "torch.accelerator.is_available()"
TORCH = "torch.accelerator.current_accelerator().type"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("with torch.autocast('cuda'):\n    f()", f"with torch.autocast(A.device_name(), enabled={ON}):\n    f()"),
        ("with torch.autocast('cuda', torch.float16, e):\n    f()", f"with torch.autocast(A.device_name(), torch.float16, e and {ON}):\n    f()"),
        ("torch.amp.autocast(device_type='cuda', enabled=True)", f"torch.amp.autocast(device_type=A.device_name(), enabled={ON})"),
        ("torch.amp.GradScaler('cuda')", f"torch.amp.GradScaler(A.device_name(), enabled={ON})"),
        ("torch.amp.GradScaler(enabled=False)", "torch.amp.GradScaler(A.device_name(), enabled=False)"),
        ("torch.autocast('cuda', enabled=torch.cuda.is_available())", f"torch.autocast(A.device_name(), enabled={ON})"),
        ("torch.autocast('cpu')", "torch.autocast('cpu')"),
    ],
)  # fmt: skip
def test_mixed_precision_that_was_off_on_the_cpu_stays_off(before, after, body) -> None:
    assert _ported(before, body) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("device = 'cuda'", f'device = {TORCH} if {AVAILABLE} else "cpu"'),
        (
            "f = lambda device='cuda': device",
            f'f = lambda device=({TORCH} if {AVAILABLE} else "cpu"): device',
        ),
        ("d = torch.device('cuda:1')", f'd = torch.device({TORCH} if {AVAILABLE} else "cpu", 1)'),
        ("def f(x):\n    return x.to('cuda')", f"def f(x):\n    return x.to({TORCH})"),
        ("x.cuda()\ndevice = 'cuda'", f"x.to({TORCH})\ndevice = {TORCH}"),
    ],
)
def test_device_that_is_only_named_does_not_fail_on_the_cpu(before, after, body) -> None:
    assert _ported(before, body, "torch") == after


def test_names_with_a_fallback_are_left_with_their_import() -> None:
    text = "import torch\ntry:\n    from torch.cuda.amp import autocast\nexcept ImportError:\n    autocast = None\nwith autocast():\n    pass\n"
    ported = port(text)
    assert ported.text == text
    assert {finding.level for finding in ported.findings} == {Level.REPORTED}


def test_names_that_a_module_exports_keep_their_import() -> None:
    text = "from torch.cuda import is_available\n\n__all__ = ['is_available']\nprint(is_available())\n"
    assert "from torch.cuda import is_available\n" in port(text).text


@pytest.mark.parametrize(
    "code",
    [
        "if torch.cuda.is_available():\n    from torch.cuda import synchronize\nelse:\n    synchronize = print",
        "p = torch.cuda.get_device_properties(0) if torch.cuda.is_available() else None",
        "torch.load(f, map_location=lambda s, l: s.cuda() if torch.cuda.is_available() else s)",
        "settings = dict(device_ids=[rank])",
        "from functools import partial\nfrom torch.nn.parallel import DistributedDataParallel as DDP\nwrap = partial(DDP, device_ids=[0])",
        "@torch.jit.script\ndef f(x):\n    return x.cuda() if x.is_cuda else x.to('cuda')",
        "def f(x):\n    return x.to('cuda')\n\n\ng = torch.jit.script(f)",
        "def f(x, device=None):\n    return x.cuda(device)",
    ],
)
def test_what_would_fail_elsewhere_is_left_with_its_condition(code: str, body: Callable[..., str]) -> None:
    assert _ported(code, body) == code
    assert port("import torch\n" + code).findings


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("d = torch.cuda.current_device() if f else torch.device('cpu')", "d = A.current_device_name() if f else torch.device('cpu')"),
        ("self.local = torch.cuda.current_device() if f else -1", "self.local = A.current_device() if f else -1"),
        ("d = 'cpu' if i is None or not torch.cuda.is_available() else f'cuda:{i}'", "d = 'cpu' if i is None or A.device_name() == \"cpu\" else A.device_name(i)"),
        ("def f(i):\n    torch.cuda.synchronize(f'cuda:{i}')", "def f(i):\n    A.synchronize(i)"),
        ("auto = torch.cuda.amp.autocast\nwith auto():\n    pass", f"auto = torch.cuda.amp.autocast\nwith torch.autocast(A.device_name(), enabled={ON}):\n    pass"),
        ("torch.device(type='cuda', index=0)", "torch.device(type=A.device_name(), index=0)"),
        ("from torch.nn.parallel import DistributedDataParallel\nDistributedDataParallel(m, device_ids=None)", "from torch.nn.parallel import DistributedDataParallel\nDistributedDataParallel(m, device_ids=None)"),
    ],
)  # fmt: skip
def test_odd_expression(before: str, after: str, body: Callable[..., str]) -> None:
    assert _ported(before, body) == after


def test_streams_that_may_be_none_are_left_where_with_takes_none() -> None:
    text = "import torch\n\ns = torch.cuda.Stream() if f else None\nwith torch.cuda.stream(s):\n    pass\n"
    assert port(text, "torch").text == text


def test_aliases_of_each_other_have_no_name() -> None:
    assert not port("import torch\n\n\ndef f():\n    global cuda, b\n    cuda = b\n\n\nb = cuda\n").findings


def test_device_ids_of_other_libraries_are_not_reported() -> None:
    assert not port("import torch\n\nrequest = docker.DeviceRequest(device_ids=['0'])\n").findings


def test_device_by_its_name_where_an_index_is_expected_is_flagged() -> None:
    (finding,) = port("import torch\n\n\ndef f(device):\n    torch.cuda.synchronize(device)\n").findings
    assert finding.level is Level.REVIEW
    assert "index" in finding.message
