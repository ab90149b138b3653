"""What every level of the compiler shares: types, roles, attributes, locations, text, and what C++ knows of ops."""
