"""Compares what a case computes with its golden, and says what moved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from dgpp.lab.goldens import manifest as manifests
from dgpp.lab.goldens.case import Case, Judgement, Values
from dgpp.lab.goldens.key import key as present_key
from dgpp.lab.goldens.key import versions


@dataclass(frozen=True)
class Moved:
    """One value that is not what it was; `old` or `new` is None where one side does not have it."""

    name: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        return f"{self.name}: {self.old} -> {self.new}"


@dataclass(frozen=True)
class GoldenResult:
    """What became of a case on the present key."""

    case: str
    key: str
    compared: int  # values that have a golden
    moved: tuple[Moved, ...]
    judgement: Judgement | None = None  # against float64, where values have no golden

    @property
    def stands(self) -> bool:
        """Whether nothing moved, everything without a golden was judged to be right, and there was one or the other."""
        judged = self.judgement is not None and self.judgement.stands
        return not self.moved and (judged if self.judgement else self.compared > 0)

    @property
    def complete(self) -> bool:
        """Whether all values have a golden."""
        return self.compared > 0 and self.judgement is None

    def __str__(self) -> str:
        said = [f"{self.compared} values compared"]
        if self.compared:
            said.append(f"{len(self.moved)} moved, the first is {self.moved[0]}" if self.moved else "unchanged")
        if self.judgement:
            said.append(f"no golden for this key: {self.judgement}")
        return f"{self.case:17} {self.key}  {', '.join(said)}"


def check(case: Case, *, kernels: str | None = None, root: Path | None = None, write: bool = False) -> GoldenResult:
    """The result of one case. With `write`, what was computed becomes the golden afterwards.

    A manifest of other inputs counts as moved. Raises ManifestError for one that cannot be read.
    """
    root, key = root or manifests.directory(), present_key(kernels)
    computed = case.compute(kernels)
    stored = manifests.read(case, root)
    pinned = stored.pinned.get(key, {})
    moved = [] if manifests.same_inputs(case, stored) else [Moved("inputs", "others", "those of today")]
    moved += _moved(stored.portable, computed.portable)
    moved += _moved(pinned, computed.pinned) if pinned else ()
    compared = len(stored.portable) + len(pinned)
    unknown = bool(computed.pinned and not pinned) or bool(computed.portable and not stored.portable)
    result = GoldenResult(case.name, key, compared, tuple(moved), computed.judge() if unknown else None)
    if write:
        fresh = replace(stored, inputs=case.inputs, portable=computed.portable)
        if computed.pinned:
            fresh = replace(
                fresh,
                pinned={**stored.pinned, key: computed.pinned},
                versions={**stored.versions, key: versions(kernels)},
            )
        manifests.write(case, fresh, root)
    return result


def _moved(old: Values, new: Values) -> list[Moved]:
    """The values that differ, in the order of the new ones. Nothing is said where there was no golden at all."""
    if not old:
        return []
    names = [*new, *(name for name in old if name not in new)]
    return [Moved(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]
