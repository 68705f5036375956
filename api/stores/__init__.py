"""What the service keeps in its database, one module for each kind of thing."""
