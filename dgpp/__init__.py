"""Published, quantized LLM checkpoints, run as published, with one forward for notebooks, tests and serving.

Importing this package allocates nothing and does not import JAX; `dgpp.load` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dgpp.lab.model import Model

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def load(model: str | None = None, **settings: object) -> Model:
    """The model of a directory, a hub id, or (with no argument) the embedded one, ready to run.

    See `dgpp.lab.model.load` for the settings.
    """
    from dgpp.lab.model import load as load_model

    return load_model(model, **settings)  # type: ignore[arg-type]
