"""Measurements of lowmark against what a user would pick instead. Ratios within one run, on one machine."""
