# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""py-cpuinfo's answer is an ordinary dict to whoever reads it, and costs nothing to who reads the maker only."""

from __future__ import annotations

import collections
import copy
import json
import pickle
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accel_core.upstream import contract, cpu_info

REAL = {
    "python_version": "3",
    "arch": "X86_64",
    "flags": ["avx", "sse"],
    "vendor_id_raw": "Maker",
    "count": 2,
}


class Real:
    """py-cpuinfo's function; counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> dict[str, Any]:
        self.calls += 1
        return copy.deepcopy(REAL)


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Real:
    monkeypatch.setattr(contract, "is_registered", lambda: True)
    monkeypatch.setattr(cpu_info, "_vendor", lambda: "Maker")
    return Real()


@pytest.fixture
def ask(real: Real) -> Callable[[], dict[str, Any]]:
    return cpu_info.answered_lazily(real)


def test_the_maker_costs_nothing(ask: Callable[[], dict[str, Any]], real: Real) -> None:
    answer = ask()
    assert "vendor_id_raw" in answer
    assert answer["vendor_id_raw"] == answer.get("vendor_id_raw") == "Maker"
    assert isinstance(answer, dict)
    assert real.calls == 0


def changed(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What a dict is after it was changed, with the function's result."""

    def both(answer: Any) -> Any:
        return function(answer), dict(answer)

    return both


USES: dict[str, Callable[[Any], Any]] = {
    "another key": lambda d: d["arch"],
    "in": lambda d: ("arch" in d, "nothing" in d, "nothing" not in d),
    "get": lambda d: (d.get("arch"), d.get("nothing"), d.get("nothing", 7)),
    "len": len,
    "bool": bool,
    "list": list,
    "reversed": lambda d: list(reversed(d)),
    "keys": lambda d: list(d.keys()),
    "values": lambda d: list(d.values()),
    "items": lambda d: list(d.items()),
    "set": set,
    "sorted": sorted,
    "dict": dict,
    "unpacked": lambda d: {**d},
    "keyword arguments": lambda d: dict(**d),
    "update of another": lambda d: collections.OrderedDict(d),
    "repr": repr,
    "str": str,
    "equal": lambda d: (d == REAL, d == REAL, d != REAL, d == {}, d != {}),
    "or": lambda d: (d | {"x": 1}, {"x": 1} | d, type(d | {}), type({} | d)),
    "copy": lambda d: (d.copy(), type(d.copy())),
    "copy.copy": lambda d: (copy.copy(d), type(copy.copy(d))),
    "deepcopy": lambda d: (copy.deepcopy(d), type(copy.deepcopy(d))),
    "pickle": lambda d: [(pickle.loads(pickle.dumps(d, p)), type(pickle.loads(pickle.dumps(d, p)))) for p in range(6)],
    "json": lambda d: (json.dumps(d), json.dumps(d, indent=1), json.dumps(d, sort_keys=True)),
    "json in a list": lambda d: json.dumps([d]),
    "format": lambda d: "{arch}".format(**d) + "%(arch)s" % d,  # noqa: UP031
    "proxy": lambda d: dict(types.MappingProxyType(d)),
    "chain map": lambda d: collections.ChainMap({}, d)["arch"],
    "set item": changed(lambda d: d.__setitem__("arch", 1)),
    "new item": changed(lambda d: d.__setitem__("x", 1)),
    "delete": changed(lambda d: d.__delitem__("arch")),
    "pop": changed(lambda d: (d.pop("arch"), d.pop("nothing", 3), d.pop("vendor_id_raw"))),
    "popitem": changed(lambda d: d.popitem()),
    "setdefault": changed(lambda d: (d.setdefault("arch", 1), d.setdefault("x", 2))),
    "update": changed(lambda d: d.update({"arch": 1}, x=2)),
    "ior": changed(lambda d: d.__ior__({"arch": 1})),
    "clear": changed(lambda d: d.clear()),
    "change of a value": changed(lambda d: d["flags"].append("x")),
}  # fmt: skip


@pytest.mark.parametrize("name", USES)
def test_every_use_gives_what_the_real_dict_gives(
    ask: Callable[[], dict[str, Any]], real: Real, name: str
) -> None:
    assert USES[name](ask()) == USES[name](copy.deepcopy(REAL))
    assert USES[name](ask()) == USES[name](
        copy.deepcopy(REAL)
    )  # what the first one did to its dict is its own
    assert real.calls == 1


def test_two_answers_are_equal_and_each_its_own(ask: Callable[[], dict[str, Any]]) -> None:
    one, other = ask(), ask()
    assert one == other
    one["flags"].append("mine")
    assert one != other


@pytest.mark.parametrize(
    "use", [lambda d: d["nothing"], lambda d: d.pop("nothing"), lambda d: d.__delitem__("x")]
)
def test_a_key_that_does_not_exist_is_an_error(
    ask: Callable[[], dict[str, Any]], use: Callable[[Any], Any]
) -> None:
    with pytest.raises(KeyError):
        use(ask())


def test_a_system_that_does_not_name_the_maker_asks_at_once(
    ask: Callable[[], dict[str, Any]], real: Real, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_info, "_vendor", lambda: "")
    assert type(ask()) is dict
    assert real.calls == 1


@pytest.mark.parametrize(
    ("text", "maker"),
    [
        ("processor\t: 0\nvendor_id\t: GenuineIntel\nvendor_id: Other\n", "GenuineIntel"),
        ("vendor_id :\nvendor : HiSilicon: yes\n", "HiSilicon: yes"),
        ("processor: 0\nBogoMIPS: 1\n", ""),
        (None, ""),
    ],
)
def test_the_maker_is_the_first_one_that_the_system_names(
    text: str | None, maker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(cpu_info, "_PROC", tmp_path / "cpuinfo")
    assert cpu_info._vendor() == maker


def test_a_module_of_that_name_with_other_functions_is_left_alone() -> None:
    module = types.ModuleType("cpuinfo")
    cpu_info.join_cpu_info(module)
    assert not hasattr(module, "get_cpu_info")


_CONSTRUCT = """
    import cpuinfo.cpuinfo, torch, subprocess
    {first}
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    answers = []
    popen = subprocess.Popen.__init__
    def watched(self, command, *arguments, **options):
        answers.append("cpuinfo" in str(command))
        popen(self, command, *arguments, **options)
    subprocess.Popen.__init__ = watched
    optimizer = DeepSpeedCPUAdam([torch.nn.Parameter(torch.ones(4))])
    print(any(answers), optimizer.cpu_vendor)
    same = cpuinfo.get_cpu_info() == cpuinfo.cpuinfo.get_cpu_info()
    print(same, optimizer.cpu_vendor == cpuinfo.get_cpu_info()["vendor_id_raw"].lower(), sum(answers))
"""


@pytest.mark.upstream
@pytest.mark.parametrize("first", ["", "import deepspeed"])
def test_deepspeed_constructs_its_optimizer_without_py_cpuinfo_s_process(children: Any, first: str) -> None:
    out = children.run(_CONSTRUCT.format(first=first), DS_ACCELERATOR="cpu").out.splitlines()[-2:]
    assert out[0].startswith("False ")
    assert out[1] == "True True 1"


@pytest.mark.upstream
def test_without_the_bridge_py_cpuinfo_is_left_alone(children: Any) -> None:
    program = "import cpuinfo, torch, deepspeed; print(cpuinfo.get_cpu_info.__module__)"
    assert children.run(program, ACCEL_BRIDGE="0", DS_ACCELERATOR="cpu").out.split()[-1] == "cpuinfo.cpuinfo"
    assert children.run(program, DS_ACCELERATOR="cpu").out.split()[-1] == "accel_core.upstream.cpu_info"
