# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Broken variants of the good accelerator. Each breaks one thing, and names the checks that have to notice it.

Other checks may notice it too: many are made by rule for every method, and most put tensors on a device.
"""

import pkgutil
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from accel_good.accelerator import GOOD_Accelerator

EVERYTHING = "*"
#: What the good accelerator cannot be broken in: its memory is the host's. See simulated.py.
_ORDER = """asking_does_not_wait event_makes_the_named_stream_wait
    events_are_marks_of_their_own event_that_is_done_is_of_work_that_is host_waits_for_a_stream
    queueing_does_not_wait replay_does_not_wait replay_is_in_the_current_stream
    resolved_dependency_needs_no_wait step_does_not_wait synchronize_waits
    synchronize_waits_for_its_device synchronized_device_needs_no_wait"""
NEEDS_DEVICE_MEMORY = {f"asynchrony.{check}" for check in _ORDER.split()} | {
    "op_attention.released_workspace_is_free",
    "op_devices.call_is_in_the_current_stream",
    "streams.tensor_remembers_its_streams",
    "tensors.answer_follows_the_data_of_a_tensor",
}


@dataclass
class Site:
    """What is on the path of a run: the good package's metadata, and files that take the place of its own.

    metadata, entry_points: text of the installed distribution.
    files:                  path below the folder -> text.
    """

    folder: Path
    metadata: str
    entry_points: str
    files: dict[str, str] = field(default_factory=dict)

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace text in the run's own copy of the good package; an empty `old` means the end of the file."""
        source = Path(__file__).parents[1] / "accel_good" / path
        text = self.files.get(f"accel_good/{path}") or source.read_text(encoding="utf-8")
        assert old in text, f"{old!r} is not in {path}"
        self.files[f"accel_good/{path}"] = text.replace(old, new, 1) if old else f"{text}\n{new}"


Patch = Callable[[Site, pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Variant:
    """One broken thing.

    fails:   ids of the checks that have to fail; an id without its [parameter] stands for one of them at least.
    thing:   the broken class, or a function that breaks the site of a run.
    started: the fixture of the suite that starts processes and whose checks are run; empty: all other checks.
    """

    name: str
    fails: tuple[str, ...]
    thing: type | Patch
    started: str = ""

    @property
    def files(self) -> set[str]:
        """The files of the suite that have its checks, such as `device`; empty for all."""
        return {check.partition(".")[0] for check in self.fails if check != EVERYTHING}

    def unnoticed(self, failed: set[str]) -> set[str]:
        """Return those of its checks that are not among the failed ones."""
        return set(self.fails) - failed - {check.partition("[")[0] for check in failed}


VARIANTS: dict[str, Variant] = {}


def breaks(*fails: str, started: str = "", name: str = "") -> Callable[[Any], Any]:
    """Register a broken class, or a function that breaks the site of a run. A string may have several ids of checks."""
    ids = tuple(one for text in fails for one in re.findall(r"\*|\w+\.\w+(?:\[[^]]*\])?", text))
    assert " ".join(ids) == " ".join(fails), f"{fails} are not ids of checks"

    def register(thing: Any) -> Any:
        variant = Variant(name or thing.__name__, ids, thing, started)
        assert variant.name not in VARIANTS, f"two variants are called {variant.name}"
        VARIANTS[variant.name] = variant
        return thing

    return register


def table(
    *rows: tuple[Any, ...], started: str = "", module: str = __name__, good: type = GOOD_Accelerator
) -> None:
    """Register a good accelerator with other members for each row: (name, checks, member, value[, member, value]).

    module: `__name__` of the caller, from where processes import the classes.
    """
    for name, fails, *members in rows:
        changed = dict(zip(members[::2], members[1::2], strict=True))
        kind = type(name, (good,), {**changed, "__module__": module})
        breaks(fails, name=name, started=started)(kind)
        setattr(sys.modules[module], name, kind)


def answers(methods: dict[str, Any], *fails: str) -> None:
    """Register a variant for each method that then only returns the value; `{}` in an id is the method's name."""
    for method, value in methods.items():
        name = f"{method}_is_{value!r}".replace(" ", "")
        table((name, " ".join(fails).format(method), method, lambda self, *_, value=value, **__: value))


def after(method: Callable[..., Any], more: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that does something more, with the same arguments."""

    def both(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        more(*args, **kwargs)
        return result

    return both


def load() -> dict[str, Variant]:
    """Return all variants, by name."""
    for _, module, _ in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module}")
    return VARIANTS
