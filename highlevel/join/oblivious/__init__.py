"""Equijoins on a progressing attribute, without a window (Wu et al.)."""
