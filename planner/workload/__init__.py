"""What is trained: operators, layers, and the models made of them."""
