"""The certificates of tests, by the name that older tests import."""

from __future__ import annotations

from tidelog.testing.certificates import Authority, Identity, subject

__all__ = ["Authority", "Identity", "subject"]
