"""The beginning of a configuration: to be formatted with `broker` and `prefix`."""

__all__ = ["CAPTURE", "JOB"]

CAPTURE = """
[kafka]
bootstrap = "{broker}"
[topics]
prefix = "{prefix}-"
[capture]
metrics = "127.0.0.1:0"
"""

JOB = f"""{CAPTURE}\
[job]
metrics = "127.0.0.1:0"
heap = "512m"
"""
