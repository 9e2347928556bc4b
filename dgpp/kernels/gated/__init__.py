"""gated: values that another value opens, `act(gate) * value`; see the functions of `reference` for the forms."""
