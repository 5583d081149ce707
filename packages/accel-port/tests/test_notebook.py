# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Notebooks: cells are ported as one program, and no other byte of the file changes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accel_port.project import port_files


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


def test_source_that_is_one_text_is_ported(project: Callable[..., Path]) -> None:
    after, _ = _port(_notebook("import torch\ntorch.cuda.synchronize()\n"), project)
    assert json.loads(after)["cells"][1]["source"].endswith("get_accelerator().synchronize()\n")


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


@pytest.mark.parametrize("empty", ["", []])
def test_empty_cell_does_not_hinder_the_others(empty: str | list[str], project: Callable[..., Path]) -> None:
    after, result = _port(_notebook(empty, "import torch\ntorch.cuda.synchronize()", empty), project)
    assert not result.failure
    assert "get_accelerator().synchronize()" in after


def test_lines_that_name_what_a_command_prints_and_questions_are_kept(project: Callable[..., Path]) -> None:
    kept = ["names = !ls cuda\n", "t = %timeit -o f()\n", "torch.cuda??\n"]
    after, result = _port(_notebook(["import torch\n", *kept, "torch.cuda.synchronize()"]), project)
    assert not result.failure
    assert all(json.dumps(line)[1:-1] in after for line in kept)
    assert "get_accelerator().synchronize()" in after


def test_cell_that_is_no_python_does_not_hinder_the_others(project: Callable[..., Path]) -> None:
    after, _ = _port(_notebook("this is prose about cuda", "import torch\ntorch.cuda.synchronize()"), project)
    assert "get_accelerator().synchronize()" in after
    assert "this is prose about cuda" in after


BROKEN = ["", "{", "[]", '{"cells": 1}', '{"worksheets": []}']
BROKEN += [json.dumps({"cells": [{"cell_type": "code", "source": source}]}) for source in (3, ["a", 3])]


@pytest.mark.parametrize("text", BROKEN)
def test_broken_notebook_is_a_failure(text: str, project: Callable[..., Path]) -> None:
    after, result = _port(text, project)
    assert result.failure
    assert after == text
