# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A DeepSpeed that is not among the tested ones: the installed one, patched and under another version."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.upstream

_ABSTRACT = """

    @abc.abstractmethod
    def quantum_entangle(self):
        ...
"""
_CONCRETE = """

    def quantum_entangle(self):
        return type(self).__name__
"""
_CLASSES = ("cpu_accelerator", "cuda_accelerator")


def _patched(folder: Path, version: str, interface: str = "", backends: str = "") -> Path:
    """A folder whose deepspeed is the installed one but for text at the end of the accelerator classes."""
    found = importlib.util.find_spec("deepspeed")
    assert found is not None
    assert found.origin is not None
    real, copy = Path(found.origin).parent, folder / "deepspeed"
    (copy / "accelerator").mkdir(parents=True)
    for entry in real.iterdir():
        if entry.name not in ("accelerator", "__pycache__"):
            (copy / entry.name).symlink_to(entry)
    for file in (real / "accelerator").glob("*.py"):
        added = (
            interface if file.stem == "abstract_accelerator" else backends if file.stem in _CLASSES else ""
        )
        (copy / "accelerator" / file.name).write_text(file.read_text() + added)
    metadata = folder / f"deepspeed-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: deepspeed\nVersion: {version}\n")
    return folder


def test_a_newer_release_with_new_concrete_methods_works_with_one_warning(
    children: Any, toy: Path, tmp_path: Path
) -> None:
    said = children.run(
        """
        import agreement, deepspeed
        agreement.hold("accel_toy")
        assert deepspeed.accelerator.get_accelerator().quantum_entangle() == "Toy_Accelerator"
        """,
        [_patched(tmp_path, "0.20.0", _CONCRETE), toy],
    )
    assert said.err.count("deepspeed 0.20.0 is outside") == 1
    assert "<0.20" in said.err
    assert ">=0.18" in said.err


def test_an_older_release_works_with_the_same_warning(children: Any, toy: Path, tmp_path: Path) -> None:
    said = children.run("import agreement; agreement.hold('accel_toy')", [_patched(tmp_path, "0.17.3"), toy])
    assert said.err.count("deepspeed 0.17.3 is outside") == 1


def test_a_supported_release_is_met_without_a_word(children: Any, toy: Path) -> None:
    assert children.run("import agreement; agreement.hold('accel_toy')", [toy]).err == ""


def test_the_bridge_stands_aside_when_a_method_is_missing(children: Any, toy: Path, tmp_path: Path) -> None:
    said = children.run(
        """
        import deepspeed, agreement
        agreement.untouched()
        from deepspeed.accelerator import get_accelerator
        assert type(get_accelerator()).__module__ == "deepspeed.accelerator.cpu_accelerator"
        import accel_core
        with accel_core.using("toy") as ours:
            assert type(ours).__module__ == "accel_toy.accelerator"
            agreement.untouched()
        """,
        [_patched(tmp_path, "0.20.0", _ABSTRACT, _CONCRETE), toy],
        TOY_DEVICES="0",
    )
    assert said.err.count("[ACC-301]") == 1
    assert "quantum_entangle; deepspeed 0.20.0, accel-core " in said.err
    assert "pip install --upgrade ./packages/accel-core" in said.err


@pytest.mark.parametrize("asked", ["", "cpu"])
def test_a_device_that_deepspeed_has_no_backend_for_does_not_become_the_cpu(
    children: Any, toy: Path, tmp_path: Path, asked: str
) -> None:
    raised = children.run(
        """
        import json
        raised = ""
        try:
            import deepspeed
            deepspeed.accelerator.get_accelerator()
        except RuntimeError as error:
            raised = str(error)
        print(json.dumps(raised))
        """,
        [_patched(tmp_path, "0.20.0", _ABSTRACT, _CONCRETE), toy],
        **({"DS_ACCELERATOR": asked} if asked else {}),
    ).report
    if asked:
        assert raised == ""
    else:
        assert raised.startswith("[ACC-301] deepspeed 0.20.0 asks accelerators for methods")
        assert "to run without toy, which is in this machine, set DS_ACCELERATOR=cpu" in raised


def test_standing_aside_is_an_error_under_strict_every_time(children: Any, toy: Path, tmp_path: Path) -> None:
    raised = children.run(
        """
        import json
        raised = []
        for _ in range(2):
            try:
                import deepspeed
            except RuntimeError as error:
                raised.append(str(error))
            try:
                from deepspeed.accelerator import get_accelerator
                get_accelerator()
            except RuntimeError as error:
                raised.append(str(error))
        print(json.dumps(raised))
        """,
        [_patched(tmp_path, "0.20.0", _ABSTRACT, _CONCRETE), toy],
        ACCEL_STRICT="1",
    ).report
    assert len(raised) == 4
    assert len(set(raised)) == 1
    assert raised[0].startswith("[ACC-301] deepspeed 0.20.0 asks accelerators for methods")
    assert "quantum_entangle" in raised[0]
