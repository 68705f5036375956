"""The rules that frameworks add to what the model and the cluster allow, one file per decision."""
