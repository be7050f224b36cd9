"""The publishing side: run the chapters, build the site.

It imports the measuring side, and the measuring side never imports it.
"""
