# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a port never does: touch other bytes, break imports, change on a second run, read what is no Python."""

import ast
import codecs
from collections.abc import Callable
from pathlib import Path

import pytest

from accel_port.porting import applied, port
from accel_port.project import port_files

PROGRAM = "import torch\n\nx = torch.zeros(1)\nx = x.cuda()  # a comment with torch.cuda\n"
PORTED = (
    "import torch\nfrom deepspeed.accelerator import get_accelerator\n\nx = torch.zeros(1)\n"
    "x = x.to(get_accelerator().device_name())  # a comment with torch.cuda\n"
)


def _after(folder: Path) -> bytes:
    (result,) = port_files([folder / "a.py"])
    assert not result.failure
    return result.after


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda text: text, id="as it is"),
        pytest.param(lambda text: text.replace("\n", "\r\n"), id="CRLF"),
        pytest.param(lambda text: text.replace("\n", "\r"), id="CR"),
        pytest.param(lambda text: text.replace("x = x", "\fx = x"), id="form feed"),
        pytest.param(lambda text: text.replace("a comment", "ein Gruß 🙂"), id="not ASCII"),
        pytest.param(lambda text: text + "\n\n\n", id="blank lines at the end"),
        pytest.param(lambda text: text.replace("  #", " \t #"), id="spaces and tabs"),
    ],
)
def test_other_characters_are_kept(change: Callable[[str], str]) -> None:
    assert port(change(PROGRAM)).text == change(PORTED)


def test_tabs_of_the_program_are_used() -> None:
    after = port("import torch\n\n\ndef f(s):\n\ttorch.cuda.manual_seed(s)\n").text
    assert '\tif get_accelerator().device_name() != "cpu":\n\t\tget_accelerator().manual_seed(s)\n' in after


def test_file_without_a_line_end_keeps_none() -> None:
    assert port("import torch\ntorch.cuda.synchronize()").text.endswith("get_accelerator().synchronize()")
    assert port("import torch; torch.cuda.synchronize()").text.count("\n") >= 1


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-8"])
def test_encoding_and_its_line_are_kept(encoding: str, project: Callable[..., Path]) -> None:
    text = f"# -*- coding: {encoding} -*-\nname = 'é'\n" + PROGRAM
    folder = project(a=text.encode(encoding))
    after = _after(folder)
    assert after.decode(encoding) == f"# -*- coding: {encoding} -*-\nname = 'é'\n" + PORTED


def test_byte_order_mark_is_kept(project: Callable[..., Path]) -> None:
    assert _after(project(a=codecs.BOM_UTF8 + PROGRAM.encode())) == codecs.BOM_UTF8 + PORTED.encode()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"import torch\nprint 'cuda'\n", "line 2"),
        (b"import torch\nx = torch.cuda.(\n", "line 2"),
        (b"# coding: utf-8\nx = '\xff cuda'\n", "encoding"),
        (b"# coding: no-such\nx = 'cuda'\n", "encoding"),
        (b"x = 'cuda\x00'\n", "null"),
    ],
)
def test_what_is_no_python_is_a_failure_with_its_place_and_stays(content, reason, project) -> None:
    folder = project(a=content, b=PROGRAM)
    bad, good = port_files([folder / "a.py", folder / "b.py"])
    assert reason in bad.failure
    assert bad.after == content
    assert good.after == PORTED.encode()


def test_empty_file_is_left(project: Callable[..., Path]) -> None:
    assert _after(project(a=b"")) == b""


@pytest.mark.parametrize(
    "line",
    ["x = x.cuda()  # accel: keep", "x = x.cuda()  #ignore-cuda", "x = f(\n    x.cuda(),  # accel: keep\n)"],
)
def test_marked_lines_are_kept(line: str) -> None:
    text = f"import torch\nx = 1\n{line}\n"
    ported = port(text)
    assert ported.text == text
    assert not ported.findings


# Imports


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import os\nimport torch\n\nimport mine\nX", "import os\nimport torch\n\nimport mine\nA\nX"),
        ('"""Doc."""\nfrom torch import nn\nX', '"""Doc."""\nfrom torch import nn\nA\nimport torch\nX'),
        (
            "import torch\nimport os\nos.environ.clear()\nimport sys\nX",
            "import torch\nimport os\nA\nos.environ.clear()\nimport sys\nX",
        ),
    ],
)
def test_import_stands_in_the_block_of_torch(before: str, after: str) -> None:
    use = "torch.cuda.synchronize()\n"
    ported = port(before.replace("X", use)).text
    lines = [line for line in ported.splitlines() if line != "import torch"]
    expected = after.replace("A", "from deepspeed.accelerator import get_accelerator").replace(
        "X", "get_accelerator().synchronize()"
    )
    assert lines == [line for line in expected.splitlines() if line != "import torch"]


def test_import_that_is_there_is_used() -> None:
    text = (
        "import torch\nfrom deepspeed.accelerator import get_accelerator as ga\n\ntorch.cuda.synchronize()\n"
    )
    assert port(text).text == text.replace("torch.cuda.synchronize", "ga().synchronize")


def test_name_of_the_users_own_is_not_taken() -> None:
    ported = port("import torch\n\n\ndef get_accelerator():\n    pass\n\n\ntorch.cuda.synchronize()\n").text
    assert "import get_accelerator as _get_accelerator\n" in ported
    assert "_get_accelerator().synchronize()" in ported


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from torch.cuda import synchronize\n\nsynchronize()\n", "get_accelerator().synchronize()"),
        ("from torch import cuda\n\ncuda.synchronize()\n", "get_accelerator().synchronize()"),
        ("import torch.cuda.nvtx as nvtx\n\nnvtx.range_pop()\n", "get_accelerator().range_pop()"),
        (
            "from torch.cuda.amp import autocast, GradScaler\n\nwith autocast(False):\n    s = GradScaler(enabled=False)\n",
            "with autocast(get_accelerator().device_name(), enabled=False):",
        ),
    ],
)
def test_imports_that_are_not_needed_go(before: str, after: str) -> None:
    ported = port(before).text
    assert after in ported
    assert "torch.cuda" not in ported
    assert "import cuda" not in ported


def test_import_that_would_stand_twice_in_a_block_goes() -> None:
    before = "try:\n    import torch\n    import torch.cuda\nexcept ImportError:\n    torch = None\ntorch.cuda.synchronize()\n"
    assert port(before).text.count("import torch\n") == 1


def test_mixed_precision_names_change_together_or_not_at_all() -> None:
    text = "from torch.cuda.amp import autocast\n\nuse(autocast)\nwith autocast(False):\n    pass\n"
    assert port(text).text == text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("from torch.cuda import synchronize, get_device_capability\n\nsynchronize()\nget_device_capability()\n",
                     "from torch.cuda import get_device_capability\n", id="a name that is still needed"),
        pytest.param("from base import *\n\ntorch.cuda.synchronize()\n", "get_accelerator().synchronize()", id="star"),
        pytest.param("try:\n    import torch\nexcept ImportError:\n    torch = None\n\n\ndef f():\n    torch.cuda.synchronize()\n",
                     "    get_accelerator().synchronize()", id="conditional import"),
        pytest.param("import torch\nx = " + "(" * 80 + "y.cuda()" + ")" * 80 + "\n",
                     "y.to(get_accelerator().device_name())", id="deeply nested"),
    ],
)  # fmt: skip
def test_ported_program_has(before: str, after: str) -> None:
    assert after in port(before).text


def test_statement_on_one_line_with_others_stays_one() -> None:
    ported = port("import torch\nfor s in (1,): torch.cuda.manual_seed(s); print(s)\n").text
    ast.parse(ported)
    assert ported.count("\n") == 3


def test_changes_are_those_that_the_findings_list() -> None:
    ported = port(PROGRAM)
    assert applied(PROGRAM, ported.edits) == ported.text
    inside = [edit for finding in ported.findings for edit in finding.edits]
    added = [edit for edit in ported.edits if edit not in inside]
    assert [edit.text for edit in added] == ["\nfrom deepspeed.accelerator import get_accelerator"]
