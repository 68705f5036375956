"""How a model is best trained on given machines; knows no web, database or torch."""
