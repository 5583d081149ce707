# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Call every function of a vendor's module that takes a device with wrong devices; print the errors as JSON.

Which functions there are is taken from the surface: every simulated one with a parameter of a device.
"""

import importlib
import json
import sys
from typing import Any

import torch

from accel_sim import simulation, surface
from accel_sim.errors import NotSimulated

NAMES = ("device", "device_id", "device_name", "peer", "peer_device", "peer_device_id")
OTHERS = {"new_state": lambda: torch.get_rng_state(), "fraction": lambda: 0.5}
WRONG = {"99": 99, "cpu": "cpu", "another type": torch.device("meta"), "-5": -5}


def _calls(active: simulation.Simulation) -> dict[str, tuple[Any, list[str], str]]:
    """Return each function with the names of its parameters and of the one to try."""
    found = {}
    for name, entry in surface.load(active.vendor.surface).children(active.vendor.module).items():
        real = surface.read_signature(entry)
        if real is None or name not in active.simulated or not hasattr(active.module, name):
            continue
        positional = [p for p in real.parameters.values() if p.kind == p.POSITIONAL_OR_KEYWORD]
        required = [p.name for p in positional if p.default is p.empty]
        for parameter in real.parameters:
            if parameter in NAMES:
                found[f"{name}({parameter})"] = (getattr(active.module, name), required, parameter)
    return found


def _enter(result: Any) -> None:
    if hasattr(result, "__enter__"):
        with result:
            pass


def _outcome(function: Any, required: list[str], parameter: str, wrong: Any) -> str:
    options = {name: OTHERS[name]() if name in OTHERS else 0 for name in required}
    options[parameter] = wrong
    try:
        _enter(function(**options))
    except NotSimulated:
        return "not simulated"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(package: str) -> None:
    """Print the outcome of each call, empty where nothing was raised."""
    if package:
        importlib.import_module(package)
    active = simulation.current()
    assert active is not None
    torch.ones(1, device=active.type)
    results = {
        name: {word: _outcome(*call, wrong) for word, wrong in WRONG.items()}
        for name, call in _calls(active).items()
    }
    sys.stdout.write(json.dumps(results) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
