# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from accel_core.op_builder import OpBuilder, Route
from accel_core.op_builder.quantizer import QuantizerBuilder
from accel_core.op_builder.source_builder import deepspeed_folder
from accel_testkit import sim
from ci import routes

ROOT = Path(__file__).parents[2]
SIMULATED = ("cuda", "hpu", "mlu", "mps", "npu", "sdaa", "xpu")


def test_page_is_current_and_each_builder_tells_its_routes() -> None:
    assert not routes.check(ROOT)


def test_old_page_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "PAGE", tmp_path / "routes.md")
    assert routes.check(ROOT)[0].found == "no such file"
    assert routes.main(["write"], ROOT) == 0
    assert not routes.check(ROOT)
    (tmp_path / "routes.md").write_text("# Routes\n", encoding="utf-8")
    assert routes.check(ROOT)[0].found == "another text"
    assert routes.main(["check"], ROOT) == 1


def test_load_of_its_own_needs_routes_of_its_own() -> None:
    class Kernels(QuantizerBuilder):
        def load(self, verbose: bool = True) -> object:
            return object()

    class More(Kernels):
        pass

    class MixIn:
        load = Kernels.load

    class Mixed(MixIn, QuantizerBuilder):
        pass

    assert routes.undeclared(Mixed).endswith("MixIn")

    class Told(Kernels):
        ROUTES = (Route.SPIRV, Route.PLAIN)

    assert routes.undeclared(More).endswith("Kernels")
    assert routes.undeclared(Told) == routes.undeclared(QuantizerBuilder) == ""


def test_each_route_has_a_meaning_and_reads_well_in_a_table() -> None:
    for route in Route:
        assert route.meaning
        assert "|" not in route.meaning + route.value


#: Host optimizers, which DeepSpeed's CUDA accelerator takes from the CPU's folder.
HOST = {"CPUAdagradBuilder", "CPUAdamBuilder", "CPULionBuilder"}


def builders_in(folder: Path) -> set[str]:
    """The builders that modules of a folder define or import, but for base classes."""
    nodes = [
        node for file in folder.glob("*.py") for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    ]
    names = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    names |= {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    bases = ("OpBuilder", "NotImplementedBuilder")
    return {name for name in names if name.endswith("Builder") and not name.endswith(bases)}


@pytest.mark.parametrize("key", ["cpu", *SIMULATED])
def test_stock_deepspeed_s_builders_are_those_in_the_data(key: str) -> None:
    folder, data = deepspeed_folder(), routes.data(ROOT)
    if folder is None or metadata.version("deepspeed") != data["release"]:
        pytest.skip(f"not run: DeepSpeed {data['release']} is not installed")
    found = builders_in(folder / "ops" / "op_builder" / ("" if key == "cuda" else key))
    assert found | (HOST if key == "cuda" else set()) == set(data["builders"][key])
    told = {name.partition(".")[2] for name in data["faults"] if name.startswith(f"{key}.")}
    assert told <= set(data["builders"][key])


#: How the reason of a loaded builder begins, by route.
_BEGINS = {
    Route.IMAGE: "image",
    Route.SPIRV: "spir-v",
    Route.TORCH_FUSED: "torch._fused",
    Route.VENDOR_OP: "torch.ops",
    Route.PLAIN: "plain torch",
}


@pytest.mark.slow
@pytest.mark.parametrize("key", SIMULATED)
def test_loaded_ops_take_a_route_that_they_tell(key: str) -> None:
    base = {name: value for name, value in os.environ.items() if not name.startswith(("ACCEL_S", "DS_ACC"))}
    done = subprocess.run(
        [sys.executable, "-m", "accel_core.cli", "ops", "build", "--json"],
        env=sim.environment(key, base=base), capture_output=True, text=True, check=False,
    )  # fmt: skip
    rows = [row for row in json.loads(done.stdout)["ops"] if row["state"] == "ok"]
    assert rows
    for row in rows:
        cls: type[OpBuilder] = routes.builder(key, row["builder"])
        reason = row["reason"].removeprefix("loaded; ").lower()
        taken = [route for route, begins in _BEGINS.items() if reason.startswith(begins)]
        assert set(taken) <= set(cls.routes()), row
