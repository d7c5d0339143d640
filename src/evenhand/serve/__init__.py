"""A model behind HTTP: lists for known users and for posted histories, similar items, health and metrics.

`evenhand serve MODEL` starts it; it needs `pip install 'evenhand[serve]'`.
"""
