# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The radar on a small DeepSpeed with planted breaks: each is named with its commit, and nothing else is."""

import sys
from pathlib import Path
from typing import Any

import pytest

from accel_core.interface import DeepSpeedAccelerator
from ci import parity, radar, radar_checks, radar_facts, workspace
from ci.parity import Difference
from ci.problem import Problem
from ci.radar import Finding, Radar, Target

from .conftest import ROOT, Repository, run

ABSTRACT = "accelerator/abstract_accelerator.py"
NPU = "accelerator/npu_accelerator.py"
CONSTANTS = "deepspeed/runtime/constants.py"
ZERO = "deepspeed/runtime/zero/stage_1_and_2.py"
FILES = {
    "version.txt": "0.19.8\n",
    "deepspeed/__init__.py": "",
    "deepspeed/comm/comm.py": "def init_distributed(backend=None): ...\n",
    CONSTANTS: 'TRAIN_BATCH_SIZE = "train_batch_size"\nNOBODY_USES = "nobody_uses"\n',
    ZERO: "class DeepSpeedZeroOptimizer:\n    def average_tensor(self, tensor):\n        return tensor\n",
    ABSTRACT: "from abc import ABC, abstractmethod\n\nclass DeepSpeedAccelerator(ABC):\n"
    "    @abstractmethod\n    def set_device(self, device_index): ...\n"
    "    def is_pinned(self, tensor):\n        return False\n",
    NPU: "class NPU_Accelerator:\n    def set_device(self, device_index): ...\n",
    "op_builder/builder.py": "class OpBuilder: ...\n",
    "op_builder/adam.py": "class FusedAdamBuilder: ...\n",
    "op_builder/npu/__init__.py": "from .adam import FusedAdamBuilder\n",
}


class Upstream:
    """A git repository of that DeepSpeed.

    watcher: a radar for a project that imports a function, configures a batch, and was tested with the first commit.
    """

    def __init__(self, root: Path) -> None:
        self.folder, ours = root / "upstream", root / "ours"
        self.folder.mkdir()
        self.repository = Repository(self.folder)
        self.repository.git("init", "-q")
        self.first = self.commit(FILES)
        (ours / "examples").mkdir(parents=True)
        (ours / "examples/train.py").write_text(
            'from deepspeed.comm.comm import init_distributed\nconfig = {"train_batch_size": 1}\n',
            encoding="utf-8",
        )
        self.watcher = Radar(self.folder, root / "work", ours, radar_facts.of_commit(self.folder, self.first))

    def commit(self, files: dict[str, str]) -> str:
        for path, text in files.items():
            self.repository.write(path, text)
        return self.repository.commit()

    def change(self, path: str, old: str, new: str) -> str:
        text = (self.folder / path).read_text(encoding="utf-8")
        assert old in text
        return self.commit({path: text.replace(old, new)})

    def findings(self) -> dict[str, list[Finding]]:
        """What concerns us, by commit."""
        chain = radar.targets(self.folder, [f"{self.first}..HEAD"])
        return {target.name: found for target in chain if (found := self.watcher.read(target))}


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path)


@pytest.mark.parametrize(
    ("path", "old", "new", "level", "subject"),
    [
        (ABSTRACT, "def set_device", "def choose_device", "breaks", "choose_device"),
        (ABSTRACT, "device_index): ...", "device_index, *, quickly): ...", "breaks", "set_device"),
        (ABSTRACT, "    def is_pinned", "    def warm_up(self): ...\n    def is_pinned", "lacks", "warm_up"),
        (CONSTANTS, 'TRAIN_BATCH_SIZE = "train_batch_size"', "", "breaks", "train_batch_size"),
        (CONSTANTS, 'NOBODY_USES = "nobody_uses"', "", "gone", "nobody_uses"),
        (ZERO, "return tensor", "return tensor + 0", "slower", "DeepSpeedZeroOptimizer.average_tensor"),
        (ZERO, "tensor):", "tensor, divide=True):", "slower", "DeepSpeedZeroOptimizer.average_tensor"),
        ("deepspeed/comm/comm.py", "init_dist", "start_dist", "breaks", "deepspeed.comm.comm:init_distributed"),
        ("deepspeed/comm/comm.py", "=None", "", "breaks", "deepspeed.comm.comm:init_distributed"),
        ("op_builder/adam.py", "class", "class NewBuilder: ...\nclass", "lacks", "adam NewBuilder"),
        ("op_builder/npu/__init__.py", "from .adam import FusedAdamBuilder", "", "gone", "npu FusedAdamBuilder"),
        ("deepspeed/comm/comm.py", "...", "get_accelerator().fly()", "breaks", "fly"),
        (NPU, "    def", "    def is_pinned(self, tensor): ...\n    def", "lacks", "npu is_pinned"),
    ],
)  # fmt: skip
def test_a_planted_break_is_named_with_its_commit(
    upstream: Upstream, path: str, old: str, new: str, level: str, subject: str
) -> None:
    upstream.commit({"README.md": "harmless\n"})
    broken = upstream.change(path, old, new)
    upstream.commit({"deepspeed/utils.py": "harmless = 1\n"})

    found = upstream.findings()

    assert list(found) == [broken]
    assert (level, subject) in [each[:2] for each in found[broken]]


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("deepspeed/comm/comm.py", "def", "# A comment.\ndef"),
        ("deepspeed/comm/comm.py", "backend=None", "backend: str | None = None"),
        (CONSTANTS, "NOBODY", 'MORE = "more"\nNOBODY'),
        (ABSTRACT, "return False", "return bool(tensor.is_pinned())"),
        (ZERO, "    def", "    def other(self): ...\n\n    def"),
        ("op_builder/builder.py", "...", "\n    NAME = 'op'"),
    ],
)
def test_a_harmless_commit_gives_no_alarm(upstream: Upstream, path: str, old: str, new: str) -> None:
    upstream.change(path, old, new)
    assert upstream.findings() == {}


def test_what_ours_takes_already_is_no_alarm(upstream: Upstream) -> None:
    wider = upstream.change(
        ABSTRACT, "def is_pinned", "def unpin_memory(self, tensor): ...\n    def is_pinned"
    )
    assert [each[:2] for each in upstream.findings()[wider]] == [("served", "unpin_memory")]


def test_a_key_that_moves_to_another_file_is_no_alarm(upstream: Upstream) -> None:
    text = 'TRAIN_BATCH_SIZE = "train_batch_size"\n'
    upstream.commit({CONSTANTS: FILES[CONSTANTS].replace(text, ""), "deepspeed/zero/constants.py": text})
    assert upstream.findings() == {}


def test_an_import_that_fails_is_named_with_its_commit(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def imports(device: str, folder: Path, _: Path) -> dict[str, str]:
        done = run(sys.executable, "-S", "-c", "import deepspeed", cwd=folder)
        return {"import": done.stderr.splitlines()[-1]} if done.returncode else {}

    monkeypatch.setitem(radar_checks.CHECKS, "bridge", imports)
    order = [upstream.first, *(upstream.commit({"README.md": str(number)}) for number in range(3))]
    order.append(broken := upstream.commit({"deepspeed/__init__.py": "import nowhere\n"}))
    order += [upstream.commit({"README.md": str(number)}) for number in range(3, 6)]

    ((where, found),) = upstream.watcher.differences(order, "bridge", "cpu", bisect=True)

    assert where == broken
    assert (found.level, found.subject) == ("breaks", "bridge on cpu: import")
    assert "No module named 'nowhere'" in found.says


def test_unit_tests_are_run_at_commits_because_a_release_has_none(
    upstream: Upstream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried: list[str] = []

    def ran(_: str, folder: Path, __: Path) -> dict[str, str]:
        tried.append(folder.name)
        return {}

    monkeypatch.setitem(radar_checks.CHECKS, "tests", ran)
    last = upstream.commit({"README.md": "more\n"})
    order = [upstream.first, last, str(tmp_path / "0.19.8")]
    assert list(upstream.watcher.differences(order, "tests", "npu", bisect=False)) == []
    assert tried == [upstream.first, last]
    assert list(upstream.watcher.differences(order, "tests", "mps", bisect=False)) == [], (
        "its runner knows no mps"
    )
    assert tried == [upstream.first, last]


def test_the_bridge_is_tried_in_a_child_with_the_commits_own_deepspeed(
    upstream: Upstream, tmp_path: Path
) -> None:
    broken = upstream.commit({"deepspeed/__init__.py": "import nowhere\n"})
    folder = radar_checks.export(upstream.folder, broken, tmp_path)
    found = radar_checks.CHECKS["bridge"]("cpu", folder, tmp_path)
    assert found == {"it raises": "ModuleNotFoundError: No module named 'nowhere'"}


def test_what_fails_once_is_no_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [{"a": "busy", "b": "broken"}, {"b": "broken"}]
    monkeypatch.setitem(radar_checks.CHECKS, "bridge", lambda *_: answers.pop(0))
    kept = [radar_checks.run("bridge", "cpu", tmp_path / "tree", tmp_path) for _ in range(2)]
    assert kept == [{"b": "broken"}, {"b": "broken"}]


def test_an_outcome_is_not_that_of_other_sources_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(radar_checks.CHECKS, "bridge", lambda *_: {"it": "fails"})
    assert radar_checks.run("bridge", "cpu", tmp_path / "tree", tmp_path) == {"it": "fails"}
    monkeypatch.setattr(radar_checks, "state", lambda: "mended")
    monkeypatch.setitem(radar_checks.CHECKS, "bridge", lambda *_: {})
    assert radar_checks.run("bridge", "cpu", tmp_path / "tree", tmp_path) == {}


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("accelerator on npu, ours: 3 / 0 / 1\n", {}),
        ("accelerator on npu, ours: 3 / 1 / 0\n  tests/a.py::b: wrong\n", {"tests/a.py::b": "wrong"}),
        ("accelerator on npu, ours: 0 / 0 / 9\n", {"no test ran": "accelerator on npu, ours: 0 / 0 / 9"}),
        ("usage: runner.py\n", {"no test ran": "usage: runner.py"}),
    ],
)
def test_unit_tests_that_did_not_run_are_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, found: dict[str, str]
) -> None:
    monkeypatch.setattr(radar_checks, "_output", lambda *_: output)
    assert radar_checks.CHECKS["tests"]("npu", tmp_path / "tree", tmp_path / "part") == found


def test_the_table_counts_what_fails_of_the_trees_that_were_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(radar_checks.CHECKS, "engine", lambda *_: {"ZeRO 3": "another loss"})
    monkeypatch.setitem(radar_checks.CHECKS, "bridge", lambda *_: {})
    radar_checks.run("engine", "npu", tmp_path / "0.19.8", tmp_path)
    radar_checks.run("bridge", "cpu", tmp_path / "0.19.8", tmp_path)
    radar_checks.run("bridge", "cpu", tmp_path / "of-another-run", tmp_path)
    assert radar_checks.table(tmp_path, {"0.19.8"})[2:] == [
        "| 0.19.8 | bridge | 0 |  |  |  |  |  |  |  |",
        "| 0.19.8 | engine |  |  |  | 1 |  |  |  |  |",
    ]


def test_a_child_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: object) -> dict[str, str]:
        radar_checks._output("cpu", tmp_path, "-S", "-c", "import time; time.sleep(3600)")
        return {}

    monkeypatch.setattr(radar_checks, "LIMIT", 1)
    monkeypatch.setitem(radar_checks.CHECKS, "bridge", hang)
    assert list(radar_checks.run("bridge", "cpu", tmp_path / "tree", tmp_path)) == ["it hangs"]


def test_a_range_a_folder_and_a_commit_are_read_once_each(upstream: Upstream, tmp_path: Path) -> None:
    (tmp_path / "released/deepspeed").mkdir(parents=True)
    last = upstream.commit({"README.md": "more\n"})
    words = [f"{upstream.first}..HEAD", "HEAD", str(tmp_path / "released")]
    assert [target.name for target in radar.targets(upstream.folder, words)] == [last, words[2]]
    assert Target(f"{last}..{tmp_path}/0.19.8", "", "").short == f"{last[:9]}..0.19.8"


@pytest.mark.parametrize(
    ("word", "what"), [("HEAD", "cannot be compared"), ("no-such-commit", "git log failed")]
)
def test_a_commit_without_a_parent_or_that_is_not_there_is_a_problem(
    upstream: Upstream, word: str, what: str
) -> None:
    with pytest.raises(Problem, match=what):
        radar.targets(upstream.folder, [word])


@pytest.mark.parametrize(
    ("theirs", "fitting"),
    [
        ("(self, device_index)", True),
        ("(self, device_index, more)", False),
        ("(self, other)", False),
        ("(self, device_index=UNKNOWN)", False),
    ],
)
def test_a_signature_fits_if_each_form_of_a_call_does(theirs: str, fitting: bool) -> None:
    assert radar.fits(DeepSpeedAccelerator.set_device, theirs) is fitting


def test_our_tests_deepspeed_has_the_sources_of_all_replaced_methods() -> None:
    deepspeed = pytest.importorskip("deepspeed")
    reader = radar_facts.Reader(ROOT / "ci")  # which uses nothing of it
    facts = reader.facts(radar_facts.of_folder(Path(deepspeed.__file__).parents[1]))
    assert [name for name, known in radar_facts.watched().items() if facts.get(name) not in known] == []


def test_the_command_writes_a_draft_of_the_issue_and_fails(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("deepspeed")
    monkeypatch.chdir(tmp_path)
    broken = upstream.change(ABSTRACT, "def set_device", "def choose_device")
    command = [str(upstream.folder), f"{upstream.first}..HEAD", "--static", "--work", str(tmp_path / "work")]

    assert radar.main(command) == 1

    (draft,) = (tmp_path / "work/issues").iterdir()
    assert draft.name == f"{broken[:9]}.md"
    assert "- breaks: `choose_device`" in draft.read_text(encoding="utf-8")
    assert "1 concern us; 1 are work for us" in capsys.readouterr().out


def test_the_page_says_which_known_break_was_not_found() -> None:
    known: list[dict[str, Any]] = workspace.read_toml(ROOT / radar.KNOWN)["known"]
    commit = Target(known[0]["commit"] + "0" * 31, "2026-03-02 a title", "")
    found = [Finding("served", f"cpu {known[0]['finds']}", "said")]
    text = radar.page({commit: found}, known, "Figures.")
    assert f"| {known[0]['what']} | {known[0]['commit']} | `cpu {known[0]['finds']}` |" in text
    assert text.count("**no**") == len(known) - 1
    assert "- served: `cpu amp`: said" in text


# --- what the comparison with DeepSpeed's classes calls, and which differences it accepts

ROW = {"calls": "range_*, seed()", "devices": "cpu xpu", "ours": "[0-9]*", "deepspeed": ">=0.19"}


@pytest.mark.parametrize(
    ("device", "call", "ours", "release", "said"),
    [
        ("cpu", "range_push(msg)", "2", "0.19.8", "said"),
        ("xpu", "seed()", "2", "0.20.0", "said"),
        ("npu", "seed()", "2", "0.19.8", ""),
        ("cpu", "seed(seed)", "2", "0.19.8", ""),
        ("cpu", "seed()", "2", "0.18.9", ""),
        ("cpu", "seed()", "raises TypeError", "0.19.8", ""),
    ],
)
def test_difference_is_meant_where_a_row_fits(
    device: str, call: str, ours: str, release: str, said: str
) -> None:
    row = {**ROW, "reason": "said"}
    assert parity.reason(Difference(device, call, "1", ours), release, [row]) == said


def test_method_is_called_with_what_it_needs_and_with_everything() -> None:
    def method(self: Any, tensor: Any, make_copy: bool = True) -> None:
        pass

    assert parity._forms(method) == [("tensor",), ("tensor", "make_copy")]
    assert parity._forms(property(lambda self: None)) == [None]


class Accelerator:
    def new(self, something_new: Any) -> None:
        pass


def test_method_of_a_new_release_is_never_taken_for_equal() -> None:
    assert parity._answer(Accelerator(), "newer", ()) == "missing"
    assert "knows no argument 'something_new'" in parity._answer(Accelerator(), "new", ("something_new",))
