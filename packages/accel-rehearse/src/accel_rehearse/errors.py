# SPDX-FileCopyrightText: accel contributors
# SPDX-License-Identifier: Apache-2.0
"""The errors of `accel rehearse`."""

from accel_core.errors import AccelError


class InvalidRecord(AccelError, ValueError, code="ACC-711"):
    """A file is not the record of a rehearsal, or of another schema."""


class UnknownProfile(AccelError, ValueError, code="ACC-712"):
    """No device has this name in the rehearsal's list."""


class InvalidRehearsal(AccelError, ValueError, code="ACC-713"):
    """The options of a rehearsal do not make a job."""
