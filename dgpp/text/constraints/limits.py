"""How much a constraint may cost, when it is compiled and at every token (case J5)."""

from __future__ import annotations

from dataclasses import dataclass

import llguidance


@dataclass(frozen=True)
class Limits:
    """Bounds of one constraint. Those of the library are counts of its own work, so they mean the same on every
    machine; `seconds` is how long a request waits for its constraint."""

    schema_bytes: int = 256 * 1024  # of one schema as compact JSON
    schema_depth: int = 64
    schema_nodes: int = 20_000
    grammar_bytes: int = 1024 * 1024  # of everything handed to the library
    seconds: float = 5.0
    initial_fuel: int = 1_000_000
    step_fuel: int = 200_000  # about 15 ms of lexing
    step_items: int = 50_000  # about 3 ms of parsing
    row_items: int = 2_000
    lexer_states: int = 50_000  # 1 to 2 kB each
    grammar_size: int = 300_000

    def parser(self) -> llguidance.LLParserLimits:
        """The same for the library."""
        return llguidance.LLParserLimits(
            max_items_in_row=self.row_items,
            initial_lexer_fuel=self.initial_fuel,
            step_lexer_fuel=self.step_fuel,
            step_max_items=self.step_items,
            max_lexer_states=self.lexer_states,
            max_grammar_size=self.grammar_size,
            verbose_errors=False,
        )


DEFAULT_LIMITS = Limits()
