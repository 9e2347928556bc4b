"""rope: rotary position embedding of heads; see the functions of `reference`."""
