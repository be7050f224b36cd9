"""The parts of :mod:`jobs`, one file a job."""
