"""Tensor parallelism: one layer's weights split over several processes, exactly.

``layers`` holds the split linear layers, ``blocks`` the MLP and attention blocks made of them,
``ranks`` the processes, ``scaling`` what is measured of them.
"""
