"""What keeps a plan from being run."""


class PlanCannotRun(ValueError):  # noqa: N818 - reads as what happened
    """A model, a job or a plan with something that a trial does not have; says what."""
