"""The compiled step: how it is asked for, built, run and examined, and its options."""
