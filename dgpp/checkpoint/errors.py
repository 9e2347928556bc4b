"""The error of everything a user can put right about a checkpoint."""

from __future__ import annotations


class CheckpointError(Exception):
    """A checkpoint that cannot be used as it is: the message names the file or tensor and says what to do.

    Commands print it as one line and exit with status 2; it is never shown as a traceback.
    """
