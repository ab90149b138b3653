"""Common parts of every level of the compiler: types, roles, attributes, locations, text, and C++'s declarations of ops."""
