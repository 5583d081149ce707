# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
# Generated from shared/surfaces by `python -m ci.stubs write`: change nothing here.
from typing import Any, overload

import torch

ProcessGroupCNCL: Any
def batch_isend_irecv(p2p_op_list: Any) -> Any: ...
def is_cncl_available() -> Any: ...
def version() -> Any: ...
