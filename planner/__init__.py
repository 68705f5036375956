"""How a model is best trained on given machines: the model of the problem, free of web, database and torch."""
