# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Variables for ranks on other hosts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from accel_launch import ssh
from accel_launch.errors import InvalidArguments
from accel_launch.machine import Accelerator


def test_variables_are_chosen_by_prefix(toy: Accelerator) -> None:
    environ = {
        "TOY_FABRIC": "ib0",
        "TOY_VISIBLE_DEVICES": "0",
        "TOY_VISIBLE_MODULES": "1",
        "UCX_TLS": "tcp",
        "PYTHONHASHSEED": "1",
        "SECRET": "x",
        "UCX.BAD": "1",
        "PYTHONPATH": "/lib",
    }
    assert ssh.exported_variables(environ, toy, "/work", ()) == {
        "PYTHONHASHSEED": "1",
        "PYTHONPATH": "/work:/lib",
        "TOY_FABRIC": "ib0",
        "UCX_TLS": "tcp",
    }


def test_files_add_variables_and_the_nearer_one_wins(toy: Accelerator, tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    for folder, text in ((home, "A=1\nB=two words=2\n"), (work, "# comment\n\nA=3\n")):
        folder.mkdir()
        (folder / ".deepspeed_env").write_text(text)
    files = ssh.variable_files({}, home, work)
    assert ssh.exported_variables({}, toy, "/work", files) == {
        "A": "3",
        "B": "two words=2",
        "PYTHONPATH": "/work",
    }
    assert ssh.variable_files({"DS_ENV_FILE": "vars"}, home, work) == (home / "vars", work / "vars")


@pytest.mark.parametrize("line", ["A", "A B=1", "=1", "A;rm=1", "A=\0"])
def test_a_wrong_line_is_named(line: str, toy: Accelerator, tmp_path: Path) -> None:
    path = tmp_path / "vars"
    path.write_text(f"A=1\n{line}\n")
    with pytest.raises(InvalidArguments) as caught:
        ssh.exported_variables({}, toy, "/work", [path])
    assert f"{path}:2" in caught.value.found


def test_a_file_that_another_user_can_write_is_refused(toy: Accelerator, tmp_path: Path) -> None:
    path = tmp_path / ".deepspeed_env"
    path.write_text("LD_PRELOAD=/tmp/theirs.so\n")
    if os.geteuid() == 0:
        os.chown(path, 12345, 12345)
    else:
        path.chmod(0o646)
    files = ssh.variable_files({}, tmp_path / "home", tmp_path)
    with pytest.raises(InvalidArguments, match="another user can write"):
        ssh.exported_variables({}, toy, "", files)
    named = {"DS_ENV_FILE": str(path)}
    meant = ssh.variable_files(named, tmp_path / "home", tmp_path)
    assert ssh.exported_variables(named, toy, "", meant) == {"LD_PRELOAD": "/tmp/theirs.so"}
