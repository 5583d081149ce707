# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Each line of a command block in the documents is run as printed, or docs/tests/blocks.toml says why it is not."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ci import workspace
from ci.printed import pages

ROOT = Path(__file__).resolve().parents[2]
PAGES = pages(ROOT, generated=False)
RULES = workspace.read_toml(ROOT / "docs/tests/blocks.toml")["not_run"]
_PROGRAM = re.compile(
    r"(?:[A-Z][A-Z_]*=\S* |env )*(?:accel|cd|cp|deepspeed|df|echo|env|find|ls|make|mkdir|patch|pip|ps|pytest|python|rm"
    r"|sed|torchrun|touch|tox) (?!\d)|DEEPSPEED="
)
#: The doctor's status says what it found; ACCEL_STRICT=1 refuses a machine with a CPU alone.
ENDS = {r"accel doctor": (0, 1), r"^ACCEL_STRICT=1 ": (1,)}

#: A user's script: it trains on whatever accelerator there is.
TRAIN = """
import argparse, os, torch, deepspeed
from deepspeed.accelerator import get_accelerator
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=6)
options, _ = parser.parse_known_args()
torch.manual_seed(1)
model = torch.nn.Linear(8, 1)
config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2},
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}}}
engine, *_ = deepspeed.initialize(model=model, config=config)
for _ in range(options.steps):
    engine.backward(engine(torch.ones(2, 8, device=get_accelerator().device_name())).square().mean())
    engine.step()
"""


def lines(page: Path) -> list[str]:
    """The lines of a page's blocks that a shell runs, without prompt and comment."""
    found = []
    for language, block in re.findall(
        r"^```(\w*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    ):
        if language not in ("", "bash", "console", "sh"):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            plain = " ".join(re.sub(r"\s+#.*", "", line.removeprefix("$ ")).split())
            found += [plain] if _PROGRAM.match(f"{plain} ") else []
    return found


def rule(line: str) -> Mapping[str, Any] | None:
    return next((row for row in RULES if re.search(row["line"], line)), None)


LINES = sorted({line for page in PAGES for line in lines(page)})
RUN = [line for line in LINES if rule(line) is None]


def test_most_kinds_of_commands_are_run() -> None:
    assert {line.split()[0] for line in RUN} >= {"accel", "python", "torchrun"}
    assert len(RUN) >= 40


def test_each_reason_belongs_to_a_line() -> None:
    used = [rule(line) for line in LINES]
    assert [row["line"] for row in RULES if row not in used] == []
    assert all(row["why"] for row in RULES)


@pytest.mark.parametrize(
    ("test", "runs"), [(test, row["runs"]) for row in RULES for test in row.get("instead", ())]
)
def test_what_runs_instead_is_a_test_whose_file_runs_the_command(test: str, runs: str) -> None:
    file, _, name = test.partition("::")
    text = (ROOT / file).read_text(encoding="utf-8")
    assert name in {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    assert runs
    assert runs in text


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory, shell: Any) -> Path:
    """A user's folder: a script, its config, and what a checkout has."""
    needed = ("deepspeed", "accel_launch", "accel_port", "accel_sim", "accel_testkit")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"not run: {', '.join(missing)} not installed")
    folder = tmp_path_factory.mktemp("reader")
    for name in ("docs", "examples", "packages", "tests", "constraints.txt"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    (folder / "script.py").write_text(TRAIN, encoding="utf-8")
    (folder / "ds.json").write_text("{}", encoding="utf-8")
    (folder / "src").mkdir()
    (folder / "src/model.py").write_text("import torch\n", encoding="utf-8")
    # What a line before it on the page writes.
    assert shell("accel port src --write-baseline cuda.json", folder).returncode == 0
    return folder


@pytest.mark.slow
@pytest.mark.upstream
@pytest.mark.parametrize("line", RUN)
def test_a_line_runs_as_it_is_printed(line: str, checkout: Path, shell: Any) -> None:
    if "compare replay" in line and not (checkout / "reference").exists():
        pytest.skip("not run: the record that the line before it makes")
    done = shell(line, checkout)
    expected = next((ends for pattern, ends in ENDS.items() if re.search(pattern, line)), (0,))
    assert done.returncode in expected, done.stdout[-6000:]
