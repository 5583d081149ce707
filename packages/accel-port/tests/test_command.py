# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The command: what it prints and writes, its exit status, and when it refuses."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from accel_port import files
from accel_port.command import main
from accel_port.errors import PortError

CUDA = "import torch\n\nx = torch.zeros(1).cuda()\n"
CLEAN = "x = 1\n"
LEFT = "import torch\n\nprint(torch.cuda.get_device_capability())\n"


def test_check_says_whether_something_is_left(project, capsys) -> None:
    folder = project(a=CUDA)
    assert main(["--check", str(folder)]) == 1
    assert (folder / "a.py").read_text() == CUDA
    assert "1 uses rewritten" in capsys.readouterr().out
    assert main(["--check", str(project(a=CLEAN))]) == 0


def test_diff_is_a_patch(project, capsys, tmp_path) -> None:
    folder = project(a=CUDA + "y = 1")
    assert main(["--diff", str(folder / "a.py")]) == 0
    patch = capsys.readouterr().out.replace(str(folder), "")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "a.py").write_text(CUDA + "y = 1")
    subprocess.run(["git", "apply", "-p2", "-"], input=patch, text=True, cwd=copy, check=True)
    assert main(["--write", str(folder)]) == 0
    assert (copy / "a.py").read_text() == (folder / "a.py").read_text()


def test_summary_names_place_reason_and_what_to_do(project, capsys) -> None:
    folder = project(a=LEFT)
    main([str(folder)])
    out = capsys.readouterr().out
    assert f"{folder / 'a.py'}:3:7: torch.cuda.get_device_capability" in out
    assert "[runtime]" in out
    assert "do: ask for what is meant" in out


def test_file_that_does_not_parse_ends_in_2_and_the_others_are_ported(project, capsys) -> None:
    folder = project(a="cuda = (\n", b=CUDA)
    assert main(["--write", str(folder)]) == 2
    assert "a.py: it does not parse: line 1" in capsys.readouterr().out
    assert "get_accelerator" in (folder / "b.py").read_text()


@pytest.mark.parametrize("suffix", ["md", "json", "sarif"])
def test_report_is_written(suffix: str, project: Callable[..., Path], tmp_path: Path) -> None:
    report = tmp_path / f"report.{suffix}"
    main([str(project(a=CUDA, b=LEFT)), "--report", str(report)])
    text = report.read_text()
    assert "get_device_capability" in text
    if suffix == "json":
        data = json.loads(text)
        assert data["counts"] == {"rewritten": 1, "review": 0, "reported": 1}
        assert {f["level"] for file in data["files"] for f in file["findings"]} == {"rewritten", "reported"}
    if suffix == "sarif":
        (run,) = json.loads(text)["runs"]
        known = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
        assert {result["ruleId"] for result in run["results"]} <= known
        region = run["results"][-1]["locations"][0]["physicalLocation"]["region"]
        assert (region["startLine"], region["startColumn"]) == (3, 7)


def test_places_in_sarif_are_uris(tmp_path: Path) -> None:
    (tmp_path / "my é.py").write_text(CUDA)
    main([str(tmp_path), "--report", str(tmp_path / "r.sarif")])
    (run,) = json.loads((tmp_path / "r.sarif").read_text())["runs"]
    places = [
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in run["results"]
    ]
    assert [place.rpartition("/")[2] for place in places] == ["my%20%C3%A9.py"]


def test_report_of_another_format_is_refused_before_anything_is_done(project, capsys) -> None:
    folder = project(a=CUDA)
    assert main(["--write", str(folder), "--report", "x.pdf"]) == 2
    assert "expected: one of .md .json .sarif" in capsys.readouterr().err
    assert (folder / "a.py").read_text() == CUDA


def test_baseline_shows_what_is_new(project: Callable[..., Path], tmp_path: Path) -> None:
    folder, baseline = project(a=LEFT), tmp_path / "baseline.json"
    assert main([str(folder), "--write-baseline", str(baseline)]) == 0
    assert main(["--check", str(folder), "--baseline", str(baseline)]) == 0
    project(a="import os\n" + LEFT)  # moved by a line
    assert main(["--check", str(folder), "--baseline", str(baseline)]) == 0
    project(a=LEFT + LEFT)  # once more
    assert main(["--check", str(folder), "--baseline", str(baseline)]) == 1


@pytest.mark.parametrize("content", [None, "", "[]", '{"findings": {"a": "b"}}'])
def test_broken_baseline_is_an_error(content, project, tmp_path) -> None:
    baseline = tmp_path / "baseline.json"
    if content is not None:
        baseline.write_text(content)
    assert main(["--check", str(project(a=LEFT)), "--baseline", str(baseline)]) == 2


def test_path_that_does_not_exist_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-folder"]) == 2
    assert "found: no such file or folder" in capsys.readouterr().err


# Writing


def _git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_changes_that_git_has_not_are_not_written_over(project, capsys) -> None:
    folder = project(a=CUDA)
    _git(folder, "init")
    _git(folder, "add", ".")
    _git(folder, "commit", "-m", "first")
    project(a=CUDA + "y = 2\n")
    assert main(["--write", str(folder)]) == 2
    assert "--force" in capsys.readouterr().err
    assert main(["--write", "--force", str(folder)]) == 0
    assert "get_accelerator" in (folder / "a.py").read_text()


def test_all_files_are_written_or_none(project: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(a=CUDA, b=CUDA, c=CUDA)
    renamed: list[str] = []

    def fail_at_the_second(source: str, target: str) -> None:
        renamed.append(str(target))
        if len(renamed) == 2:
            raise OSError(28, "No space left on device")
        os.rename(source, target)

    monkeypatch.setattr(files.os, "replace", fail_at_the_second)
    assert main(["--write", str(folder)]) == 2
    assert {path.name: path.read_text() for path in folder.iterdir()} == dict.fromkeys(
        ["a.py", "b.py", "c.py"], CUDA
    )


def test_file_that_changed_meanwhile_is_not_overwritten(project: Callable[..., Path]) -> None:
    folder = project(a=CUDA)
    with pytest.raises(PortError, match="has changed since it was read"):
        files.write_all({folder / "a.py": (b"another", b"new")}, folder)
    assert (folder / "a.py").read_text() == CUDA


def test_mode_of_a_file_is_kept(project: Callable[..., Path]) -> None:
    folder = project(a=CUDA)
    (folder / "a.py").chmod(0o750)
    main(["--write", str(folder)])
    assert (folder / "a.py").stat().st_mode & 0o777 == 0o750


def test_links_are_not_followed(project: Callable[..., Path], tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "o.py").write_text(CUDA)
    folder = project(a=CLEAN)
    (folder / "file.py").symlink_to(outside / "o.py")
    (folder / "folder").symlink_to(outside)
    assert main(["--write", str(folder)]) == 0
    assert (outside / "o.py").read_text() == CUDA
    assert main(["--write", str(folder / "file.py")]) == 2
    assert (outside / "o.py").read_text() == CUDA


def test_folders_that_are_not_the_projects_are_left_out(project: Callable[..., Path]) -> None:
    folder = project(
        **{".venv__a": CUDA, "node_modules__a": CUDA, "env__pyvenv.cfg": "", "env__a": CUDA, "own__a": CUDA}
    )
    assert files.found_in([folder]) == [folder / "own" / "a.py"]


def test_many_files_are_ported_in_several_processes(project: Callable[..., Path]) -> None:
    folder = project(**{f"f{n:03}": CUDA for n in range(90)})
    assert main(["--write", "--jobs", "2", str(folder)]) == 0
    assert all("get_accelerator" in path.read_text() for path in folder.iterdir())
