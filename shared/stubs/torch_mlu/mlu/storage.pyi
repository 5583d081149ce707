# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# Generated from shared/surfaces by `python -m ci.stubs write`: change nothing here.
from typing import Any, overload

import torch

INT_SIZE: Any
LONG_SIZE: Any
MAGIC_NUMBER: Any
PROTOCOL_VERSION: Any
SHORT_SIZE: Any
def apply_storage_patch() -> Any: ...
torch_64bit_dtypes: Any
def typedstorage_to_mlu(self: Any, device: Any = ..., non_blocking: Any = ..., **kwargs: Any) -> Any: ...
unsupported_dtypes: Any
