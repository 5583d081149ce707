# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What a port never does: touch other bytes, break imports, change on a second run, read what is no Python; notebooks."""

import codecs
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accel_port.porting import port
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


# Imports. In the programs after the port, `A` stands for `get_accelerator()`, and `IMPORT` for its import.

IMPORTS = {
    "in the block of torch": ("import os\nimport torch\n\nimport mine\ntorch.cuda.synchronize()\n",
        "import os\nimport torch\n\nimport mine\nIMPORT\nA.synchronize()\n"),
    "before a statement": ("import torch\nimport os\nos.environ.clear()\nimport sys\ntorch.cuda.synchronize()\n",
        "import torch\nimport os\nIMPORT\nos.environ.clear()\nimport sys\nA.synchronize()\n"),
    "that is there": ("import torch\nIMPORT as ga\n\ntorch.cuda.synchronize()\n", "import torch\nIMPORT as ga\n\nga().synchronize()\n"),
    "whose name the program has": ("import torch\n\n\ndef get_accelerator():\n    pass\n\n\ntorch.cuda.synchronize()\n",
        "import torch\nIMPORT as _get_accelerator\n\n\ndef get_accelerator():\n    pass\n\n\n_get_accelerator().synchronize()\n"),
    "in place of a name": ("from torch.cuda import synchronize\n\nsynchronize()\n", "IMPORT\n\nA.synchronize()\n"),
    "in place of the module": ("from torch import cuda\n\ncuda.synchronize()\n", "IMPORT\n\nA.synchronize()\n"),
    "with mixed precision": ("from torch.cuda.amp import autocast, GradScaler\n\nwith autocast(False):\n    s = GradScaler(enabled=False)\n",
        "from torch.amp import autocast, GradScaler\nimport torch\nIMPORT\n\n"
        "with autocast(A.device_name(), enabled=False):\n    s = GradScaler(A.device_name(), enabled=False)\n"),
    "of torch stays once": ("try:\n    import torch\n    import torch.cuda\nexcept ImportError:\n    torch = None\ntorch.cuda.synchronize()\n",
        "IMPORT\ntry:\n    import torch\nexcept ImportError:\n    torch = None\nA.synchronize()\n"),
    "of a name that is still needed stays": ("from torch.cuda import synchronize, get_device_capability\n\nsynchronize()\nget_device_capability()\n",
        "from torch.cuda import get_device_capability\nIMPORT\n\nA.synchronize()\nget_device_capability()\n"),
    "of all names of a module": ("from base import *\n\ntorch.cuda.synchronize()\n", "from base import *\nIMPORT\n\nA.synchronize()\n"),
    "with a condition": ("try:\n    import torch\nexcept ImportError:\n    torch = None\n\n\ndef f():\n    torch.cuda.synchronize()\n",
        "IMPORT\ntry:\n    import torch\nexcept ImportError:\n    torch = None\n\n\ndef f():\n    A.synchronize()\n"),
    "above deeply nested code": ("import torch\nx = " + "(" * 80 + "y.cuda()" + ")" * 80 + "\n",
        "import torch\nIMPORT\nx = " + "(" * 80 + "y.to(A.device_name())" + ")" * 80 + "\n"),
    "without a line end": ("import torch\ntorch.cuda.synchronize()", "import torch\nIMPORT\nA.synchronize()"),
    "above tabs": ("import torch\n\n\ndef f(s):\n\ttorch.cuda.manual_seed(s)\n",
        'import torch\nIMPORT\n\n\ndef f(s):\n\tif A.device_name() != "cpu":\n\t\tA.manual_seed(s)\n'),
}  # fmt: skip


@pytest.mark.parametrize("name", IMPORTS)
def test_import(name: str) -> None:
    before, after = (
        text.replace("IMPORT", "from deepspeed.accelerator import get_accelerator") for text in IMPORTS[name]
    )
    assert port(before).text == re.sub(r"\bA\b", "get_accelerator()", after)


# Notebooks: cells are ported as one program, and no other byte of the file changes


def _notebook(*cells: str | list[str], indent: int | None = 1) -> str:
    content: list[dict[str, Any]] = [{"cell_type": "markdown", "metadata": {}, "source": ["# torch.cuda\n"]}]
    code = {"cell_type": "code", "metadata": {"x": 1.50}, "execution_count": None, "outputs": []}
    content += [{**code, "id": f"c{n}", "source": cell} for n, cell in enumerate(cells)]
    document = {"cells": content, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=indent) + "\n"


def _port(text: str, project: Callable[..., Path]) -> tuple[str, Any]:
    folder = project(**{"a.ipynb": text})
    (result,) = port_files([folder / "a.ipynb"])
    return result.after.decode(), result


@pytest.mark.parametrize("indent", [None, 1, 2])
def test_cells_are_ported_and_the_rest_is_kept(indent: int | None, project: Callable[..., Path]) -> None:
    kept = "print('ü \"q\" \\\\ 🙂')"
    before = _notebook(["import torch\n", "\n", "x = 1"], ["y = x.cuda()\n", kept], indent=indent)
    after, _ = _port(before, project)
    added = ["import torch\n", "from deepspeed.accelerator import get_accelerator\n", "\n", "x = 1"]
    moved = ["y = x.to(get_accelerator().device_name())\n", kept]
    assert after == _notebook(added, moved, indent=indent)


def test_line_that_becomes_two_is_two_in_jupyters_list(project: Callable[..., Path]) -> None:
    cell = ["import torch\n", "torch.cuda.manual_seed(1)\n", "torch.cuda.manual_seed(2)"]
    after, _ = _port(_notebook(cell), project)
    seeds = ['if get_accelerator().device_name() != "cpu":\n', "    get_accelerator().manual_seed({})"]
    assert json.loads(after)["cells"][1]["source"] == [
        "import torch\n", "from deepspeed.accelerator import get_accelerator\n",
        seeds[0], seeds[1].format(1) + "\n", seeds[0], seeds[1].format(2),
    ]  # fmt: skip


def test_jupyters_own_lines_are_kept(project: Callable[..., Path]) -> None:
    before = _notebook(
        ["%matplotlib inline\n", "!nvidia-smi\n", "import torch"],
        ["%%bash\n", "echo cuda"],
        ["if True:\n", "    !ls\n", "    torch.cuda.synchronize()"],
    )
    after, result = _port(before, project)
    assert not result.failure
    sources = ["".join(cell["source"]) for cell in json.loads(after)["cells"]]
    assert sources[1].startswith("%matplotlib inline\n!nvidia-smi\n")
    assert sources[2] == "%%bash\necho cuda"
    assert sources[3] == "if True:\n    !ls\n    get_accelerator().synchronize()"


def test_lines_that_name_what_a_command_prints_and_questions_are_kept(project: Callable[..., Path]) -> None:
    kept = ["names = !ls cuda\n", "t = %timeit -o f()\n", "torch.cuda??\n"]
    after, result = _port(_notebook(["import torch\n", *kept, "torch.cuda.synchronize()"]), project)
    assert not result.failure
    assert all(json.dumps(line)[1:-1] in after for line in kept)
    assert "get_accelerator().synchronize()" in after


BROKEN = ["", "{", "[]", '{"cells": 1}', '{"worksheets": []}']
BROKEN += [json.dumps({"cells": [{"cell_type": "code", "source": source}]}) for source in (3, ["a", 3])]


@pytest.mark.parametrize("text", BROKEN)
def test_broken_notebook_is_a_failure(text: str, project: Callable[..., Path]) -> None:
    after, result = _port(text, project)
    assert result.failure
    assert after == text
