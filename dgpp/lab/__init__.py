"""What notebooks import: a model with its forward opened up, and tools to look at what it computes.

`load` gives a `Model`; `lens`, `compare` and `show` look at the results of its `forward`; `layer` runs one layer by
hand; `claims` and `goldens` check that the numbers are the ones that a server computes, today and after any change.
"""

from dgpp.lab.model import Forward, Generation, Model, load

__all__ = ["Forward", "Generation", "Model", "load"]
