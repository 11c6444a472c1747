"""The jobs. Each takes an open session and writes one folder; see `trellis.pipeline.jobs.run` for what they share."""

from trellis.pipeline.jobs.churn import churn
from trellis.pipeline.jobs.edits import edits
from trellis.pipeline.jobs.events import events
from trellis.pipeline.jobs.generate import generate
from trellis.pipeline.jobs.pairs import pairs
from trellis.pipeline.jobs.plan import plan
from trellis.pipeline.jobs.profile import profile
from trellis.pipeline.jobs.rates import rates
from trellis.pipeline.jobs.run import Report
from trellis.pipeline.jobs.social import social
from trellis.pipeline.jobs.verify import verify
from trellis.pipeline.jobs.watch import watch

__all__ = [
    "Report",
    "churn",
    "edits",
    "events",
    "generate",
    "pairs",
    "plan",
    "profile",
    "rates",
    "social",
    "verify",
    "watch",
]
