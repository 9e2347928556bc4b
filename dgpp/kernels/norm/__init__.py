"""norm: RMSNorm in its forms; see the functions of `reference`."""
