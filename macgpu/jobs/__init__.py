"""Whole jobs: what a chapter trains from data to a file that somebody can use."""
