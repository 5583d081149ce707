# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""A simulated module offers exactly the real one's names, with the real one's parameters."""

import json
from functools import cache

import pytest

from accel_sim import surface, vendors
from accel_sim.surface import Name

OWN_MODULE = [vendor for vendor in vendors.VENDORS if vendor.packages]
#: No public source has signatures of torch.sdaa.
SIGNED = [vendor for vendor in vendors.VENDORS if vendor.key != "sdaa"]

DESCRIBE = """
import importlib, json, torch
from accel_sim import surface
from accel_sim import simulation
if {package!r}:
    importlib.import_module({package!r})
active = simulation.current()
taken = {{}}
for name, entry in surface.load(active.vendor.surface).children(active.vendor.module).items():
    real, value = surface.read_signature(entry), getattr(active.module, name, None)
    if real is not None and name in active.simulated and value is not None:
        taken[name] = str(surface.signature_of(value)), str(real)
names = [name for name in vars(active.module) if not name.startswith("__")]
print(json.dumps({{"names": names, "signatures": taken}}))
"""


@pytest.fixture(scope="module")
def described(python):
    """Names and parameters of a vendor's simulated module, and the real parameters, by its key."""

    @cache
    def describe(key):
        package = "habana_frameworks.torch" if key == "hpu" else "".join(vendors.find(key).packages)
        done = python(key, DESCRIBE.format(package=package))
        assert not done.returncode, done.stderr
        return json.loads(done.stdout)

    return describe


@pytest.mark.parametrize("vendor", OWN_MODULE, ids=lambda vendor: vendor.key)
def test_module_has_exactly_the_real_names(described, vendor):
    entries = surface.load(vendor.surface).children(vendor.module)
    real = {name for name, entry in entries.items() if not entry.condition.startswith("never")}
    # torch itself asks every PrivateUse1 module for these two.
    names = set(described(vendor.key)["names"])
    assert names - {"get_amp_supported_dtype", "_is_in_bad_fork"} <= real
    assert real <= names


@pytest.mark.parametrize("vendor", SIGNED, ids=lambda vendor: vendor.key)
def test_simulated_functions_take_the_real_parameters(described, vendor):
    taken = described(vendor.key)["signatures"]
    assert {name: found for name, (found, real) in taken.items() if found != real} == {}
    assert "synchronize" in taken


def test_parameter_that_the_real_function_lacks_is_refused_and_its_own_name_taken(python):
    source = """
import torch, torch_npu
print(torch.npu.get_device_name(device_name=0), torch.npu.Event(enable_timing=True).timed)
for call in (lambda: torch.npu.get_device_name(device=0), lambda: torch.npu.Event(external=True)):
    try:
        call()
    except TypeError:
        print("refused")
"""
    done = python("npu", source)
    assert done.stdout.splitlines() == ["Ascend910B2 (simulated) True", "refused", "refused"], done.stderr
    event = "torch.cuda.Event(external={})"
    done = python("cuda", f"import torch; print({event.format(False)}.timed); {event.format(True)}")
    assert done.stdout.strip() == "False"
    assert "torch.cuda.Event(external=…) is not simulated" in done.stderr


def test_signature_is_read_as_the_surface_writes_it():
    entry = Name("class", "(cls, device=None, *, priority: int = 0, **kwargs) -> Any")
    assert str(surface.read_signature(entry)) == "(device=None, *, priority=0, **kwargs)"
    assert surface.read_signature(Name("function", "(device=...)")) is None
    assert surface.read_signature(Name("function", "(dtype=torch.float32)")) is None
    assert surface.read_signature(Name("attr", "<module torch_npu.npu.amp>")) is None


def test_unconfirmed_names_of_sdaa_are_flagged():
    names = surface.load("sdaa").names
    assert sum(entry.unconfirmed for entry in names.values()) == 12


@pytest.mark.parametrize("name", surface.available())
def test_surface_states_its_source_and_version(name):
    found = surface.load(name)
    assert found.names
    assert found.source
    assert found.version
