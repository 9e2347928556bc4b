"""What parsing needs to know of the model that is served."""

from __future__ import annotations

from dataclasses import dataclass, field

from dgpp.serve.requests.thinking import Controls
from dgpp.text.tools import Dialect


@dataclass(frozen=True)
class Served:
    """What parsing needs to know of the model: the names it answers to, its number of token ids, what its chat template
    reads of a request, how it writes tool calls (None: not at all), and whether the engine masks tokens."""

    names: tuple[str, ...]
    vocab_size: int
    controls: Controls = field(default_factory=Controls)
    dialect: Dialect | None = None
    constrains: bool = True
