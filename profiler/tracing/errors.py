"""What can go wrong while a module is traced."""


class UntraceableModule(ValueError):  # noqa: N818 - reads as what happened
    """A module that cannot be made, run without values, or described per sample; says which part and why."""
