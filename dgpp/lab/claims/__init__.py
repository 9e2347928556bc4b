"""The exactness claims, one file each, and their runner: `run_claims(model)`."""

from dgpp.lab.claims.claim import ClaimResult
from dgpp.lab.claims.run import CLAIMS, run_claims
from dgpp.lab.claims.subject import EFFORTS, FULL, Effort

__all__ = ["CLAIMS", "EFFORTS", "FULL", "ClaimResult", "Effort", "run_claims"]
