# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""Validation of declared traits. Without it, a misspelt key would be ignored silently."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping

from accel_core.errors import InvalidTraits
from accel_core.op_builder.names import ONE_DEVICE, UPSTREAM
from accel_core.vendor import Feature, Trait


def checked_traits(device: str, traits: Mapping[str, Trait], builders: Collection[str]) -> dict[str, Trait]:
    """Return the traits with str keys; raises InvalidTraits for a key that is neither a feature nor an op builder.

    device:   device type, for the message.
    builders: builder names of the vendor's own op table, besides DeepSpeed's.
    """
    known = {feature.value for feature in Feature} | {*UPSTREAM, *ONE_DEVICE, *builders}
    by_key = {str.__str__(key): trait for key, trait in traits.items()}
    if unknown := sorted(by_key.keys() - known):
        near = sorted({match for key in unknown for match in difflib.get_close_matches(key, known, 3, 0.5)})
        raise InvalidTraits(
            what=f"the traits of {device} name what no accelerator has",
            found=", ".join(map(repr, unknown)),
            expected="keys of accel_core.vendor.Feature, or class names of op builders"
            + (f"; the nearest: {', '.join(near)}" if near else ""),
            do="correct the key in the vendor package's traits.py",
        )
    if wrong := sorted(key for key, trait in by_key.items() if not isinstance(trait, Trait)):
        raise InvalidTraits(
            what=f"the traits of {device} have values of another type",
            found=", ".join(f"{key}: {type(by_key[key]).__name__}" for key in wrong),
            expected="accel_core.vendor.Trait for each key",
            do="use Trait.unsupported(reason) or Trait.not_implemented(reason)",
        )
    return by_key
