"""The code under the book: what several chapters need, and what must live in a module to work.

Importing ``macgpu`` imports nothing else, so that a chapter can set an environment variable
before torch is loaded and the command line answers at once.
"""

__version__ = "0.1.0"
