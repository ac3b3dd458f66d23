"""The domain: GPUs, slices, reservations, sessions, and who gets what. Standard library only.

Nothing here opens a file or a socket; everything outside reaches it through `interfaces`.
"""

from __future__ import annotations
