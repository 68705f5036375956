"""The closed loop: a machine is profiled, small transformers are planned for it, every legal plan is run."""
