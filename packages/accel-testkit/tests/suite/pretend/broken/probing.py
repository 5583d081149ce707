# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""What the checks of the probe notice: a variable that is said to be unset, a refusal that is not told."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

import pytest
from accel_good.accelerator import GOOD_Accelerator

from accel_core.errors import InvalidEnvironment
from accel_core.vendor import Evidence
from broken import Site, breaks

_PROBE = "probe"


@breaks(f"{_PROBE}.evidence_is_true_of_the_environment")
def variable_is_never_set(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """GOOD_VISIBLE_DEVICES, which the package names, is said to be unset even where it is."""
    said = Evidence(runtime=True, hardware=True, reason="all devices: GOOD_VISIBLE_DEVICES is not set")
    monkeypatch.setattr("accel_good.probe.evidence", lambda: said)


@breaks(f"{_PROBE}.confirmation_tells_of_lists_that_are_refused")
class RefusalIsNotTold(GOOD_Accelerator):
    """Lists that do not ascend are refused, and confirm() does not say so of a variable that has one."""

    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        if list(local_accelerator_ids) == [1, 0]:
            raise InvalidEnvironment(what="no order", found="1, 0", expected="0, 1", do="sort them")
        super().set_visible_devices_envs(current_env, local_accelerator_ids)
