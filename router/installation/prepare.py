"""The order in which a checkout is made runnable.

Knows what comes before what; not how each is done.
"""

from __future__ import annotations

from router.installation.build import build_native
from router.installation.checkout import Checkout
from router.installation.packages import install_packages

__all__ = ["prepare"]


def prepare(checkout: Checkout) -> None:
    """Install and build what is not there; where all is, read a few files, write nothing, run nothing.

    Raises
    ------
    Refusal
        It cannot be done, for a reason that a person can act on.

    """
    if checkout.is_ready("packages") and checkout.is_ready("native"):
        return
    with checkout.only_one_start():
        if not checkout.is_ready("packages"):
            install_packages(checkout)
        if not checkout.is_ready("native"):
            build_native(checkout)
    checkout.progress.say("ready")
