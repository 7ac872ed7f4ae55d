"""Rivals from the papers that no planner picks, behind the same interfaces as what they are compared with."""
