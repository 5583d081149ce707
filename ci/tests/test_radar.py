# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The radar on a small DeepSpeed."""

from pathlib import Path

import pytest

from ci import radar

from .conftest import Repository


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git repository of a DeepSpeed that cannot be imported."""
    repository = Repository(tmp_path / "upstream")
    repository.root.mkdir()
    repository.git("init", "-q")
    for name in ("accelerator", "op_builder", "csrc"):
        repository.write(f"{name}/file.py")
    repository.write("version.txt", "0.19.9\n")
    repository.write("deepspeed/__init__.py", "import nowhere\n")
    repository.commit()
    return repository.root


def test_broken_commit_is_named(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        radar, "CHECKS", [("import", "cpu", "works", ("-c", "import deepspeed; print('works')"))]
    )
    assert radar.main([str(checkout), "--work", str(tmp_path / "work")]) == 1
    printed = capsys.readouterr()
    assert "import on cpu fails with DeepSpeed" in printed.err
    assert "No module named 'nowhere'" in printed.err
    (folder,) = (tmp_path / "work").iterdir()
    assert (folder / "deepspeed-0.19.9.dist-info/METADATA").is_file()


@pytest.mark.parametrize(
    ("outputs", "count"),
    [(["1 passed"], 0), (["busy", "1 passed"], 0), (["busy", "broken"], 1), (["2 skipped", "2 skipped"], 1)],
)
def test_what_fails_twice_is_reported(
    outputs: list[str], count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(radar, "CHECKS", [("suite", "npu", " passed", ())])
    monkeypatch.setattr(radar, "on_device", lambda *_: outputs.pop(0))
    assert len([*radar.problems(tmp_path)]) == count
    assert outputs == []
