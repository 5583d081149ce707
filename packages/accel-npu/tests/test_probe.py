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


def test_version_is_that_of_the_install_file(home):
    install_file(home, "package_name=Ascend-cann-toolkit\nversion=8.1.RC1\ninnerversion=V100\n")
    assert cann.cann_status() == f"CANN 8.1.RC1 in {home}"


@pytest.mark.parametrize("part", ["runtime", "compiler", "opp", "ASCEND_OPP_PATH"])
def test_missing_part_of_cann_is_reported(part, home, monkeypatch):
    install_file(home, "version=8.1.RC1\n")
    if part.isupper():
        monkeypatch.delenv(part)
    else:
        (home / part).rmdir()
    reason = cann.cann_status()
    assert part in reason
    assert "import fails" in reason


@pytest.mark.parametrize("value", [None, "", "/no/such/folder"])
def test_wrong_home_is_reported(value, home, monkeypatch):
    if value is None:
        monkeypatch.delenv("ASCEND_HOME_PATH")
    else:
        monkeypatch.setenv("ASCEND_HOME_PATH", value)
    reason = cann.cann_status()
    assert "ASCEND_HOME_PATH" in reason
    assert "set_env.sh" in reason


@pytest.mark.parametrize("text", [None, "", "innerversion=V100\n"])
def test_missing_version_is_reported(text, home):
    if text is not None:
        install_file(home, text)
    assert "install.info" in cann.cann_status()


# --- ASCEND_RT_VISIBLE_DEVICES: only ids that ascend get through

#: On a machine with 3 devices, as CANN's own tests expect; the ids in another order by its documents.
READ = {
    "": 0, ",0": 0, "0,1,5,7": 2, "1": 1, "1,,": 1, "1*": 1, "1,": 1, "0,1": 2, "0,1$0,": 2, "0#1,": 1, "-1,3": 0,
    "0,1,2": 3, "10,": 0, "10#": 0, "1,-1": 1, "0,1,1": 0, "1,0,1": 0, "1,1,0": 0, "1, 2": 1, " 1": 0, "1,0": 0,
}  # fmt: skip


@pytest.mark.parametrize(("value", "count"), READ.items(), ids=map(repr, READ))
def test_visible_devices_as_cann_reads_them(value, count):
    assert len(visible.VISIBLE.read(value, 3)) == count


@pytest.mark.parametrize(
    ("value", "count", "remark"),
    [
        ("0, 1", 1, "the runtime ignores 1 of ASCEND_RT_VISIBLE_DEVICES=0, 1"),
        (
            "1,0",
            0,
            "the runtime ignores 1, 0 of ASCEND_RT_VISIBLE_DEVICES=1,0: ids that do not ascend hide all devices",
        ),
    ],
)
def test_ignored_devices_are_named(value, count, remark):
    assert visible.VISIBLE.remarks(count, {visible.VARIABLE: value}) == [remark]
