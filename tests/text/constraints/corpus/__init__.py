"""Two hundred JSON schemas as people send them: payloads of services, configurations, extraction tasks, API
descriptions, unions, recursive structures, and those with keywords that cannot be enforced.

`ENFORCED` maps names to schemas, `REFUSED` to the path of the keyword and the schema.
"""

from __future__ import annotations

from typing import Any

from tests.text.constraints.corpus import configuration, extraction, payloads, refused, structures, unions, values

_PARTS = (payloads, configuration, extraction, unions, structures, values)
ENFORCED: dict[str, Any] = {name: schema for part in _PARTS for name, schema in part.SCHEMAS.items()}
REFUSED: dict[str, tuple[str, Any]] = refused.SCHEMAS

assert len(ENFORCED) == sum(len(part.SCHEMAS) for part in _PARTS), "a name is used twice"
