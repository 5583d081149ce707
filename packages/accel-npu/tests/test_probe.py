# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The CANN version is read where it is installed, and its absence is reported rather than raised."""

from pathlib import Path

import pytest

from accel_npu import cann, visible


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CANN folder without its install file, and the variables that set_env.sh sets."""
    for part in ("runtime", "compiler", "opp", "aarch64-linux"):
        (tmp_path / part).mkdir()
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    monkeypatch.setenv("ASCEND_OPP_PATH", str(tmp_path / "opp"))
    return tmp_path


def install_file(home: Path, text: str) -> None:
    (home / "aarch64-linux/ascend_toolkit_install.info").write_text(text)


def test_the_version_stands_in_the_install_file(home: Path) -> None:
    install_file(home, "package_name=Ascend-cann-toolkit\nversion=8.1.RC1\ninnerversion=V100\n")
    assert cann.cann_status() == f"CANN 8.1.RC1 in {home}"


@pytest.mark.parametrize("part", ["runtime", "compiler", "opp", "ASCEND_OPP_PATH"])
def test_missing_part_of_cann_is_reported(part: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_file(home, "version=8.1.RC1\n")
    if part.isupper():
        monkeypatch.delenv(part)
    else:
        (home / part).rmdir()
    reason = cann.cann_status()
    assert part in reason
    assert "import fails" in reason


@pytest.mark.parametrize("home", [None, "", "/no/such/folder"])
def test_an_unset_or_wrong_home_is_reported(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    if home is not None:
        monkeypatch.setenv("ASCEND_HOME_PATH", home)
    reason = cann.cann_status()
    assert "ASCEND_HOME_PATH" in reason
    assert "set_env.sh" in reason


@pytest.mark.parametrize("text", [None, "", "innerversion=V100\n"])
def test_a_folder_without_a_version_is_reported(text: str | None, home: Path) -> None:
    if text is not None:
        install_file(home, text)
    reason = cann.cann_status()
    assert "install.info" in reason


# --- ASCEND_RT_VISIBLE_DEVICES: only ids that ascend get through


@pytest.mark.parametrize("value", ["0", "0,1", "3,7", ""])
def test_a_good_variable_has_no_fault(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(visible.VARIABLE, value)
    assert visible.fault() == ""


@pytest.mark.parametrize(
    ("value", "reported"), [("1,0", "do not ascend"), ("0,0", "do not ascend"), ("0,x", "other than")]
)
def test_a_bad_variable_is_reported(value: str, reported: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(visible.VARIABLE, value)
    assert reported in visible.fault()
    assert value in visible.fault()
