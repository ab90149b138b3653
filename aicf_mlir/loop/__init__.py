"""Helpers for the loop around a step."""
