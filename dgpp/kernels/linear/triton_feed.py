"""What a kernel that makes rows is given about the matrices that will read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dgpp.kernels.gpu.launch import Out
from dgpp.kernels.linear.fed import Fed, Feed
from dgpp.kernels.linear.ranges import Ranges
from dgpp.kernels.linear.triton_form import Form, bounds_of, common_length, forms

BLOCK = 512  # columns of one program
SMALL = 128  # and of one that needs no others, where there are few rows,
FEW = 16  # up to so many


@dataclass(frozen=True)
class Plan:
    """The first form that the readers want, written by the kernel itself; other forms are made on demand."""

    form: Form | None
    ranges: Ranges  # of columns: the form's, or `whole`
    rows: int
    columns: int = BLOCK  # of one program, at least

    @property
    def outs(self) -> tuple[Out, ...]:
        """Operand and factor, as outputs of the kernel; small ones that nobody reads where there is no form."""
        return self.form.outs if self.form else (Out((1,), jnp.float16), Out((1,), jnp.float32))

    @property
    def block(self) -> int:
        """Columns of one program: a power of two, groups that are whole."""
        return max(self.columns, self.form.group if self.form else 1)

    @property
    def grid(self) -> tuple[int, int, int]:
        """(rows, leaves, programs of a leaf)."""
        longest = max(stop - start for start, stop in self.ranges)
        columns = self.form.padded * self.form.planes if self.form else longest
        return self.rows, len(self.ranges), -(-columns // self.block)

    @property
    def constants(self) -> dict[str, Any]:
        """LENGTH (of every range, or 0), FEED, BLOCK, and those of `triton_prepare.store_operand`."""
        empty = Form(self.ranges, self.rows, padded=1, planes=1, unit=0, run=1, exponent=0, group=1)
        own = {"LENGTH": common_length(self.ranges), "FEED": self.form is not None, "BLOCK": self.block}
        return own | (self.form or empty).constants

    @property
    def bounds(self) -> jax.Array:
        """int32 [leaves, 2]: where the ranges begin and end."""
        return bounds_of(self.ranges)

    def fed(self, values: jax.Array, operand: jax.Array, factor: jax.Array) -> jax.Array | Fed:
        """The rows with what the kernel left beside them."""
        return Fed(values, {self.form: (operand, factor)}) if self.form else values


def shared(rows: int) -> int:
    """The columns of one program, where none needs other columns than it writes: few rows are shared by more."""
    return SMALL if rows <= FEW else BLOCK


def plan(feeds: Sequence[Feed], rows: int, whole: Ranges, columns: int = BLOCK) -> Plan:
    """The plan for `rows` rows. `whole` are the parts of the columns in which a kernel works without a form, and
    `columns` those of one program."""
    wanted = forms(feeds, rows)
    return Plan(wanted[0], wanted[0].ranges, rows, columns) if wanted else Plan(None, whole, rows, columns)
