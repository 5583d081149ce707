# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A selection that failed and was caught fails again, the same way; nobody ends on the CPU silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.upstream

#: Calls each step twice, and prints the kinds and texts of what they raised.
_TWICE = """
import json

def deepspeed_again():
    import deepspeed
    deepspeed.accelerator.get_accelerator()

def its_accelerator_again():
    from deepspeed.accelerator import get_accelerator
    get_accelerator()

def core_again():
    import accel_core
    accel_core.get_accelerator()

raised = []
for step in steps * 2:
    try:
        step()
        raised.append(f"{step.__name__} succeeded")
    except Exception as error:
        raised.append(f"{type(error).__name__}: {error}")
print(json.dumps(raised))
"""
_STEPS = {
    "deepspeed first": "[deepspeed_again, its_accelerator_again, core_again]",
    "its accelerator first": "[its_accelerator_again, core_again, deepspeed_again]",
    "core first": "[core_again, deepspeed_again, its_accelerator_again]",
}


def _raised(children: Any, steps: str, path: list[Path], **variables: str) -> list[str]:
    snippet = _TWICE.replace("steps * 2", f"{steps} * 2")
    raised: list[str] = children.run(snippet, path, **variables).report
    return raised


@pytest.mark.parametrize(
    ("steps", "variables", "kind"),
    [
        ("deepspeed first", {"DS_ACCELERATOR": "tpu"}, "UnknownAccelerator: [ACC-201]"),
        ("its accelerator first", {"DS_ACCELERATOR": ""}, "UnknownAccelerator: [ACC-201]"),
        ("core first", {"DS_ACCELERATOR": "npu"}, "AcceleratorUnavailable: [ACC-202]"),
        ("deepspeed first", {"ACCEL_STRICT": "1", "TOY_DEVICES": "-1"}, "StrictSelection: [ACC-205]"),
    ],
)
def test_a_refusal_is_the_same_error_every_time(
    children: Any, toy: Path, steps: str, variables: dict[str, str], kind: str
) -> None:
    raised = _raised(children, _STEPS[steps], [toy], **variables)
    assert len(set(raised)) == 1, raised
    assert raised[0].startswith(kind)


@pytest.mark.parametrize("variable", ["ACCEL_BRIDGE", "ACCEL_STRICT"])
def test_a_switch_that_means_nothing_is_an_error_of_import_deepspeed(
    children: Any, toy: Path, variable: str
) -> None:
    raised = _raised(children, "[deepspeed_again, its_accelerator_again]", [toy], **{variable: "perhaps"})
    assert len(set(raised)) == 1, raised
    assert raised[0].startswith(f"InvalidEnvironment: [ACC-104] cannot read the switch {variable}")


def test_setting_an_accelerator_ends_the_refusal_and_deepspeed_can_be_imported_then(
    children: Any, toy: Path
) -> None:
    children.run(
        """
        try:
            import deepspeed
        except ValueError:
            import accel_core, accel_toy
            accel_core.set_accelerator(accel_toy.Toy_Accelerator())
        import agreement
        agreement.hold("accel_toy")
        """,
        [toy],
        DS_ACCELERATOR="tpu",
    )


def test_what_is_no_accelerator_is_refused_by_both_doors_and_changes_nothing(
    children: Any, toy: Path
) -> None:
    refused = children.run(
        """
        import json, accel_core, accel_toy, deepspeed
        texts = []
        for door in (deepspeed.accelerator, accel_core):
            for wrong in (object(), accel_toy.Toy_Accelerator, "toy"):
                for kind in (AssertionError, TypeError):
                    try:
                        door.set_accelerator(wrong)
                    except kind as error:
                        texts.append(str(error))
        import agreement
        agreement.hold("accel_toy")
        print(json.dumps(texts))
        """,
        [toy],
    ).report
    assert len(refused) == 12
    assert refused[:6] == refused[6:]
    assert "[ACC-206]" in refused[0]
    assert "methods of an accelerator (available_memory, " in refused[0]
    assert "an instance, not the class: add ()" in refused[2]


def test_clearing_the_choice_selects_again(children: Any, toy: Path, classic: Path) -> None:
    children.run(
        """
        import os, accel_core, deepspeed, agreement
        agreement.hold("accel_toy")
        os.environ["DS_ACCELERATOR"] = "classic"
        deepspeed.accelerator.set_accelerator(None)
        agreement.hold("accel_classic")
        """,
        [toy, classic],
    )
