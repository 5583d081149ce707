# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Initial parameters are kept within their limit, and loaded into the same model alone."""

from pathlib import Path

import pytest
import torch
from torch import nn

from accel_testkit.compare.parameters import InitialParameters

_LIMIT = 1 << 20


def model(seed: int, width: int = 4) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, width), nn.Linear(width, 2))


def values(one: nn.Module) -> list[float]:
    return torch.cat([parameter.detach().flatten() for parameter in one.parameters()]).tolist()


def keep(folder: Path, *models: nn.Module, limit: int = _LIMIT) -> list[str]:
    initial = InitialParameters(folder, limit, load=False)
    return [initial.of(one, 0) for one in models]


def load(folder: Path, *models: nn.Module) -> list[str]:
    initial = InitialParameters(folder, 0, load=True)
    with torch.no_grad():
        return [initial.of(one, 0) for one in models]


def test_models_get_the_parameters_that_were_kept_in_their_order(tmp_path: Path) -> None:
    keep(tmp_path, model(0), model(1))
    here = [model(2), model(3)]
    assert all("are loaded from the record: 4 tensors" in note for note in load(tmp_path, *here))
    assert [values(one) for one in here] == [values(model(0)), values(model(1))]


def test_model_that_runs_again_keeps_what_it_has_learnt(tmp_path: Path) -> None:
    keep(tmp_path, model(0))
    here = model(1)
    initial = InitialParameters(tmp_path, 0, load=True)
    with torch.no_grad():
        initial.of(here, 0)
        here[0].weight.zero_()
        assert initial.of(here, 0) == ""
        assert initial.of(nn.Sequential(here), 0) == ""
    assert not here[0].weight.any()


def test_more_than_the_limit_is_not_kept_and_said(tmp_path: Path) -> None:
    notes = keep(tmp_path, model(0), model(0, 40_000), model(1), limit=1 << 18)
    assert ["are kept" in note for note in notes] == [True, False, True]
    assert "0.92 MiB, and 0.25 MiB of --parameters are left" in notes[1]
    here = [model(5), model(5, 40_000), model(5)]
    assert "the record has none" in load(tmp_path, *here)[1]
    assert values(here[2]) == values(model(1))


def test_another_model_keeps_its_own_parameters(tmp_path: Path) -> None:
    keep(tmp_path, model(0))
    here = model(1, 5)
    assert "the record has others: 0.bias [4]" in load(tmp_path, here)[0]
    assert values(here) == values(model(1, 5))


@pytest.mark.parametrize("content", [b"", b"no file of torch", b"\x80\x04cos\nsystem\n(S'true'\ntR."])
def test_file_that_is_damaged_or_hostile_is_named_and_the_program_goes_on(tmp_path, content) -> None:
    (tmp_path / "rank0.0.pt").write_bytes(content)
    here = model(1)
    assert "are not loaded: " in load(tmp_path, here)[0]
    assert values(here) == values(model(1))


def test_folder_that_cannot_be_written_is_named_and_the_program_goes_on(tmp_path: Path) -> None:
    assert "are not kept: " in keep(tmp_path / "nowhere", model(0))[0]


def test_lazy_parameters_and_those_without_values_are_left_out(tmp_path: Path) -> None:
    assert keep(tmp_path, nn.LazyLinear(3), nn.Linear(2, 2, device="meta"), nn.Identity()) == [""] * 3
