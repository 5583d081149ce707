# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Many things that have to hold in one check, by what they say."""

from __future__ import annotations

from typing import Any

import torch

from accel_testkit.suite.expect import expect

#: So many that do not hold are named.
_NAMED = 12


class Holds(dict[str, Any]):
    """What has to hold, by what it says."""

    def same(self, what: str, found: torch.Tensor, wanted: torch.Tensor) -> None:
        """Tensors of one type, shape and content."""
        alike = (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        self[what] = alike and torch.equal(found.detach().cpu(), wanted.detach().cpu())

    def expect(self, what: str, do: str) -> None:
        """Fail the check unless all of it does."""
        __tracebackhide__ = True
        broken = [name for name, held in self.items() if not held]
        more = f", and {len(broken) - _NAMED} more" if len(broken) > _NAMED else ""
        expect(
            not broken,
            f"{what} is not what DeepSpeed expects",
            found=f"not so: {'; '.join(broken[:_NAMED])}{more}",
            expected=f"all {len(self)} of what this check tries",
            do=do,
        )
