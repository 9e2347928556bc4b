"""How a schema is refused: by the path of the keyword, in the request's spelling and as a JSON Pointer."""

from __future__ import annotations

from dataclasses import dataclass

from dgpp.text.constraints.errors import GrammarError


@dataclass(frozen=True)
class Place:
    """A place in a schema: the request's path of the schema, and the keys and indices from there on."""

    base: str
    steps: tuple[str | int, ...] = ()

    def __truediv__(self, step: str | int) -> Place:
        return Place(self.base, (*self.steps, step))

    @property
    def param(self) -> str:
        """As a path of the request: `response_format.json_schema.schema.anyOf[1].if`."""
        return self.base + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in self.steps)

    @property
    def pointer(self) -> str:
        """As a JSON Pointer fragment within the schema (RFC 6901): `#/anyOf/1/if`."""
        return "#" + "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in self.steps)

    def refused(self, why: str) -> GrammarError:
        """The error that names this place; `why` begins after the name."""
        return GrammarError(f"{self.param} ({self.pointer}) {why}", self.param, "unsupported_schema")
