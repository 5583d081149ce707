# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed's op `async_io`: transfers between tensors and files, on io_uring or threads."""
