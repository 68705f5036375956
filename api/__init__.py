"""The service around the planner: HTTP, web form and command line."""
