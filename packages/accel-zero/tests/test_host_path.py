# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The norm from our sums of squares has the bits of DeepSpeed's, or DeepSpeed's own is computed; files are our own."""

import ctypes
import math
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from accel_zero import fast_writer, host_path
from accel_zero.host_path import HostPath


def _total(norms: dict[int, torch.Tensor]) -> float:
    """What DeepSpeed makes of them."""
    return ctypes.c_float(sum(norm.item() ** 2 for norm in norms.values())).value


def _path(norms: dict[int, torch.Tensor], size: int) -> HostPath:
    return HostPath(None, norms={number: (norm, size) for number, norm in norms.items()})


def _tensor(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.double)


@pytest.mark.parametrize("seed", range(20))
def test_totals_beside_a_rounding_boundary_are_stocks(seed):
    rng = random.Random(seed)
    base = ctypes.c_float(rng.uniform(0.1, 1e6)).value
    step = math.ulp(base) * 2**29  # one unit of float32
    size = rng.choice((10**3, 10**6, 10**8))
    for direction in (-1, 1):
        # Ours is as far from the boundary as the sums may differ, on either side; stock's is on the other one.
        error = direction * size * 2.0**-53 * base / 2
        middle = base + step / 2
        ours = {1: _tensor(math.sqrt(middle + error)), 2: _tensor(math.sqrt(base * 1e-9))}
        stock = {1: _tensor(math.sqrt(middle - error)), 2: ours[2]}
        replaced = host_path.exact_norms(_path(ours, size), ours.items(), stock.__getitem__)
        assert _total({**ours, **replaced}) == _total(stock)


def _forbidden(number: int) -> torch.Tensor:
    raise AssertionError(number)


@pytest.mark.parametrize(
    ("values", "size", "ours"),
    [
        pytest.param([math.sqrt(2.0)] * 4, 10**6, True, id="far from a boundary"),
        pytest.param([1.0, 2.0], 10**9, False, id="equal values, but other objects"),
        pytest.param([math.inf, 2.0], 10**9, True, id="overflow"),
        pytest.param([math.nan, 2.0], 10**9, True, id="NaN"),
    ],
)
def test_no_second_norm_is_needed(values, size, ours):
    norms, others = ({number: _tensor(value) for number, value in enumerate(values)} for _ in range(2))
    path = _path(norms if ours else others, size)
    assert host_path.exact_norms(path, norms.items(), _forbidden) == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_slack_covers_torchs_error(dtype):
    # Equal elements: the roundings of a serial sum all go one way.
    for value in (0.1, 1.0009765625, 3.3e-4):
        for size in (10**3, 10**6):
            tensor = torch.full((size,), value, dtype=dtype)
            exact = size * tensor[0].double().item() ** 2
            stock = tensor.double().norm(2).item() ** 2
            assert abs(stock - exact) <= host_path._slack(exact, size)


def test_a_stale_gradient_is_scaled_once_for_each_step():
    path = HostPath(None, unscaled={0: 0.5}, written={0: {1}})
    grads = {1: torch.ones(2), 2: torch.ones(2)}

    def stale(written):
        return [grad for number, grad in grads.items() if number not in written]

    host_path.rescale_stale_grads(path, 0, stale)
    host_path.rescale_stale_grads(path, 0, stale)
    assert grads[1].tolist() == [1.0, 1.0]
    assert grads[2].tolist() == [0.5, 0.5]


def test_the_factor_is_what_the_method_multiplies_by():
    scale = torch.tensor(3.0) * 7
    assert host_path.factor_of(lambda probe: probe.mul_(1.0 / scale)) == (1.0 / scale).item()
    assert host_path.factor_of(lambda probe: None) == 1.0


def test_a_class_that_derives_from_deepspeeds_runs_stock_methods():
    # SuperOffload sends the scaled gradients to another process.
    class Derived:
        zenflow = False
        optimizer = None

    derived = Derived()
    assert host_path.path_of(derived).op is None
    assert host_path.path_of(derived) is host_path.path_of(derived)


def test_a_link_with_the_name_of_the_unfinished_file_is_not_followed(tmp_path):
    partial = tmp_path / "file.0.writing"
    partial.symlink_to("not yet there")
    factory = SimpleNamespace(_data_parallel_writer=SimpleNamespace(global_rank=0))
    fast_writer.create(
        lambda _factory, path, _: Path(path).write_text("saved"), factory, tmp_path / "file", False
    )
    assert not (tmp_path / "not yet there").exists()
    assert partial.read_text() == "saved"
