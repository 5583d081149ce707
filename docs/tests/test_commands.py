# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Commands in the documents can be read, and are run as printed or blocks.toml says why not."""

import argparse
import importlib.util
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from accel_core.cli.main import available, missing
from ci import workspace

ROOT = Path(__file__).resolve().parents[2]
#: Pages with commands for readers; those that no program writes.
PAGES = [
    page
    for pattern in ("*.md", "docs/**/*.md", "packages/*/README.md", "examples/**/*.md")
    for page in sorted(ROOT.glob(pattern))
]
WRITTEN = [page for page in PAGES if "results" not in page.parts and page.name not in ("cli.md", "matrix.md")]
#: In the package that `accel new-vendor` makes.
MADE = {"tests/simulated.json"}
FOLDERS = ("benchmarks/", "ci/", "docs/", "examples/", "packages/", "tests/")


def in_blocks(page: Path) -> Iterator[tuple[str, str]]:
    """The lines of a page's blocks of code, without prompts, each with the language of its block."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    for language, block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            yield language, line.removeprefix("$ ")


def commands(page: Path) -> list[list[str]]:
    """The words of each line in a block of code that a shell can read, up to a pipe or redirection."""
    found = []
    for _, line in in_blocks(page):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        end = next((at for at, word in enumerate(words) if word in (">", "|", "&&", ";")), len(words))
        found.append(words[:end])
    return [
        words for words in found if words and not any("…" in word or word[0] == "[" for word in words if word)
    ]


CALLS = sorted({tuple(words) for page in PAGES for words in commands(page) if words[0] == "accel"})


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_a_command_of_accel_takes_these_arguments(words: tuple[str, ...]) -> None:
    name, arguments = words[1], words[2:]
    source = available()[0].get(name)
    if source is None and missing(name):
        pytest.skip(f"not installed: the package that adds `accel {name}`")
    assert source is not None
    parser = argparse.ArgumentParser(prog=f"accel {name}")
    source.attach(parser)
    parser.parse_args(arguments)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_file_that_a_command_names_exists(page: Path) -> None:
    named = {
        word.partition("::")[0]
        for words in commands(page)
        if {"pytest", "python", "torchrun", "deepspeed", "accel"} & set(words)
        for word in words
        if word.startswith(FOLDERS) and "{" not in word
    }
    assert {name for name in named - MADE if not (ROOT / name).exists()} == set()


# --- each line of a command block is run as printed, or docs/tests/blocks.toml says why it is not

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
    shells = [line for language, line in in_blocks(page) if language in ("", "bash", "console", "sh")]
    plain = [" ".join(re.sub(r"\s+#.*", "", line).split()) for line in shells]
    return [line for line in plain if _PROGRAM.match(f"{line} ")]


def rule(line: str) -> Mapping[str, Any] | None:
    return next((row for row in RULES if re.search(row["line"], line)), None)


LINES = sorted({line for page in WRITTEN for line in lines(page)})
RUN = [line for line in LINES if rule(line) is None]


def test_each_reason_belongs_to_a_line() -> None:
    used = [rule(line) for line in LINES]
    assert [row["line"] for row in RULES if row not in used] == []
    assert all(row["why"] for row in RULES)


@pytest.mark.parametrize("test", sorted({test for row in RULES for test in row.get("instead", ())}))
def test_what_runs_instead_is_a_test(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")


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
