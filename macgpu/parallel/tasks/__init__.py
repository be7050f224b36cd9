"""What the program does that torchrun starts: a module a task.

All ranks call a task's ``run``; what the first one returns is the result.
"""
