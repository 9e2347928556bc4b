"""How a core is laid out: slots, pages, row families, world."""

from __future__ import annotations

from dataclasses import dataclass

from dgpp.checkpoint.slicing import WORLDS


class SettingsError(ValueError):
    """Settings that contradict each other, or that this machine cannot hold."""


@dataclass(frozen=True)
class CoreSettings:
    """How a core is laid out. Only `page_tokens` is a setting of the numerics: attention moves its running maximum
    page by page. `verify_rows` is the most rows of one verify segment, the pending token and its drafts."""

    slots: int = 8
    pool_tokens: int = 8192
    page_tokens: int = 64
    row_families: tuple[int, ...] = (4, 16, 64, 256)
    world: int = 1
    verify_rows: int = 8

    def check(self) -> None:
        """Raises SettingsError naming the setting that is wrong."""
        if self.slots < 1:
            raise SettingsError(f"slots must be at least 1, got {self.slots}")
        if self.page_tokens % 16 or self.page_tokens < 16:
            raise SettingsError(f"page_tokens must be a multiple of 16, got {self.page_tokens}")
        if self.pool_tokens < self.page_tokens:
            raise SettingsError(f"pool_tokens {self.pool_tokens} is less than one page of {self.page_tokens}")
        if max(self.row_families) < self.slots:
            raise SettingsError(f"{self.slots} slots do not fit the largest row family, {max(self.row_families)}")
        if self.verify_rows < 1:
            raise SettingsError(f"verify_rows must be at least 1, got {self.verify_rows}")
        if self.world not in WORLDS:
            raise SettingsError(f"world must be one of {WORLDS}, got {self.world}")
