"""lowmark: exact, continuous answers about network traffic, with windows that say when they are complete."""

__version__ = "0.1.0"
