# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Packages with a compiled library have the same build hook: each sdist needs its own copy."""

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]


def test_the_hooks_that_compile_a_library_are_copies_of_one_file() -> None:
    hooks = [ROOT / "packages" / package / "hatch_build.py" for package in ("accel-cpu", "accel-ops")]
    assert len({hook.read_text() for hook in hooks}) == 1


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def hook(said: list[str]) -> SimpleNamespace:
    """The hook with what hatchling gives it and the test needs: its output and the name of the package."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "packages/accel-ops/hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    given = SimpleNamespace(
        app=SimpleNamespace(display_info=said.append), metadata=SimpleNamespace(name="accel-ops")
    )
    given.run = lambda *command: module.LibraryHook._run(given, [sys.executable, "-c", *command])
    return given


def test_a_long_compilation_says_a_line_every_second(
    hook: SimpleNamespace, said: list[str], tmp_path: Path
) -> None:
    enough = tmp_path / "enough"

    def say(text: str) -> None:
        said.append(text)
        if len(said) == 3:
            enough.touch()

    hook.app.display_info = say
    hook.run(f"import os, time\nwhile not os.path.exists({str(enough)!r}): time.sleep(0.01)")
    assert said[:3] == [f"accel-ops: compiling its library, {seconds} s" for seconds in range(3)]


def test_what_the_compiler_says_is_kept_when_it_fails(hook: SimpleNamespace) -> None:
    with pytest.raises(Exception, match="exit status 3") as caught:
        hook.run("import sys; print('no such header', file=sys.stderr); sys.exit(3)")
    assert caught.value.stderr == "no such header\n"  # type: ignore[attr-defined]
