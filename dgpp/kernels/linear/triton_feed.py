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
from dgpp.kernels.linear.triton_form import Form, forms


@dataclass(frozen=True)
class Plan:
    """The first form that the readers want, written by the kernel itself; other forms are made on demand."""

    form: Form | None
    ranges: Ranges  # of columns: the form's, or `whole`
    rows: int

    @property
    def outs(self) -> tuple[Out, ...]:
        """Operand and factor, as outputs of the kernel; small ones that nobody reads where there is no form."""
        return self.form.outs if self.form else (Out((1,), jnp.float16), Out((1,), jnp.float32))

    @property
    def constants(self) -> dict[str, Any]:
        """FEED, and those of `triton_prepare.store_operand`."""
        empty = Form(self.ranges, self.rows, 1, 1, 0, 1, 0)
        found = self.form or empty
        lacking = max(found.padded * found.planes - (stop - start) for start, stop in found.ranges)
        rest = 1 << (lacking - 1).bit_length() if self.form and lacking > 0 else 0
        return {"FEED": self.form is not None, **found.constants, "REST": rest}

    def fed(self, values: jax.Array, operand: jax.Array, factor: jax.Array) -> jax.Array | Fed:
        """The rows with what the kernel left beside them."""
        return Fed(values, {self.form: (operand, factor)}) if self.form else values


def plan(feeds: Sequence[Feed], rows: int, whole: Ranges) -> Plan:
    """The plan for `rows` rows. `whole` are the parts of the columns in which a kernel works without a form."""
    wanted = forms(feeds, rows)
    return Plan(wanted[0], wanted[0].ranges, wanted[0].rows) if wanted else Plan(None, whole, rows)
