"""Measuring: time, correctness, operations, memory, energy, and the records they are kept in.

One module a subject. A result is a frozen dataclass with its raw samples, so that a record can hold
it as it is. What was not measured is ``None``.
"""
