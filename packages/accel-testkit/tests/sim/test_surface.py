# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A simulated module offers exactly the real one's names, with the real one's parameters."""

from __future__ import annotations

import ast
import json

import pytest

from accel_testkit import surface
from accel_testkit.sim import vendors

OWN_MODULE = [vendor for vendor in vendors.VENDORS if vendor.packages]

LIST_NAMES = """
import inspect, json, sys, torch, importlib
importlib.import_module(sys.argv[1] if len(sys.argv) > 1 else {package!r})
module = getattr(torch, {key!r})
names = [n for n in vars(module) if not n.startswith("__")]
signatures = {{}}
for name in names:
    value = getattr(module, name)
    if callable(value) and not isinstance(value, type) and not getattr(value, "not_simulated", False):
        signatures[name] = [p.name for p in inspect.signature(value).parameters.values() if p.kind in (0, 1)]
print(json.dumps([names, signatures]))
"""


def _parameters(signature):
    if not signature:
        return []
    arguments = ast.parse(f"def f{signature}: ...").body[0].args
    return [argument.arg for argument in arguments.posonlyargs + arguments.args if argument.arg != "self"]


def _package(vendor):
    return "habana_frameworks.torch" if vendor.key == "hpu" else vendor.packages[0]


@pytest.mark.parametrize("vendor", OWN_MODULE, ids=lambda vendor: vendor.key)
def test_module_has_exactly_the_real_names(python, vendor):
    done = python(vendor.key, LIST_NAMES.format(key=vendor.key, package=_package(vendor)))
    assert not done.returncode, done.stderr
    names, signatures = json.loads(done.stdout)
    real = {
        name: entry
        for name, entry in surface.load(vendor.surface).children(vendor.module).items()
        if not entry.condition.startswith("never")
    }
    # torch itself asks every PrivateUse1 module for these two.
    assert set(names) - {"get_amp_supported_dtype", "_is_in_bad_fork"} <= set(real)
    assert set(real) <= set(names)
    for name, parameters in signatures.items():
        if (
            name in real
            and real[name].kind == "function"
            and real[name].signature
            and "*" not in real[name].signature
        ):
            assert len(parameters) == len(_parameters(real[name].signature)), name


def test_name_that_is_not_simulated_refuses_by_its_name(python):
    done = python("npu", "import torch, torch_npu; torch.npu.stress_detect()")
    assert "torch.npu.stress_detect is not simulated" in done.stderr


def test_unconfirmed_names_of_sdaa_are_flagged():
    names = surface.load("sdaa").names
    assert sum(entry.unconfirmed for entry in names.values()) == 12


@pytest.mark.parametrize("name", surface.available())
def test_surface_states_its_source_and_version(name):
    found = surface.load(name)
    assert found.names
    assert found.source
    assert found.version
