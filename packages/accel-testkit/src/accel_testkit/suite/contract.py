# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The contract as a table: for every method of the interface and every property, its checks or why there is none.

`python -m ci.contract_table write` makes docs/results/contract.md of it. A test fails for a method without a row, a
cell without an entry, and a check that does not exist.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass

from accel_testkit.suite import test_answers as answers
from accel_testkit.suite.call_signatures import public_members
from accel_testkit.suite.contract_results import RESULTS, Entry
from accel_testkit.suite.contract_rows import FAILURES, OBJECTS, REPEATS
from accel_testkit.suite.device_index import ALIKE, EXPLICIT, NAMING, READERS, RESETS

#: The columns.
PROPERTIES = {
    "result": "what it returns or does",
    "index": "without an index, with None, 0, 1, a device, an index out of range; the current device stays",
    "again": "asked or done a second time; the answer is the caller's own",
    "objects": "a second object of the class, or a second stream, graph, tensor",
    "failure": "after an exception, nested, in another thread",
}


@dataclass(frozen=True)
class Cell:
    """Checks by their ids, or the reason why there are none."""

    checks: tuple[str, ...] = ()
    reason: str = ""


def table() -> Iterator[tuple[str, dict[str, Cell]]]:
    """Return each method with its cells, in alphabetical order. Raises KeyError for a method without a row."""
    for name, member in public_members().items():
        yield (
            name,
            {
                "result": _cell(RESULTS[name]),
                "index": _index(name, member),
                "again": _again(name),
                "objects": _objects(name),
                "failure": _failure(name),
            },
        )


def _index(name: str, member: object) -> Cell:
    if not inspect.isfunction(member) or "device_index" not in inspect.signature(member).parameters:
        if name in answers.CONSTRUCTORS:
            return Cell((f"current_device.constructor_uses_the_current_device[{name}]",))
        if name in ("current_device", "current_device_name", "initial_seed"):
            return Cell((f"current_device.answer_is_of_the_current_device[{name}]",))
        return Cell(reason="takes no index")
    checks = []
    if name in READERS:
        checks.append(f"device_index.index_chooses_the_device[{name}]")
        if name not in ALIKE:
            checks.append(f"device_index.device_as_an_index_is_that_device[{name}]")
        if name not in EXPLICIT:
            checks.append(f"device_index.no_index_is_the_current_device[{name}]")
    if name in RESETS:
        checks.append("device_index.reset_reaches_one_device")
    if name == "set_rng_state":
        checks.append("device_index.state_is_restored_on_one_device")
    if name == "set_device":
        checks += ["current_device.set_device_takes_each_form", "device.index_out_of_range_is_refused"]
        checks.append("current_device.set_device_with_no_device_changes_nothing")
    else:
        checks.append(f"current_device.current_device_stays[{name}]")
    if name not in NAMING:
        checks.append(f"traits.index_of_the_only_device_is_accepted[{name}]")
        checks.append(f"traits.index_of_no_device_is_dropped_or_refused[{name}]")
    if name in ("device", "device_name"):
        checks.append(f"device.{name}_with_an_index_keeps_it")
    return Cell(tuple(checks))


def _asked(name: str) -> bool:
    return name in (*answers.QUESTIONS, *answers.ATTRIBUTES, *answers.CONSTRUCTORS)


def _again(name: str) -> Cell:
    checks = list(REPEATS[name]) if isinstance(REPEATS.get(name), tuple) else []
    if _asked(name):
        checks.insert(0, f"answers.answer_stays[{name}]")
    if name in answers.KEPT:
        checks.append(f"answers.answer_is_the_caller_s_own[{name}]")
    return Cell(tuple(checks)) if checks else Cell(reason=str(REPEATS[name]))


def _objects(name: str) -> Cell:
    checks = list(OBJECTS[name]) if isinstance(OBJECTS.get(name), tuple) else []
    if _asked(name):
        checks.insert(0, f"answers.second_object_answers_alike[{name}]")
    return Cell(tuple(checks)) if checks else Cell(reason=str(OBJECTS[name]))


def _failure(name: str) -> Cell:
    found = FAILURES.get(name, "changes nothing that an exception could leave behind" if _asked(name) else "")
    if not found:
        raise KeyError(name)
    return _cell(found)


def _cell(entry: Entry) -> Cell:
    return Cell(entry) if isinstance(entry, tuple) else Cell(reason=entry)
